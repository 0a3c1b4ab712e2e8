"""The faults: what is done to which process, and what each one must have hit."""

import asyncio
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.scene import Scene
from tests.chaos.topics import until_busy, until_in_sync
from tests.flow.installation import ROOT

ROLES = ("edge", "ingress", "orchestration", "worker", "delivery")
FULL = 10.0  # s that a disk stays full after the first client has heard of it
APART = 5.0  # s that a cluster is left to go on without one of its brokers
LIMIT = 150.0  # s until everything must be ready again


async def kill(scene: Scene, member: str) -> None:
    """kill -9, and wait for its next life."""
    if member not in scene.present():
        return
    pid = await scene.hit(member, signal.SIGKILL)
    await scene.until_ready(member, pid)
    await scene.until_at_work()


def kill_role(role: str) -> Callable[[Scene], Awaitable[None]]:
    async def fault(scene: Scene) -> None:
        for member in [m for m in scene.present() if m.startswith(f"{role}-")]:
            await kill(scene, member)

    return fault


async def kill_store(scene: Scene) -> None:
    await kill(scene, "store")


async def kill_at_random(scene: Scene) -> None:
    """Any role, every two seconds, whether it has come back or not."""
    chance = random.Random(5)
    over = asyncio.get_running_loop().time() + scene.seconds
    while asyncio.get_running_loop().time() < over:
        victims = [m for m in scene.present() if m.rpartition("-")[0] in ROLES]
        if victims:
            await scene.hit(chance.choice(victims), signal.SIGKILL)
        await asyncio.sleep(2)


def pause(member: str, seconds: float) -> Callable[[Scene], Awaitable[None]]:
    """SIGSTOP, long enough to be declared dead, and back as a zombie."""

    async def fault(scene: Scene) -> None:
        pid = await scene.hit(member, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        await scene.until_at_work()

    return fault


async def kill_broker(scene: Scene) -> None:
    if scene.cluster is None:
        await kill(scene, "broker")
        return
    for number in range(1, scene.cluster.brokers + 1):
        scene.mark()
        await asyncio.to_thread(scene.cluster.kill, number)
        if scene.cluster.brokers > 1:
            await asyncio.sleep(APART)
        await asyncio.to_thread(scene.cluster.start)
        await asyncio.to_thread(until_in_sync, scene.fleet.kafka, LIMIT)
        await scene.until_at_work()


async def pause_broker(scene: Scene) -> None:
    if scene.cluster is None:
        pid = await scene.hit("broker", signal.SIGSTOP)
        resume = lambda: os.kill(pid, signal.SIGCONT)  # noqa: E731
    else:
        scene.mark()
        await asyncio.to_thread(scene.cluster.pause)
        resume = scene.cluster.resume
    try:
        await asyncio.sleep(20)
    finally:
        await asyncio.to_thread(resume)
    await scene.until_at_work()


async def rolling_restart(scene: Scene) -> None:
    """Every process of every role once, by SIGTERM, one after the other."""
    for member in [m for m in scene.present() if m.rpartition("-")[0] in ROLES]:
        pid = await scene.hit(member, signal.SIGTERM)
        await scene.until_ready(member, pid)


@contextmanager
def extra_worker(scene: Scene, member: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One more `headrace serve worker` beside the supervisor's."""
    state = scene.fleet.state()
    environment = {
        **os.environ,
        **scene.fleet.environment,
        "HEADRACE_KAFKA_BOOTSTRAP": state["kafka"],
        "HEADRACE_STORE_URL": state["store"],
        "HEADRACE_SUPERVISED": "1",
    }
    with (scene.fleet.home / "logs" / f"{member}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "serve", "worker", "--id", member],
            stdout=log, stderr=log, cwd=ROOT, env=environment,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


async def scale(scene: Scene) -> None:
    """One worker, four, one again: those that leave hand over what they cannot finish."""
    with contextlib.ExitStack() as stack:
        scene.mark()
        names = [f"worker-extra-{i}" for i in (1, 2, 3)]
        more = [stack.enter_context(extra_worker(scene, name)) for name in names]
        status = scene.fleet.topic("status")
        await asyncio.to_thread(until_busy, scene.fleet.kafka, status, set(names), LIMIT)
        scene.mark()
        for process in more:
            process.terminate()
        for process in more:
            code = await asyncio.to_thread(process.wait, LIMIT)
            if code:
                scene.problems.append(f"a worker that was told to leave ended with {code}")


async def fill_disk(scene: Scene) -> None:
    """No room is left for the broker until somebody makes some."""
    filler = scene.fleet.home / "broker" / "filler"
    refused = sum(stream.refused for stream in scene.load.streams)
    scene.mark()
    try:
        await asyncio.to_thread(fill, filler)
        await scene.until(lambda: sum(s.refused for s in scene.load.streams) > refused)
        await asyncio.sleep(FULL)
    finally:
        filler.unlink()
    await scene.until_at_work()


def fill(path: Path) -> None:
    """Bytes until the file system has none left."""
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(1 << 16))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return


@dataclass(frozen=True)
class Fault:
    act: Callable[[Scene], Awaitable[None]]
    hits: str = ""  # what it must have caused: attempts | resumed | refused
    workers: int = 2
    disk: int = 0  # MiB of a file system of its own for the embedded broker; 0: none


FAULTS = {
    "kill -9 worker": Fault(kill_role("worker"), "attempts"),
    "kill -9 edge, resume at the other": Fault(kill_role("edge"), "resumed"),
    "kill -9 broker": Fault(kill_broker),
    "kill -9 orchestration": Fault(kill_role("orchestration")),
    "kill -9 at random every 2 s": Fault(kill_at_random, "attempts"),
    "SIGSTOP worker 30 s": Fault(pause("worker-1", 30), "attempts"),
    "kill -9 ingress": Fault(kill_role("ingress")),
    "kill -9 delivery": Fault(kill_role("delivery")),
    "rolling restart by SIGTERM": Fault(rolling_restart, "resumed"),
    "kill -9 store": Fault(kill_store),
    "SIGSTOP orchestration 30 s": Fault(pause("orchestration-1", 30)),
    "SIGSTOP broker 20 s": Fault(pause_broker),
    "full disk": Fault(fill_disk, "refused", disk=128),
    "workers 1 → 4 → 1": Fault(scale, workers=1),
}
