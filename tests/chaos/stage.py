"""Sets up an installation, and plays one fault after the other on it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx

from tests.chaos.faults import Fault
from tests.chaos.load import Load, Shape
from tests.chaos.scene import Scene
from tests.chaos.topics import Results, ends
from tests.chaos.verdict import Verdict, judge
from tests.flow.installation import Installation, installation
from tests.pipeline.brokers import ApacheKafka, apache_kafka

TOPICS = {
    "HEADRACE_TOPICS_REQUESTS_PARTITIONS": "3",
    "HEADRACE_TOPICS_LEDGER_PARTITIONS": "3",
    "HEADRACE_TOPICS_WORK_PARTITIONS": "8",
    "HEADRACE_TOPICS_TOKENS_PARTITIONS": "8",
}
BROKERS = {"embedded": 0, "apache": 1, "apache3": 3}
BEGIN_LIMIT = 120.0  # s until half of the streams speak
ALSO = ("edges", "ingress", "orchestration", "delivery")


@contextmanager
def fleet(
    folder: Path, broker: str, shape: Shape, workers: int, count: int, disk: int = 0
) -> Iterator[Installation]:
    """`count` of each role and `workers` workers, on the kind of broker that is named; `disk`: MiB that
    the embedded one has for itself."""
    environment = {
        **TOPICS,
        **{f"HEADRACE_UP_{name.upper()}": str(count) for name in ALSO},
        "HEADRACE_UP_EDGES": "2",
        "HEADRACE_UP_WORKERS": str(workers),
        "HEADRACE_WORKER_SLOTS": "512",
        # an edge that is killed again and again is long in coming back: its clients are not gone
        "HEADRACE_EDGE_DISCONNECT_GRACE": "120",
        "HEADRACE_TOPICS_REPLICATION": "3" if broker == "apache3" else "1",
    }
    if shape.model == "null":
        environment["HEADRACE_WORKER_ENGINE"] = "null"
        environment["HEADRACE_NULL_RATE"] = str(shape.tokens / shape.seconds)
    else:
        environment["HEADRACE_WORKER_SLOTS"] = "16"
    if not BROKERS[broker]:
        room = small_disk(folder / "home" / "broker", disk) if disk else nullcontext()
        with room, installation(folder / "home", "embedded", None, **environment) as made:
            yield made
        return
    with (
        apache_kafka(folder / "kafka", BROKERS[broker]) as cluster,
        installation(folder / "home", "apache", cluster, **environment) as made,
    ):
        yield made


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of `size` MiB there. Raises RuntimeError for who may not mount one."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}m", "headrace-chaos", str(folder)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"a small disk needs the right to mount one: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def play(
    made: Installation, name: str, fault: Fault, shape: Shape, seconds: float
) -> Verdict:
    """One fault under a load of its own, from the first request to the last outcome."""
    cluster: ApacheKafka | None = made.cluster
    marks = {
        topic: await asyncio.to_thread(ends, made.kafka, made.topic(topic))
        for topic in ("requests", "tokens")
    }
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with Results(made.kafka, made.topic("results")) as results:
        async with httpx.AsyncClient(timeout=60, limits=limits) as http:
            load = Load(made, results, shape)
            scene = Scene(made, load, cluster, seconds)
            running = asyncio.create_task(load.run(http))
            try:
                await until_speaking(load, running)
                await fault.act(scene)
                for member in scene.members():
                    await scene.until_ready(member)
                await scene.until_served()
            except (TimeoutError, RuntimeError, OSError) as error:
                scene.problems.append(f"{type(error).__name__}: {error}"[:400])
            load.stop()
            say(f"{name}: it is over; {sum(load.in_flight())} requests are in flight")
            await running
            say(f"{name}: every client is gone; judging {len(load.accepted())} requests")
            return await judge(name, fault.hits, scene, http, marks)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


async def until_speaking(load: Load, running: "asyncio.Task[None]") -> None:
    """Half of the streams have begun to speak: then a fault hits work. Raises TimeoutError."""
    deadline = time.monotonic() + BEGIN_LIMIT
    while sum(bool(stream.frames) for stream in load.streams) < load.shape.streams / 2:
        if running.done():
            running.result()
        if time.monotonic() > deadline:
            raise TimeoutError("the streams did not begin to speak")
        await asyncio.sleep(0.1)
