"""One partition's log: append, read, search by time, move its start."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.embedded.batch import LEADER_EPOCH, Header, records, stamped
from pipeline.embedded.configs import TopicConfig
from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.producers import Window, admit, advanced
from pipeline.embedded.store import Store, Transaction

_OFFSET_BITS = 44  # 17 trillion records a partition, half a million partitions in 63 bits
_NO_TIMESTAMP = -1


def keys(id: int) -> tuple[int, int]:
    """The range [first, last] of row ids of partition `id`."""
    return id << _OFFSET_BITS, ((id + 1) << _OFFSET_BITS) - 1


class Tail(NamedTuple):
    """Where the log ends: next offset, bytes so far, highest timestamp (ms) so far."""

    end: int = 0
    position: int = 0
    latest: int = _NO_TIMESTAMP


class Appended(NamedTuple):
    """The outcome of one append. `tail` is None for a repeat, which changed nothing."""

    base_offset: int
    append_time: int | None
    tail: Tail | None
    window: Window | None


@dataclass(slots=True)
class _Draft:
    """The partition as the open transaction sees it."""

    transaction: int
    tail: Tail
    windows: dict[int, Window]


@dataclass(slots=True, eq=False)
class Partition:
    """What is committed of one partition; its batches are in the database alone."""

    id: int
    topic: str
    number: int
    config: TopicConfig
    start: int = 0
    tail: Tail = field(default_factory=Tail)
    windows: dict[int, Window] = field(default_factory=dict)
    waiting: set[asyncio.Event] = field(default_factory=set)
    oldest: tuple[int, int] | None = None  # (start, timestamp of the batch there) as once read
    compacted: int = 0  # below this offset every key is there once
    compacted_position: int = 0
    _draft: _Draft = field(default_factory=lambda: _Draft(0, Tail(), {}))

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.tail.end

    @property
    def keys(self) -> tuple[int, int]:
        """The range [first, last] of this partition's row ids."""
        return keys(self.id)

    def key(self, offset: int) -> int:
        """The lowest row id of a batch that reaches `offset`."""
        return self.id << _OFFSET_BITS | offset

    def offset(self, key: int) -> int:
        """The last offset of the batch in row `key`."""
        return key & ((1 << _OFFSET_BITS) - 1)

    def append(self, transaction: Transaction, batch: bytes, header: Header, now: int) -> Appended:
        """Write a checked batch. Raises `Refused` for a sequence gap or an old epoch."""
        draft = self._draft
        if draft.transaction != transaction.number:
            draft = self._draft = _Draft(transaction.number, self.tail, {})
        producer, window = header.producer_id, None
        idempotent = producer >= 0
        if idempotent:
            window = draft.windows.get(producer) or self.windows.get(producer)
            repeat = admit(window, header.producer_epoch, header.base_sequence, header.records)
            if repeat is not None:
                return Appended(repeat.base_offset, None, None, None)
        append_time = now if self.config.limits.append_time else None
        base = draft.tail.end
        row = stamped(batch, header, base, append_time)
        timestamp = header.max_timestamp if append_time is None else append_time
        last = base + header.last_offset_delta
        tail = Tail(last + 1, draft.tail.position + len(row), max(draft.tail.latest, timestamp))
        transaction.db.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)",
            (self.key(last), base, timestamp, tail.latest, tail.position, row),
        )
        if idempotent:
            epoch, first = header.producer_epoch, header.base_sequence
            window = draft.windows[producer] = advanced(window, epoch, first, header.records, base)
            transaction.db.execute(
                "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?, ?)",
                (self.id, producer, epoch, window.to_json(), now),
            )
        draft.tail = tail
        return Appended(base, append_time, tail, window)

    def publish(self, appended: Appended, producer: int) -> None:
        """After the commit: readers see it, those that wait wake up."""
        if appended.tail is None:
            return
        self.tail = appended.tail
        if appended.window is not None:
            self.windows[producer] = appended.window
        for event in self.waiting:
            event.set()

    def read(self, db: sqlite3.Connection, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; at least one, if there is any."""
        found: list[bytes] = []
        size = 0
        rows = db.execute(
            "SELECT batch FROM batches WHERE id BETWEEN ? AND ? ORDER BY id",
            (self.key(offset), self.key(self.end - 1)),
        )
        for (batch,) in rows:
            size += len(batch)
            if found and size > max_bytes:
                break
            found.append(batch)
            if size >= max_bytes:
                break
        rows.close()
        return found[0] if len(found) == 1 else b"".join(found)

    def check_offset(self, offset: int) -> None:
        """Raises `Refused` unless `offset` is within start..end."""
        if not self.start <= offset <= self.end:
            raise Refused(
                Code.offset_out_of_range, f"offset {offset} is not within {self.start}..{self.end}"
            )

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises `Refused` for an epoch that a client cannot have from here; -1 is none."""
        if epoch > LEADER_EPOCH:
            raise Refused(Code.unknown_leader_epoch, f"leader epoch {epoch} is ahead")

    def offset_at(self, db: sqlite3.Connection, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older than `timestamp` (ms)."""
        low, high = self.start, self.end
        # `latest` rises: halve the offsets until the first batch where it reaches the timestamp
        while low < high:
            middle = (low + high) // 2
            row = db.execute(
                "SELECT id, latest FROM batches WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1",
                (self.key(middle), self.keys[1]),
            ).fetchone()
            if row is None or row[1] >= timestamp:
                high = middle
            else:
                low = self.offset(row[0]) + 1
        row = db.execute(
            "SELECT batch FROM batches WHERE id BETWEEN ? AND ? AND max_timestamp >= ?"
            " ORDER BY id LIMIT 1",
            (self.key(low), self.keys[1], timestamp),
        ).fetchone()
        return None if row is None else self._within(row[0], timestamp)

    def latest_record(self, db: sqlite3.Connection) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the highest timestamp."""
        row = db.execute(
            "SELECT max_timestamp, batch FROM batches WHERE id BETWEEN ? AND ?"
            " ORDER BY max_timestamp DESC, id LIMIT 1",
            (self.key(self.start), self.keys[1]),
        ).fetchone()
        return None if row is None else self._within(row[1], row[0])

    def _within(self, batch: bytes, timestamp: int) -> tuple[int, int] | None:
        found: Any
        for found in records(batch, self.config.limits.max_decompressed_bytes):
            if found.timestamp >= timestamp and found.offset >= self.start:
                return found.offset, found.timestamp
        return None

    async def move_start(self, store: Store, offset: int) -> None:
        """Records below `offset` are gone for readers at once; the upkeep frees their space."""

        def apply(transaction: Transaction) -> None:
            transaction.db.execute(
                "UPDATE partitions SET start = max(start, ?) WHERE id = ?", (offset, self.id)
            )

        def publish(_: None) -> None:
            self.start = max(self.start, offset)

        await store.write(apply, publish)


def loaded(db: sqlite3.Connection, partition: Partition) -> Partition:
    """Fill in tail and producers from the database."""
    first, last = partition.keys
    row = db.execute(
        "SELECT id, position, latest FROM batches WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
        (first, last),
    ).fetchone()
    if row is not None:
        partition.tail = Tail(partition.offset(row[0]) + 1, row[1], row[2])
    # with every batch deleted, the start is where the log ends
    partition.tail = partition.tail._replace(end=max(partition.tail.end, partition.start))
    for producer, epoch, sequences in db.execute(
        "SELECT producer, epoch, sequences FROM producers WHERE partition = ?", (partition.id,)
    ):
        partition.windows[producer] = Window.from_json(epoch, sequences)
    return partition
