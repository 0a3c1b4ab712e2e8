"""The group over `hr.ledger`: which partitions are ours, and their folds kept current."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from pipeline import logs, metrics
from pipeline.dead_letter import dead_letter
from pipeline.follow import Follow
from pipeline.history import reach
from pipeline.log import Record, TopicPartition
from pipeline.lookup import ScanBudget
from pipeline.stage import DeadLetter
from pipeline.tracker import Tracker

from .books import Books, Entry
from .desk import Desk


class Follower(Protocol):
    """Who acts on what the ledger says. All synchronous."""

    def entries(self, entries: Sequence[Entry]) -> None:
        """What one poll brought, in order."""

    def owned_changed(self) -> None:
        """Partitions came (now active) or went."""


class Ledger(Follow[Books]):
    def __init__(self, desk: Desk, follower: Follower) -> None:
        super().__init__(
            desk.member,
            desk.member.topics.ledger,
            desk.group,
            begin=self._books,
            take=self._read,
            drop=lambda books: desk.drop(books.partition),
            changed=follower.owned_changed,
        )
        self.desk = desk
        self.follower = follower
        desk.books = self.parts

    async def reach(self, books: Books, since_ms: int) -> None:
        """Know of everything that was accepted at `since_ms` or later. Raises ScanBudget, LogError."""
        at = TopicPartition(self.topic, books.partition)
        log = self.member.log
        await reach(log, at, books.history, before=books.began, since_ms=since_ms)

    async def _books(self, at: TopicPartition, tracker: Tracker) -> Books:
        belongs = lambda request_id: self.desk.partition(request_id) == at.partition  # noqa: E731
        books = Books(at.partition, tracker, partial(self.committer.done, tracker), belongs)
        start = (await self.member.log.admin.start_offsets([at]))[at]
        if books.began <= start:
            books.history.floor = 0  # nothing lies before, and retention is beyond any deadline
            return books
        try:
            await self.reach(books, self.member.clock.ms())
        except ScanBudget as error:
            logs.warn("history_unread", partition=at.partition, error=error)
        return books

    def _read(self, records: Sequence[Record]) -> None:
        entries = []
        for record in records:
            entry = self.parts[record.partition].read(record)
            if entry.error:
                self._bury(entry)
            elif not entry.counts:
                metrics.void_records.labels(entry.kind[:16]).inc()
            entries.append(entry)
        self.follower.entries(entries)

    def _bury(self, entry: Entry) -> None:
        why = DeadLetter("unreadable", entry.error)
        topic = self.member.topics.dead("orchestration")
        metrics.dead_letters.labels("orchestration", "unreadable").inc()
        self.desk.bury(dead_letter(topic, entry.record, why, group=self.desk.group, tries=1))
