"""A compacted topic as a dict that keeps itself current: `hr.models`, and whatever else is a table."""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from . import metrics
from .log import Log, LogUnavailable, OffsetGone, Reader, Record, TopicPartition

logger = logging.getLogger(__name__)
T = TypeVar("T")
POLL = 2.0  # s that a poll may wait: tables are quiet
RETRY = 0.5  # s between tries while no broker answers


class Table(Generic[T]):
    """The last readable value of every key of a one-partition topic.

    `caught_up` once everything is read that was there when `run` began; `items` is never emptied by a
    broker that went away. Undecodable values are counted and skipped: a table is no obligation.
    """

    def __init__(self, log: Log, topic: str, decode: Callable[[bytes], T]) -> None:
        self.items: dict[str, T] = {}
        self.unreadable = 0
        self._log = log
        self._at = TopicPartition(topic, 0)
        self._decode = decode
        self._caught_up = asyncio.Event()

    @property
    def caught_up(self) -> bool:
        return self._caught_up.is_set()

    async def until_caught_up(self) -> None:
        await self._caught_up.wait()

    async def run(self) -> None:
        """Reads for ever; cancel it to stop."""
        while True:
            try:
                await self._follow()
            except LogUnavailable as error:
                logger.warning("table %s: %s; trying again", self._at.topic, error)
                await asyncio.sleep(RETRY)
            except OffsetGone as error:
                # compaction may remove what we were about to read; the table is whole from its start
                logger.warning("table %s: %s; reading it again", self._at.topic, error)

    async def _follow(self) -> None:
        end = (await self._log.admin.end_offsets([self._at]))[self._at]
        reader = await self._log.reader({self._at: "start"}, name=f"table-{self._at.topic}")
        try:
            await self._read(reader, end)
        finally:
            await reader.close()

    async def _read(self, reader: Reader, end: int) -> None:
        while True:
            # by position, not by an empty poll: compacted offsets have no record
            if not self.caught_up and await reader.position(self._at) >= end:
                self._caught_up.set()
            for record in await reader.poll(timeout=POLL):
                self.apply(record)

    def apply(self, record: Record) -> None:
        if record.key is None:
            return
        key = record.key.decode("utf-8", "replace")
        if record.value is None:
            self.items.pop(key, None)
            return
        try:
            self.items[key] = self._decode(record.value)
        except ValueError as error:  # codec.Unreadable is one
            self.unreadable += 1
            metrics.unreadable.labels(record.topic).inc()
            logger.warning(
                "table %s: offset %d of key %r is unreadable: %s",
                record.topic,
                record.offset,
                key,
                error,
            )
