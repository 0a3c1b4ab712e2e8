"""What a writer sends: entries, one queue a partition, batches, and what takes a batch away."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .log import Outgoing, Placed, TopicPartition

BATCH_BYTES = 131_072  # fewer, larger requests gain nothing beyond it (measured with 32 KB records)
BACKOFF = (0.1, 0.2, 0.5, 1.0)  # s before what failed is tried again
BATCH_RECORDS = 2_000  # a batch is built in the event loop: about 10 ms of it


class Ack(NamedTuple):
    base: int  # offset of the batch's first record
    timestamp: int | None  # append time, ms; None: the records keep their own


class Transport(Protocol):
    async def partitions(self, topic: str) -> int:
        """Raises UnknownTopic, NotAuthorized, LogUnavailable."""

    def append(self, at: TopicPartition, batch: Sequence[Outgoing]) -> "asyncio.Future[Ack]":
        """Fails with a LogError; LogUnavailable means that nobody knows whether it happened."""

    async def close(self) -> None: ...


def size_of(record: Outgoing) -> int:
    """Upper bound of a record's bytes in a batch (Kafka's record format v2)."""
    # fixed fields and lengths; of each header two varint lengths of five bytes at most
    size = 31 + len(record.key or b"") + len(record.value or b"") + 10 * len(record.headers)
    if record.headers:
        names, values = zip(*record.headers, strict=True)
        size += len("".join(names)) + len(b"".join(values))
    return size


@dataclass(slots=True, eq=False)
class Entry:
    record: Outgoing
    future: "asyncio.Future[Placed]"
    size: int
    number: int  # in order of sending
    sent: float  # loop time


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """One partition's records: those under way, and those behind them."""

    at: TopicPartition
    waiting: deque[Entry] = field(default_factory=deque)
    flight: list[Entry] = field(default_factory=list)
    resting: bool = False  # between a failure and the next try
    failures: int = 0
    singly: int = 0  # records to be sent one by one, to find the one that is refused
    ack: "asyncio.Future[Ack] | None" = None  # of the flight
    launched: float = 0.0  # loop time of the flight
    retry: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return not self.flight and not self.resting

    def oldest(self) -> Entry | None:
        if self.flight:
            return self.flight[0]
        return self.waiting[0] if self.waiting else None

    def take(self) -> list[Entry]:
        """The next batch; a record beyond the batch size goes alone."""
        limit = 1 if self.singly else BATCH_RECORDS
        batch, size = [self.waiting.popleft()], 0
        while self.waiting and len(batch) < limit:
            size += batch[-1].size
            if size + self.waiting[0].size > BATCH_BYTES:
                break
            batch.append(self.waiting.popleft())
        return batch
