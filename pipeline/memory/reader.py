"""Reading partitions of a memory cluster."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..log import LogUnavailable, Record, TopicPartition

if TYPE_CHECKING:
    from .connection import MemoryLog
    from .partition import Partition


class MemoryReader:
    def __init__(self, log: "MemoryLog", positions: Mapping[TopicPartition, int]) -> None:
        self.log = log
        self._loop = asyncio.get_running_loop()
        self._positions: dict[TopicPartition, int] = {}
        self._partitions: dict[TopicPartition, Partition] = {}
        self._fresh: dict[Partition, None] = {}  # those that may hold something new, in turn
        self._ends: dict[TopicPartition, int] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0  # loop time at which the present wait ends
        self._timer: asyncio.TimerHandle | None = None  # one for many waits: timers cost most
        self._closed = False
        self.place(positions)

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        if max_records < 1:
            raise ValueError(f"a poll for {max_records} records")
        line = self.log.line
        if line.impeded:
            await line.gate()
        records = self._take(max_records)
        if records or timeout <= 0:
            return records
        deadline = self._loop.time() + timeout
        while not records and self._loop.time() < deadline:
            await self._wait(deadline)
            if line.impeded:
                await line.gate()
            records = self._take(max_records)
        return records

    def heard(self, at: TopicPartition) -> int:
        """Everything before it has been given out; 0 where it does not read there."""
        return self._positions.get(at, 0)

    async def position(self, at: TopicPartition) -> int:
        return self._positions[at]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = offset
        self.notice(self._partitions[at])

    def end_seen(self, at: TopicPartition) -> int | None:
        return self._ends.get(at)

    async def close(self) -> None:
        self._closed = True
        self.log.forget(self)
        self.place({})
        self.wake()

    def place(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from now on."""
        for partition in self._partitions.values():
            partition.readers.pop(self, None)
        self._positions = dict(positions)
        self._ends = {}
        self._partitions = {at: self.log.cluster.partition(at) for at in positions}
        self._fresh = dict.fromkeys(self._partitions.values())
        for partition in self._partitions.values():
            partition.readers[self] = None
        self.wake()

    def notice(self, partition: "Partition") -> None:
        """Something is new there."""
        self._fresh[partition] = None
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self, limit: int) -> list[Record]:
        if self._closed:
            raise LogUnavailable("the reader is closed")
        found: list[Record] = []
        for partition in list(self._fresh):
            if not partition.available:
                continue
            at = partition.at
            self._ends[at] = partition.end
            if self._positions[at] != partition.end:
                records = partition.read(self._positions[at], limit - len(found))
                # beyond compacted holes at the end there is nothing to read, and still a position
                self._positions[at] = records[-1].offset + 1 if records else partition.end
                found += records
            del self._fresh[partition]
            if self._positions[at] < partition.end:
                self._fresh[partition] = None  # behind the others, so that none starves
            if len(found) >= limit:
                break
        return found

    async def _wait(self, deadline: float) -> None:
        self._deadline = deadline
        self._waiter = self._loop.create_future()
        if self._timer is not None and self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._ring)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:  # it was set for an earlier wait
            self._timer = self._loop.call_at(self._deadline, self._ring)
        else:
            self.wake()
