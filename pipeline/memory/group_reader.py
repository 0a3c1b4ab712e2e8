"""A member of a memory cluster's consumer group."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..log import Commit, Listener, LogError, NotOwner, Record, TopicPartition
from .reader import MemoryReader

if TYPE_CHECKING:
    from .connection import MemoryLog
    from .group import Group

LISTENER_LIMIT = 5.0  # s; callbacks keep to 2 themselves, but the whole group waits for them
T = TypeVar("T")


class MemoryGroupReader(MemoryReader):
    def __init__(
        self,
        log: "MemoryLog",
        group: "Group",
        member: str,
        topics: Sequence[str],
        listener: Listener | None,
        static: bool,
    ) -> None:
        super().__init__(log, {})
        self.group = group
        self.member = member
        self.topics = topics
        self.static = static
        self.generation = -1
        self.evicted = False  # silent for too long, or replaced by a twin
        self._listener = listener
        self._assigned: list[TopicPartition] = []
        self._fault: LogError | None = None  # of a callback: raised where somebody can see it

    @property
    def closed(self) -> bool:
        return self._closed

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        records = await super().poll(max_records, timeout)
        if self._fault is not None:
            raise self._fault
        return records

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        if self.log.line.impeded:
            await self.log.line.gate()
        current = self.group.members.get(self.member) is self
        if not current or self.generation != self.group.generation:
            raise NotOwner(f"{self.member} is not in generation {self.group.generation}")
        for at in offsets:
            if at not in self._assigned:
                raise NotOwner(f"{self.member} does not own {at.topic}[{at.partition}]")
        self.group.keep(offsets)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    async def close(self) -> None:
        if self._closed:
            return
        await super().close()
        self.group.leave(self)

    async def reached(self) -> bool:
        """Wait until the member's process hears the group; False: the group has forgotten it."""
        while self.log.line.silent and not self.evicted:
            await self.log.line.changed()
        return not self.evicted and not self._closed

    async def revoke(self) -> None:
        """Give everything back; the listener may still commit."""
        if not await self.reached():
            return
        self.place({})
        if self._listener is not None and self._assigned:
            await self._call(self._listener.on_revoked(sorted(self._assigned)))
        self._assigned = []

    async def assign(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        if not await self.reached():
            return
        self.generation = generation
        self._assigned = list(partitions)
        local: Mapping[TopicPartition, int] = {}
        if self._listener is not None:
            local = await self._call(self._listener.on_assigned(list(partitions))) or {}
        if not self._closed and not self.evicted and self.generation == generation:
            self.place({at: self.group.first_position(at, local) for at in partitions})

    async def _call(self, callback: Awaitable[T]) -> T | None:
        try:
            async with asyncio.timeout(LISTENER_LIMIT):
                return await callback
        except Exception as error:  # noqa: BLE001 - kept, and raised by the next poll
            self._fault = LogError(f"a callback of group {self.group.name} failed: {error!r}")
            self._fault.__cause__ = error
            self.wake()
            return None
