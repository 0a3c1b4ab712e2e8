"""What the pipeline adds: time to first token over the bare chain of hops, requests per second per core,
memory, idle CPU. Null engine; the floor is measured beside it in the same run, on the same broker.

    python -m benchmarks.pipeline [--requests 100000] [--brokers embedded,apache] [--idle 60] [--share 1]

Streams at once come in a closed loop: a client asks again as soon as it was answered, and as the null
engine takes no time, several of them take all of two cores. Streams at a rate come as people do, whether
or not those before were answered; the floor is loaded in the same way.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.load import Load, arrivals
from benchmarks.machine import describe, quantile, table
from tests.flow.installation import Installation, installation
from tests.pipeline import brokers

# edge → requests → ready → ledger (the lease is read back) → work → tokens → edge
HOPS = 5
OURS = ("edge", "ingress", "orchestration", "delivery", "worker")
ROUNDS = {1: 300, 8: 600, 64: 1500}  # streams at once → requests measured
# connections → (requests a second in all, requests measured): a third of what two cores can do
OPEN = {8: (20.0, 300), 64: (50.0, 1000)}


def processes(headrace: Installation) -> dict[str, psutil.Process]:
    return {r["id"]: psutil.Process(r["pid"]) for r in headrace.state()["roles"] if r["pid"]}


def cpu_seconds(found: dict[str, psutil.Process], roles: tuple[str, ...]) -> float:
    total = 0.0
    for name, process in found.items():
        if name.rpartition("-")[0] in roles or name in roles:
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def floor(bootstrap: str, rounds: int, at_once: int, rate: float = 0) -> list[float]:
    """Milliseconds of a chain of HOPS produce → consume hops with the same client library.

    `rate`: of an open loop; 0: closed, `at_once` of them.
    """
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    topics = [f"floor-{os.getpid()}-{i}" for i in range(HOPS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1) for name in topics])
    await admin.close()
    producers = [AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") for _ in topics]
    consumers = [AIOKafkaConsumer(bootstrap_servers=bootstrap) for _ in topics]
    for producer in producers:
        await producer.start()
    for consumer, name in zip(consumers, topics, strict=True):
        await consumer.start()
        consumer.assign([TopicPartition(name, 0)])
        await consumer.seek_to_end()
        await consumer.position(TopicPartition(name, 0))
    arrived: dict[bytes, asyncio.Future[None]] = {}

    async def relay(hop: int) -> None:
        while True:
            for records in (await consumers[hop].getmany(timeout_ms=500)).values():
                for record in records:
                    if hop + 1 < HOPS:
                        await producers[hop + 1].send(topics[hop + 1], record.value)
                    elif record.value in arrived:
                        arrived.pop(record.value).set_result(None)

    tasks = [asyncio.create_task(relay(hop)) for hop in range(HOPS)]
    took: list[float] = []

    async def one(number: int) -> None:
        value = f"{number:08}".encode() * 25  # 200 bytes
        done = arrived[value] = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        await producers[0].send(topics[0], value)
        await done
        took.append((time.perf_counter() - begun) * 1000)

    async def lane(first: int) -> None:
        for number in range(first, rounds, at_once):
            await one(number)

    if rate:
        async with asyncio.TaskGroup() as coming:
            async for number in arrivals(rounds, rate):
                coming.create_task(one(number))
    else:
        await asyncio.gather(*(lane(first) for first in range(at_once)))
    for task in tasks:
        task.cancel()
    for client in (*producers, *consumers):
        await client.stop()
    return took


def first_token(headrace: Installation, part: float) -> list[list[str]]:
    """`part`: of the rounds, for a quick look."""
    rows = []
    for at_once, rounds in ROUNDS.items():
        count = max(at_once, int(rounds * part))
        base = asyncio.run(floor(headrace.kafka, count, at_once))
        load = asyncio.run(Load(headrace.url(), tokens=16).run(count, at_once))
        rows.append([headrace.broker, f"{at_once} at once", *ratios(base, load.first_token)])
    for clients, (rate, rounds) in OPEN.items():
        count = max(clients, int(rounds * part))
        base = asyncio.run(floor(headrace.kafka, count, clients, rate))
        load = asyncio.run(Load(headrace.url(), tokens=16).run_open(count, clients, rate))
        streams = f"{clients} at {rate:.0f}/s"
        rows.append([headrace.broker, streams, *ratios(base, load.first_token)])
    return rows


def ratios(base: list[float], took: list[float]) -> list[str]:
    shown = []
    for share in (0.5, 0.95):
        low, high = quantile(base, share), quantile(took, share)
        shown.append(f"{high:.1f} / {low:.1f} ms = {high / low:.2f} ×")
    return shown


def throughput(headrace: Installation, seconds: float) -> list[str]:
    found = processes(headrace)
    before = {role: cpu_seconds(found, (role,)) for role in OURS}
    load = asyncio.run(Load(headrace.url(), tokens=16).run_for(seconds, 64))
    by_role = {role: cpu_seconds(found, (role,)) - before[role] for role in OURS}
    spent = sum(by_role.values())
    each = [f"{role} {1000 * used / max(1, load.finished):.2f}" for role, used in by_role.items()]
    return [
        headrace.broker,
        str(load.finished),
        f"{load.finished / seconds:.0f}/s",
        f"{spent:.1f} s",
        f"**{load.finished / spent:.0f}**",
        ", ".join(each),
        f"{load.failed}",
    ]


def memory(headrace: Installation, requests: int) -> list[list[str]]:
    asyncio.run(Load(headrace.url(), tokens=16).run(2000, 64))  # warm: pools and caches have filled
    found = processes(headrace)
    before = {name: p.memory_info().rss for name, p in found.items()}
    asyncio.run(Load(headrace.url(), tokens=16).run(requests, 64))
    return [
        [headrace.broker, name, f"{before[name] >> 20} MiB", f"{p.memory_info().rss >> 20} MiB"]
        for name, p in found.items()
    ]


def idle(headrace: Installation, seconds: float) -> list[str]:
    found = processes(headrace)
    names = tuple(found)
    spent = cpu_seconds(found, names)
    time.sleep(seconds)
    spent = cpu_seconds(found, names) - spent
    return [headrace.broker, f"{seconds:.0f} s", f"{100 * spent / seconds:.1f} % of one core"]


@contextmanager
def running(kind: str) -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        if kind == "apache":
            with (
                brokers.apache_kafka(Path(folder) / "kafka") as kafka,
                installation(
                    Path(folder) / "home", kind, kafka, HEADRACE_WORKER_ENGINE="null"
                ) as made,
            ):
                yield made
            return
        with installation(Path(folder) / "home", kind, HEADRACE_WORKER_ENGINE="null") as made:
            yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="for the memory figures")
    parser.add_argument("--seconds", type=float, default=20, help="of full load")
    parser.add_argument("--idle", type=float, default=60)
    parser.add_argument("--brokers", default="embedded,apache")
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds of first tokens")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    for kind in chosen.brokers.split(","):
        with running(kind) as headrace:
            print(
                table(
                    f"Time to first token beside the bare chain of {HOPS} hops, {kind}",
                    ["broker", "streams", "p50: ours / floor", "p95: ours / floor"],
                    first_token(headrace, chosen.share),
                ),
                flush=True,
            )
            columns = [
                "broker",
                "requests",
                "rate",
                "our CPU",
                "per core",
                "ms a request",
                "failed",
            ]
            rows = [throughput(headrace, chosen.seconds)]
            print(table("Requests of 16 tokens per second of CPU", columns, rows), flush=True)
            rows = [idle(headrace, chosen.idle)]
            print(
                table("Idle, every process with the broker", ["broker", "for", "CPU"], rows),
                flush=True,
            )
            if chosen.requests:
                columns = ["broker", "process", "before", f"after {chosen.requests:,} requests"]
                print(
                    table("Resident memory", columns, memory(headrace, chosen.requests)), flush=True
                )


if __name__ == "__main__":
    main()
