"""Ready records into the queue, no more than can be placed: the backlog stays in Kafka.

A source is one topic (`hr.ready.<lane>`, `hr.waiting.<model>`), read by assignment in the ledger
partitions that are ours. A record is complete when its lease counts; the offsets are committed without
fencing, since going back is harmless: what was leased or has ended is recognised in the books.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline import logs
from pipeline.log import Commit, LogUnavailable, OffsetGone, Reader, Record, TopicPartition
from pipeline.tracker import Tracker

from .books import Books
from .desk import Desk

RETRY = 0.5  # s between tries while no broker answers
POLL = 0.5  # s that an idle poll waits: also how late a new partition may be noticed
BATCH = 64  # records of one poll: a turn of the event loop of some milliseconds


@dataclass(slots=True, eq=False)
class Source:
    """One topic, as far as this orchestrator reads it."""

    desk: Desk
    topic: str
    lane: str  # "" where each record says its own
    take: Callable[["Source", Record], None]
    open: Callable[["Source"], int]  # how many more may come now
    trackers: dict[int, Tracker] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _reader: Reader | None = None
    _of: dict[int, Books] = field(default_factory=dict)  # partitions that the reader reads
    _books: dict[int, Books] = field(default_factory=dict)  # under which each tracker began
    _committed: dict[int, int] = field(default_factory=dict)

    @property
    def in_hand(self) -> int:
        """Records read and not complete."""
        return sum(len(tracker) for tracker in self.trackers.values())

    def drop(self, partition: int) -> None:
        self.trackers.pop(partition, None)
        self._books.pop(partition, None)
        self._committed.pop(partition, None)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self._step()
                except LogUnavailable as error:
                    logs.warn("ready_reader", topic=self.topic, error=error)
                    await asyncio.sleep(RETRY)
                except OffsetGone as error:
                    self._lost(error)
        finally:
            await self._close()

    async def _step(self) -> None:
        self.wake.clear()
        owned = {p: books for p, books in self.desk.books.items() if self.desk.owns(p)}
        if owned != self._of or (owned and self._reader is None):
            await self._reopen(owned)
            return
        room = self.open(self)
        if self._reader is None or room <= 0:
            await self.wake.wait()
            return
        records = await self._reader.poll(min(room, BATCH), POLL)
        for record in records:
            tracker = self.trackers.get(record.partition)
            if (
                tracker is None
                or record.offset < tracker.next
                or not self.desk.owns(record.partition)
            ):
                continue
            tracker.begin(record.offset)
            self.take(self, record)

    async def _reopen(self, owned: dict[int, Books]) -> None:
        """A reader of the partitions that are ours now, each from where it was or was committed.

        One that went and came back since we last looked has new books, and the queue has forgotten what
        was in hand: it is read again from its commit.
        """
        await self._close()
        for partition, books in list(self._books.items()):
            if owned.get(partition) is not books:
                self.drop(partition)
        at = [TopicPartition(self.topic, p) for p in sorted(owned.keys() - self.trackers.keys())]
        admin = self.desk.member.log.admin
        commits = await admin.committed(self.desk.ready_group, at) if at else {}
        starts = await admin.start_offsets(at) if at else {}
        ends = await admin.end_offsets(at) if at else {}
        for each in at:
            commit = commits[each]
            offset = starts[each] if commit is None else commit.offset
            if not starts[each] <= offset <= ends[each]:
                logs.error(
                    "offset_gap", topic=each.topic, partition=each.partition, expected=offset
                )
                offset = starts[each]
            self.trackers[each.partition] = Tracker(offset, keep_map=False)
            self._books[each.partition] = owned[each.partition]
        if owned:
            positions: dict[TopicPartition, int | str] = {
                TopicPartition(self.topic, p): self.trackers[p].next for p in sorted(owned)
            }
            self._reader = await self.desk.member.log.reader(positions, name=self.topic)
        self._of = owned

    def _lost(self, error: OffsetGone) -> None:
        """Retention took records that were never read: an alarm, and on from what is there."""
        logs.error("offset_gap", topic=error.at.topic, partition=error.at.partition, error=error)
        if error.at.partition in self.trackers:
            self.trackers[error.at.partition] = Tracker(error.start, keep_map=False)
        self._of = {}

    async def _close(self) -> None:
        reader, self._reader = self._reader, None
        self._of = {}
        if reader is not None:
            await reader.close()

    def moved(self) -> dict[TopicPartition, Commit]:
        """What may be committed since the last time this was asked."""
        found: dict[TopicPartition, Commit] = {}
        for partition, tracker in self.trackers.items():
            offset = tracker.watermark
            if self._committed.get(partition) != offset and self.desk.owns(partition):
                self._committed[partition] = offset
                found[TopicPartition(self.topic, partition)] = Commit(offset)
        return found

    def uncommitted(self) -> None:
        """The last commit did not go through: everything may have moved."""
        self._committed.clear()
