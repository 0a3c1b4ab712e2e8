"""The load of the kill and soak tests: producers, a committer, topics that shrink."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.pipeline.embedded.wire import Wire, batch

PARTITIONS = 8
SECOND = timedelta(seconds=1)
GONE = (ConnectionError, OSError, TimeoutError)


@dataclass
class Written:
    """What the broker acknowledged."""

    log: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (partition, offset) → value
    newest: dict[bytes, int] = field(default_factory=dict)  # key of the compacted topic → value
    churned: int = 0  # end of the topic with retention
    committed: int = -1


class Writer(abc.ABC):
    """Sends numbered records and repeats what was not acknowledged, as a producer does."""

    def __init__(self, name: str, bootstrap: str, chance: random.Random) -> None:
        self.name, self.bootstrap, self.chance = name, bootstrap, chance

    async def run(self, written: Written) -> None:
        """Write until cancelled, over every death of the broker."""
        while True:
            try:
                async with await Wire.connect(self.bootstrap) as wire:
                    while True:
                        await self.step(wire, written)
            except GONE:
                await asyncio.sleep(0.01)

    @abc.abstractmethod
    async def step(self, wire: Wire, written: Written) -> None:
        """Send once, and note what was acknowledged."""


class Producer(Writer):
    """A plain or idempotent producer on all partitions."""

    def __init__(self, name: str, bootstrap: str, chance: random.Random, idempotent: bool) -> None:
        super().__init__(name, bootstrap, chance)
        self.idempotent = idempotent
        self.id = -1
        self.number = 0
        self.sequences = [0] * PARTITIONS
        self.unacked: tuple[int, list[bytes], bytes] | None = None

    async def step(self, wire: Wire, written: Written) -> None:
        if self.idempotent and self.id < 0:
            answer = await wire.call(
                "init_producer_id", 1, transactional_id=None, transaction_timeout=SECOND
            )
            self.id = answer.producer_id
        if self.unacked is None:
            self.unacked = self._next()
        partition, values, records = self.unacked
        base = await produce(wire, "log", partition, records)
        for step, value in enumerate(values):
            written.log[partition, base + step] = value
        self.unacked = None

    def _next(self) -> tuple[int, list[bytes], bytes]:
        partition = self.chance.randrange(PARTITIONS)
        count = self.chance.randint(1, 20)
        values = [b"%s %d" % (self.name.encode(), self.number + step) for step in range(count)]
        self.number += count
        producer = (-1, -1, -1)
        if self.idempotent:
            producer = (self.id, 0, self.sequences[partition])
            self.sequences[partition] += count
        records = batch(*((None, value) for value in values), timestamp=now(), producer=producer)
        return partition, values, records


class Churner(Writer):
    """Fills a topic with a small retention and one that is compacted."""

    number = 0

    async def step(self, wire: Wire, written: Written) -> None:
        base = await produce(wire, "churn", 0, batch((None, bytes(20_000)), timestamp=now()))
        written.churned = base + 1
        self.number += 1
        keys = [b"%d" % key for key in self.chance.sample(range(20), 2)]
        value = b"%d" % self.number + b" " * 1000
        # two keys, so that compaction has batches to rewrite and not only to delete
        await produce(wire, "table", 0, batch(*((key, value) for key in keys), timestamp=now()))
        written.newest |= dict.fromkeys(keys, self.number)


class Committer(Writer):
    """Commits a rising offset."""

    async def step(self, wire: Wire, written: Written) -> None:
        offset = written.committed + 1
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "x" * 99}
        answer = await wire.call(
            "offset_commit",
            7,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "log", "partitions": [part]}],
        )
        if answer.topics[0].partitions[0].error_code == 0:
            written.committed = offset


def now() -> int:
    return int(time.time() * 1000)


async def produce(wire: Wire, topic: str, partition: int, records: bytes) -> int:
    """The base offset the broker gave. A storage error counts as a lost connection."""
    answer = await wire.call(
        "produce",
        7,
        transactional_id=None,
        acks=-1,
        timeout=SECOND,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )
    part = answer.responses[0].partition_responses[0]
    if part.error_code != 0:
        raise ConnectionError(part.error_code.name)
    return int(part.base_offset)


async def create(wire: Wire, log: dict[str, str] | None = None) -> None:
    """The three topics of the load; `log` are configs of the first."""
    topics = {
        "log": (PARTITIONS, log or {}),
        "churn": (1, {"retention.bytes": "400000"}),
        "table": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"}),
    }
    for name, (count, configs) in topics.items():
        settings = [{"name": key, "value": value} for key, value in configs.items()]
        topic = {
            "name": name,
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": (),
            "configs": settings,
        }
        answer = await wire.call(
            "create_topics", 4, topics=[topic], timeout=SECOND, validate_only=False
        )
        assert answer.topics[0].error_code == 0


@contextlib.asynccontextmanager
async def writing(
    bootstrap: str, chance: random.Random, written: Written, log: dict[str, str] | None = None
) -> AsyncIterator[Callable[[], None]]:
    """Three producers, a churner and a committer at work; call what it yields to hear of a failure.

    `log` are configs of the topic that the producers write.
    """
    async with await Wire.connect(bootstrap) as wire:
        await create(wire, log)
    writers: list[Writer] = [
        Producer("once", bootstrap, chance, idempotent=True),
        Producer("plain-1", bootstrap, chance, idempotent=False),
        Producer("plain-2", bootstrap, chance, idempotent=False),
        Churner("churn", bootstrap, chance),
        Committer("commit", bootstrap, chance),
    ]
    tasks = [asyncio.create_task(writer.run(written)) for writer in writers]

    def check() -> None:
        for task in tasks:
            if task.done():
                task.result()

    try:
        yield check
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
