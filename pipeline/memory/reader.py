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
        self._partitions: list[Partition] = []
        self._ends: dict[TopicPartition, int] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._turn = 0  # the partition to begin with, so that none starves
        self._closed = False
        self.place(positions)

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        line = self.log.line
        if line.impeded:
            await line.gate()
        records = self._take(max_records)
        if records or timeout <= 0:
            return records
        deadline = self._loop.time() + timeout
        while not records and (left := deadline - self._loop.time()) > 0:
            await self._wait(left)
            if line.impeded:
                await line.gate()
            records = self._take(max_records)
        return records

    async def position(self, at: TopicPartition) -> int:
        return self._positions[at]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = offset
        self.wake()

    def end_seen(self, at: TopicPartition) -> int | None:
        return self._ends.get(at)

    async def close(self) -> None:
        self._closed = True
        self.place({})
        self.wake()

    def place(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from now on."""
        for partition in self._partitions:
            partition.readers.pop(self, None)
        self._positions = dict(positions)
        self._ends = {}
        self._partitions = [self.log.cluster.partition(at) for at in positions]
        for partition in self._partitions:
            partition.readers[self] = None
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self, limit: int) -> list[Record]:
        if self._closed:
            raise LogUnavailable("the reader is closed")
        found: list[Record] = []
        count = len(self._partitions)
        for step in range(count):
            partition = self._partitions[(self._turn + step) % count]
            if not partition.available:
                continue
            offset = self._positions[partition.at]
            self._ends[partition.at] = partition.end
            if offset == partition.end:
                continue
            records = partition.read(offset, limit - len(found))
            # beyond compacted holes at the end there is nothing to read, and still a position
            self._positions[partition.at] = records[-1].offset + 1 if records else partition.end
            found += records
            if len(found) >= limit:
                self._turn = (self._turn + step + 1) % count
                break
        return found

    async def _wait(self, timeout: float) -> None:
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
