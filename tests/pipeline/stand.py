"""A member on a memory log in virtual time: what tests of the runner stand on."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pipeline.log import Outgoing, Record, TopicPartition, TopicSpec
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster, MemoryLog
from pipeline.settings import KafkaSettings, RunnerSettings, Settings
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.topics import Topics

T = TypeVar("T")
IN, OUT, GROUP = "in", "out", "g"
TOPICS = Topics(prefix="hr")


def virtual(main: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    """Run a test's coroutine in virtual time, in the seed's order or asyncio's own."""
    return run_virtual(main(), chance=None if seed is None else random.Random(seed), limit=36_000)


def cluster(partitions: int = 1) -> MemoryCluster:
    made = MemoryCluster(VirtualClock(asyncio.get_running_loop()))
    for name in (IN, OUT):
        made.create(TopicSpec(name, partitions))
    made.create(TopicSpec(TOPICS.dead("test"), 1, 1, {"max.message.bytes": str(2 << 20)}))
    made.create(TopicSpec(TOPICS.status, 1, 1, {"cleanup.policy": "compact"}))
    return made


def member(on: MemoryCluster, name: str = "one", *, static: bool = False, **runner: Any) -> Member:
    chance = random.Random(name)
    settings = Settings(kafka=KafkaSettings(static_members=static), runner=RunnerSettings(**runner))
    made = Member(
        id=name,
        role="test",
        epoch=new_epoch(chance),
        log=on.connect(name),
        clock=on.clock,
        chance=chance,
        settings=settings,
        topics=TOPICS,
    )
    made.missing.clear()
    return made


async def write(on: MemoryCluster, *values: bytes, partition: int = 0, topic: str = IN) -> None:
    log = on.connect("writer")
    writer = await log.writer()
    await asyncio.gather(*(writer.send(Outgoing(topic, v, partition=partition)) for v in values))
    await log.close()


async def read(on: MemoryCluster, topic: str) -> list[Record]:
    """Everything that is in a topic now, by partition and offset."""
    log = on.connect("reader")
    at = [TopicPartition(topic, number) for number in range(on.count(topic))]
    ends = await log.admin.end_offsets(at)
    reader = await log.reader(dict.fromkeys(at, "start"))
    found: list[Record] = []
    for each in at:
        while await reader.position(each) < ends[each]:
            found += await reader.poll(timeout=0.1)
    await log.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def values(on: MemoryCluster, topic: str) -> list[bytes]:
    return [record.value or b"" for record in await read(on, topic)]


async def committed(on: MemoryCluster, partition: int = 0) -> int | None:
    at = TopicPartition(IN, partition)
    commit = (await on.connect("asks").admin.committed(GROUP, [at]))[at]
    return None if commit is None else commit.offset


async def kill(who: Member, task: "asyncio.Task[Any]") -> None:
    """kill -9: from this moment the process does nothing that anybody could see."""
    assert isinstance(who.log, MemoryLog)
    who.log.cut()
    task.cancel()
    await asyncio.wait([task])
