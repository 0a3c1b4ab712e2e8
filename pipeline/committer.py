"""Where a group stands in its partitions: assignment, restart, commits. Also the group's listener.

Kept across revoke → assign: a partition that comes back to the same process goes on where it was, but
only if nobody committed beyond our watermark meanwhile; else it begins anew from the commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from . import logs, metrics
from .log import Commit, GroupReader, Log, LogUnavailable, NotOwner, TopicPartition
from .tracker import Tracker

BOOKS_LIMIT = 1.5  # s that a rebalance waits for us: its callback has 2
COMMIT_LIMIT = 10.0  # s: a client that retries for ever is a client that is stuck
CAREFUL = 64  # records of a partition taken alone after a death (two round trips each): about what is in hand

Hook = Callable[[Sequence[TopicPartition]], Awaitable[None]]


class Committer:
    """`settle` before the first record of an assignment; `done` when a record is complete."""

    def __init__(
        self,
        log: Log,
        group: str,
        *,
        interval: float,
        span: int | None,
        keep: bool = True,
        keep_map: bool = True,
        one_by_one: bool = True,  # after a death; False: a fold reads in order in any case
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
    ) -> None:
        self.log = log
        self.group = group
        self.interval = interval
        self.span = span
        self.keep = keep
        self.keep_map = keep_map
        self.one_by_one = one_by_one
        self.generation = 0  # counts assignments: what was polled under an earlier one is stale
        self.trackers: dict[TopicPartition, Tracker] = {}  # of the assignment, once settled
        self.careful: dict[TopicPartition, int] = {}  # taken one by one below this offset
        self.reader: GroupReader | None = None
        self._kept: dict[TopicPartition, Tracker] = {}
        self._commits: dict[TopicPartition, Commit | None] = {}  # as found at the assignment
        self._dirty = asyncio.Event()
        self._hooks = (on_assigned, on_revoked)

    # the listener: books only

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self.generation += 1
        metrics.rebalances.labels(self.group).inc()
        self.trackers.clear()
        self._commits.clear()
        kept, self._kept = self._kept, {}
        positions: dict[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(BOOKS_LIMIT):
                self._commits = await self.log.admin.committed(self.group, partitions)
        except (TimeoutError, LogUnavailable) as error:  # `settle` will ask again
            logs.warn("commits_unknown", group=self.group, error=repr(error))
        for at in partitions:
            tracker = kept.get(at)
            commit = self._commits.get(at)
            known = at in self._commits
            if (
                tracker is not None
                and known
                and (commit is None or commit.offset <= tracker.watermark)
            ):
                self.trackers[at] = tracker
                tracker.dirty = True  # the commit at the revocation said that nothing is in hand
                positions[at] = tracker.next
        if positions:
            self._dirty.set()
        if self._hooks[0] is not None:
            await self._hooks[0](partitions)
        return positions

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.generation += 1
        try:
            async with asyncio.timeout(BOOKS_LIMIT):
                await self.commit(clean=True)
        except TimeoutError:
            logs.warn("revoked_uncommitted", group=self.group)
        for at in partitions:
            self.careful.pop(at, None)
            tracker = self.trackers.pop(at, None)
            if tracker is not None and self.keep:
                self._kept[at] = tracker
        if self._hooks[1] is not None:
            await self._hooks[1](partitions)

    # before the first record

    async def settle(self) -> None:
        """Decide where every assigned partition stands. Raises LogUnavailable, NotOwner.

        Alarms at a gap; after a death the records that may have caused it are marked to be taken one by
        one; and says in the commit that records are in hand from now on.
        """
        assert self.reader is not None
        generation = self.generation
        fresh = sorted(at for at in self.reader.assignment() if at not in self.trackers)
        admin = self.log.admin
        unknown = [at for at in fresh if at not in self._commits]
        if unknown:
            self._commits |= await admin.committed(self.group, unknown)
        starts = await admin.start_offsets(fresh)
        ends = await admin.end_offsets(fresh)
        if generation != self.generation:
            return
        for at in fresh:
            self.trackers[at] = self._begin(at, self._commits[at], starts[at], ends[at])
        await self.reader.commit({at: self.trackers[at].commit() for at in fresh})

    def _begin(self, at: TopicPartition, commit: Commit | None, start: int, end: int) -> Tracker:
        if commit is None:
            return Tracker(start, span=self.span, keep_map=self.keep_map)
        if not start <= commit.offset <= end:
            self.alarm(at, commit.offset, start if commit.offset < start else end)
            return Tracker(start, span=self.span, keep_map=self.keep_map)
        tracker = Tracker.restore(commit, span=self.span, keep_map=self.keep_map)
        died = bool(commit.metadata) and not tracker.notes.clean
        if self.one_by_one and died and commit.offset < end:
            self.careful[at] = min(end, commit.offset + CAREFUL)
            logs.warn(
                "careful_start",
                group=self.group,
                topic=at.topic,
                partition=at.partition,
                offset=commit.offset,
                until=self.careful[at],
            )
        return tracker

    def alarm(self, at: TopicPartition, expected: int, found: int) -> None:
        """Records are gone that this group never read: retention, or a topic made anew."""
        metrics.offset_gaps.labels(at.topic).inc(abs(found - expected))
        logs.error(
            "offset_gap",
            group=self.group,
            topic=at.topic,
            partition=at.partition,
            expected=expected,
            found=found,
        )

    async def check_hole(self, at: TopicPartition, expected: int, found: int) -> None:
        """A jump while reading: compaction and transactions leave holes, retention takes records."""
        try:
            start = (await self.log.admin.start_offsets([at]))[at]
        except LogUnavailable as error:
            logs.warn("hole", topic=at.topic, partition=at.partition, offset=expected, error=error)
            return
        if start > expected:
            self.alarm(at, expected, min(start, found))

    # while it runs

    def done(self, tracker: Tracker, offset: int) -> None:
        tracker.done(offset)
        self._dirty.set()

    def behind(self) -> int:
        """Records behind the ends that were last seen, in the assigned partitions."""
        if self.reader is None:
            return 0
        owned = [at for at in self.reader.assignment() if at in self.trackers]
        ends = {at: self.reader.end_seen(at) or 0 for at in owned}
        return sum(max(0, end - self.trackers[at].next) for at, end in ends.items())

    def touch(self) -> None:
        """Something is to be committed at the next interval."""
        self._dirty.set()

    async def note_try(self, at: TopicPartition, offset: int) -> int:
        """Say durably that this record is begun, alone, and for which time: so one that kills the
        process is found. Returns 0 when the partition is no longer ours."""
        tracker = self.trackers[at]
        tries = tracker.tries(offset) + 1
        tracker.trying = (offset, tries)
        tracker.dirty = True
        while not await self.commit():
            await asyncio.sleep(self.interval)
            if self.trackers.get(at) is not tracker:
                return 0
        return tries

    def end_careful(self) -> None:
        """With nothing in hand: partitions whose suspects have all been read are taken normally."""
        for at, until in list(self.careful.items()):
            tracker = self.trackers.get(at)
            if tracker is not None and tracker.next >= until:
                tracker.trying = None
                tracker.dirty = True
                self._dirty.set()
                del self.careful[at]

    async def run(self) -> None:
        """Commit what moved, every interval; nothing moves, nothing wakes."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await asyncio.sleep(self.interval)
            await self.commit()

    async def commit(self, *, clean: bool = False) -> bool:
        """Commit every partition that moved (`clean`: all, handed over in order). Says if it held."""
        moved = {at: each for at, each in self.trackers.items() if clean or each.dirty}
        if not moved or self.reader is None:
            return True
        commits = {at: tracker.commit(clean=clean) for at, tracker in moved.items()}
        for tracker in moved.values():
            tracker.dirty = False
        try:
            async with asyncio.timeout(COMMIT_LIMIT):
                await self.reader.commit(commits)
        except (NotOwner, LogUnavailable, TimeoutError) as error:
            metrics.commit_failures.labels(self.group).inc()
            logs.warn("commit_failed", group=self.group, error=repr(error))
            for tracker in moved.values():
                tracker.dirty = True
            if not isinstance(error, NotOwner):  # else the next assignment says what is ours
                self._dirty.set()
            return False
        return True
