"""The embedded broker beside Apache Kafka on this machine, with the same clients, in one run.

`python -m benchmarks.embedded` (KAFKA_HOME set for the second column; `--records 2000000`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from benchmarks import machine
from tests.pipeline.brokers import ApacheKafka, EmbeddedBroker, free_port
from tests.pipeline.embedded.wire import Wire

VALUE = bytes(500)
Row = tuple[str, float]


async def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
    await admin.close()


async def reader(bootstrap: str, topic: str) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


async def writer(bootstrap: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    return producer


def percentiles(name: str, seconds: list[float]) -> list[Row]:
    cuts = statistics.quantiles(seconds, n=100)
    return [(f"{name} p50, ms", cuts[49] * 1000), (f"{name} p95, ms", cuts[94] * 1000)]


async def hops(bootstrap: str, count: int) -> list[Row]:
    """Produce (acks=all) to consumed, one record at a time."""
    await create(bootstrap, "hop")
    consumer, producer = await reader(bootstrap, "hop"), await writer(bootstrap)
    times = []
    for number in range(count + 50):
        begun = time.perf_counter()
        sent = await producer.send("hop", bytes(200))
        await consumer.getone()
        if number >= 50:  # the first ones load code
            times.append(time.perf_counter() - begun)
        await sent
    await consumer.stop()
    await producer.stop()
    return percentiles("hop", times)


async def chain(bootstrap: str, count: int) -> list[Row]:
    """Four hops: three stages forward a record from topic to topic."""
    topics = [f"chain-{number}" for number in range(4)]
    for topic in topics:
        await create(bootstrap, topic)
    readers = [await reader(bootstrap, topic) for topic in topics]
    producers = [await writer(bootstrap) for _ in topics]

    async def forward(number: int) -> None:
        while True:
            record = await readers[number].getone()
            await producers[number + 1].send(topics[number + 1], record.value)

    stages = [asyncio.create_task(forward(number)) for number in range(3)]
    times = []
    for number in range(count + 20):
        begun = time.perf_counter()
        await producers[0].send(topics[0], bytes(200))
        await readers[3].getone()
        if number >= 20:
            times.append(time.perf_counter() - begun)
    for stage in stages:
        stage.cancel()
    await asyncio.gather(*stages, return_exceptions=True)
    for each in (*readers, *producers):
        await each.stop()
    return percentiles("four hops", times)


def load(bootstrap: str, topic: str, count: int) -> float:
    """Records/s of 500 B into a topic of four partitions, batched by librdkafka."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 1000, "acks": "all"}
    )
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    begun = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % 4, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")
    return count / (time.perf_counter() - begun)


def unload(bootstrap: str, topic: str, count: int) -> float:
    """Records/s out of it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "out", "enable.auto.commit": False}
    )
    consumer.assign([Place(topic, number, 0) for number in range(4)])
    begun, left = time.perf_counter(), count
    while left:
        left -= len(consumer.consume(1000, timeout=5))
    rate = count / (time.perf_counter() - begun)
    consumer.close()
    return rate


async def idle(bootstrap: str, process: psutil.Process, seconds: float) -> list[Row]:
    """CPU of the broker while 15 consumers wait in long polls of 500 ms."""
    await create(bootstrap, "idle")
    consumers = [await reader(bootstrap, "idle") for _ in range(15)]
    await asyncio.sleep(2)
    before = cpu_of(process)
    await asyncio.sleep(seconds)
    used = cpu_of(process) - before
    for consumer in consumers:
        await consumer.stop()
    return [("idle with 15 consumers, % of a core", 100 * used / seconds)]


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


async def measured(
    start: Callable[[], Coroutine[Any, Any, tuple[str, psutil.Process, float]]],
    arguments: argparse.Namespace,
) -> list[Row]:
    """Every row for one broker."""
    bootstrap, process, started = await start()
    rows: list[Row] = [("start to first answer, s", started)]
    rows += await hops(bootstrap, arguments.hops)
    rows += await chain(bootstrap, arguments.hops // 2)
    await create(bootstrap, "flow", 4)
    into = await asyncio.to_thread(load, bootstrap, "flow", arguments.flow)
    out = await asyncio.to_thread(unload, bootstrap, "flow", arguments.flow)
    rows += [("500 B records/s in", into), ("500 B records/s out", out)]
    rows += await idle(bootstrap, process, arguments.idle)
    rows.append(("resident, MiB", resident(process)))
    await create(bootstrap, "many", 4, retention_bytes=str(10 << 20))
    begun = cpu_of(process)
    await asyncio.to_thread(load, bootstrap, "many", arguments.records)
    rows.append(("broker CPU a record in, µs", (cpu_of(process) - begun) / arguments.records * 1e6))
    rows.append((f"resident after {arguments.records:,} records, MiB", resident(process)))
    return rows


def embedded(directory: Path) -> tuple[EmbeddedBroker, Any]:
    broker = EmbeddedBroker(directory)

    async def start() -> tuple[str, psutil.Process, float]:
        begun = time.perf_counter()
        broker.start()
        await answers(broker.bootstrap)
        assert broker.process is not None
        return broker.bootstrap, psutil.Process(broker.process.pid), time.perf_counter() - begun

    return broker, start


def apache(directory: Path, home: str) -> tuple[ApacheKafka, Any]:
    cluster = ApacheKafka(Path(home) / "kafka", directory, free_port(2))

    async def start() -> tuple[str, psutil.Process, float]:
        cluster.start()  # formats the directory, which is not part of a start
        cluster.stop()
        begun = time.perf_counter()
        cluster.start()
        await answers(cluster.bootstrap)
        pid = int((directory / "broker-1.pid").read_text())
        return cluster.bootstrap, psutil.Process(pid), time.perf_counter() - begun

    return cluster, start


async def answers(bootstrap: str) -> None:
    async with await Wire.connect(bootstrap) as wire:
        await wire.call("metadata", 5, topics=(), allow_auto_topic_creation=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hops", type=int, default=1000)
    parser.add_argument("--flow", type=int, default=300_000, help="records in and out")
    parser.add_argument("--records", type=int, default=2_000_000, help="records for memory")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    arguments = parser.parse_args()
    print(f"{machine.describe()} · load {os.getloadavg()[0]:.1f}")
    columns: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        made: list[tuple[str, Any]] = [("embedded", embedded(Path(scratch) / "embedded"))]
        if home := os.environ.get("KAFKA_HOME"):
            (Path(scratch) / "kafka").mkdir()
            made.append(("Apache Kafka", apache(Path(scratch) / "kafka", home)))
        for name, (broker, start) in made:
            try:
                columns[name] = asyncio.run(measured(start, arguments))
            finally:
                broker.stop()
    rows = zip(*columns.values(), strict=True)
    cells = [[row[0][0], *(f"{value:,.2f}" for _, value in row)] for row in rows]
    print(machine.table("The embedded broker and Apache Kafka", ["", *columns], cells))


if __name__ == "__main__":
    main()
