"""What the parts of the contract stand on: topics, records, members that keep polling."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pipeline.log import (
    GroupReader,
    Log,
    LogUnavailable,
    Outgoing,
    Placed,
    Reader,
    Record,
    TopicPartition,
    TopicSpec,
)

LIMIT = 60.0  # s: what any wait of these tests may take on a busy machine
_names = (f"t{time.time_ns()}-{i}" for i in itertools.count())  # brokers are shared by many tests


def new_name() -> str:
    return next(_names)


class WallClock:
    def ms(self) -> int:
        return time.time_ns() // 1_000_000


async def topic(log: Log, partitions: int = 1, **configs: str) -> str:
    """A new topic; `_` in a config's name stands for a dot."""
    name = new_name()
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await log.admin.create_topics([TopicSpec(name, partitions, 1, settings)])
    return name


async def write(log: Log, *records: Outgoing) -> list[Placed]:
    writer = await log.writer()
    placed = await asyncio.wait_for(asyncio.gather(*map(writer.send, records)), LIMIT)
    await writer.close()
    return placed


async def read(reader: Reader, count: int) -> list[Record]:
    """Exactly `count` records; LogUnavailable on the way is waited out."""
    found: list[Record] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < count:
            try:
                found += await reader.poll(count - len(found), 0.5)
            except LogUnavailable:
                await asyncio.sleep(0.1)
    return found


async def until(condition: Callable[[], bool], *readers: GroupReader) -> None:
    """Keeps members polling until something has happened."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.gather(*(reader.poll(100, 0.05) for reader in readers))


class Books:
    """A listener that writes down what it hears, and gives back the local positions it is told."""

    def __init__(self, local: Mapping[TopicPartition, int] | None = None) -> None:
        self.local = local or {}
        self.owned: set[TopicPartition] = set()
        self.assignments = 0
        self.revocations = 0
        self.before_revoked: Callable[[], Awaitable[None]] | None = None

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self.owned = set(partitions)
        self.assignments += 1
        return {at: offset for at, offset in self.local.items() if at in self.owned}

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self.before_revoked is not None:
            await self.before_revoked()
        self.owned = set()
        self.revocations += 1
