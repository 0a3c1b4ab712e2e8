"""Reads a group's partitions in order, in the task that polls: for folds, which a `Runner` with its many
records at once would tear apart. Offsets, assignments and commits are the `Committer`'s.

Each partition has a part of the caller's making. It is *active* once it has been read to the end that
was captured after the assignment: before that, nothing may follow from it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from . import logs
from .committer import Committer
from .log import GroupReader, LogUnavailable, NotOwner, Record, TopicPartition
from .member import Member
from .tracker import Tracker
from .watchdog import Watchdog

SOON = 0.05  # s until a rebalance under way is looked at again
RETRY = 0.5  # s between tries while no broker answers


class Part(Protocol):
    """What a caller keeps of one partition."""

    tracker: Tracker
    target: int | None  # end captured after the assignment; None: not known yet
    active: bool


P = TypeVar("P", bound=Part)


class Follow(Generic[P]):
    """One topic of a group. `parts` are those that are ours, by partition."""

    def __init__(
        self,
        member: Member,
        topic: str,
        group: str,
        *,
        begin: Callable[[TopicPartition, Tracker], Awaitable[P]],
        take: Callable[[Sequence[Record]], None],
        drop: Callable[[P], None] = lambda part: None,
        changed: Callable[[], None] = lambda: None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`begin` makes a part before its first record is read; it may raise LogUnavailable.
        `take` gets what a poll brought of parts that are ours, `drop` a part that went to another
        member, `changed` is told when parts became active or went: all synchronous. `room` is awaited
        before each poll: backpressure, of a writer for instance."""
        self.member = member
        self.topic = topic
        self.group = self.name = group
        self.blocked = False  # waits for room on purpose
        self.parts: dict[int, P] = {}
        self._room = room
        self._begin, self._take, self._drop, self._changed = begin, take, drop, changed
        self.committer = Committer(
            member.log,
            group,
            interval=member.settings.runner.commit_interval,
            span=None,  # a fold begins at its oldest open record, however far back
            keep_map=False,
            one_by_one=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
        )
        self._generation = -1  # the one that was settled
        self._suspended: dict[int, P] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[bool]]] = []

    def done(self, part: P, offset: int) -> None:
        """A record is complete."""
        self.committer.done(part.tracker, offset)

    async def reached(self, partition: int, offset: int) -> bool:
        """Wait until a partition has been read to `offset`; False: it is ours no more."""
        part = self.parts.get(partition)
        if part is None or part.tracker.next >= offset:
            return part is not None
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((partition, offset, future))
        return await future

    async def run(self) -> None:
        """Until cancelled; outages are waited out."""
        static = self.member.settings.kafka.static_members
        reader = await self.member.log.group(
            self.group,
            [self.topic],
            listener=self.committer,
            instance_id=f"{self.member.id}.{self.group}" if static else None,
            name=self.group,
        )
        self.committer.reader = reader
        watchdog = Watchdog(self.member.log.admin, readers=[self])
        try:
            async with asyncio.TaskGroup() as tasks:
                for beside in (self.committer, watchdog):
                    tasks.create_task(beside.run())
                await self._go_on(reader)
        finally:
            await self.committer.commit(clean=True)
            await reader.close()

    async def _go_on(self, reader: GroupReader) -> None:
        while True:
            try:
                await self._step(reader)
            except NotOwner:
                await asyncio.sleep(SOON)  # a rebalance while it was settled
            except LogUnavailable as error:
                logs.warn("follow", topic=self.topic, group=self.group, error=error)
                await asyncio.sleep(RETRY)

    def oldest(self, now: float) -> float:
        """Nothing is ever at work here: a fold takes what it reads at once."""
        return 0.0

    # the life of an assignment

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            part = self.parts.pop(at.partition, None)
            if part is not None:
                part.active = False
                self._suspended[at.partition] = part

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            part = self._suspended.get(at.partition)
            if part is not None and self.committer.trackers.get(at) is part.tracker:
                del self._suspended[at.partition]
                part.target = None
                self.parts[at.partition] = part  # it came back, and nobody was in between
        for part in self._suspended.values():
            self._drop(part)
        self._suspended.clear()
        self._tell()
        self._changed()

    async def _settle(self) -> None:
        """Where every partition of a new assignment begins, and how far it has to be read."""
        generation = self.committer.generation
        await self.committer.settle()
        for at, tracker in list(self.committer.trackers.items()):
            if at.partition not in self.parts:
                part = await self._begin(at, tracker)
                if generation != self.committer.generation:
                    return
                self.parts[at.partition] = part
        places = [
            TopicPartition(self.topic, partition)
            for partition, part in self.parts.items()
            if part.target is None
        ]
        ends = await self.member.log.admin.end_offsets(places)
        if generation == self.committer.generation:
            for at, end in ends.items():
                self.parts[at.partition].target = end
            self._generation = generation
            self._activate()  # one without a record that is new waits for none

    async def _step(self, reader: GroupReader) -> None:
        if self._generation != self.committer.generation and reader.assignment():
            await self._settle()
        if self._room is not None:
            self.blocked = True
            await self._room()
            self.blocked = False
        records = await reader.poll()
        unsettled = [record for record in records if record.partition not in self.parts]
        if unsettled:
            _put_back(reader, unsettled)
        fresh = []
        for record in records:
            part = self.parts.get(record.partition)
            if part is not None and part.tracker.begin(record.offset):
                fresh.append(record)
        if fresh:
            self._take(fresh)
            self._tell()
        self._activate()

    def _activate(self) -> None:
        activated = False
        for part in self.parts.values():
            if not part.active and part.target is not None and part.tracker.next >= part.target:
                part.active = activated = True
        if activated:
            self._changed()

    def _tell(self) -> None:
        """Those that wait for a position."""
        left = []
        for partition, offset, future in self._waiters:
            part = self.parts.get(partition)
            if future.done():
                continue
            if part is None or part.tracker.next >= offset:
                future.set_result(part is not None)
            else:
                left.append((partition, offset, future))
        self._waiters = left


def _put_back(reader: GroupReader, records: Sequence[Record]) -> None:
    """Read them again once their partitions are settled."""
    firsts: dict[TopicPartition, int] = {}
    for record in records:
        firsts.setdefault(record.at, record.offset)
    for at, offset in firsts.items():
        if at in reader.assignment():
            reader.seek(at, offset)
