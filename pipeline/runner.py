"""Runs a stage over a group's partitions: everything about a record that is not the stage's own.

Poll → decode → observe (in offset order) → the stage, many records at once → outputs acked → done →
commit. One task polls and never works; a task per record works.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from schemas.codec import Unreadable

from . import logs, metrics
from .attempt import InHand, read
from .committer import Committer, Hook
from .in_hand import OnDead, RecordsInHand
from .log import GroupReader, LogUnavailable, NotOwner, Record, TopicPartition, Writer
from .member import Member
from .stage import DeadLetter, Stage
from .topics import LANES
from .watchdog import Watchdog, names_no_record

IDLE = 1.0  # s that an idle poll waits: also how late it notices a drain
POLL_AT_LEAST = 600.0  # s: a group member that never polls is put out of its group
DRAIN_SHARE = 0.8  # of the drain limit: the rest is for the last commit and the farewell
DEFAULT_SPAN = -1  # as the settings say


class Runner:
    """`run` until the member drains. `kind` says what a value is: a record type, a union, `Record`
    itself, or a function of the record that raises Unreadable.

    `observe` sees each record once per assignment, in offset order, before any concurrency; what it
    returns is the context's `seen`. `on_dead` gives the records that end the request of a dead letter.
    """

    def __init__(
        self,
        member: Member,
        stage: Stage,
        *,
        topics: Sequence[str],
        group: str,
        kind: Any = Record,
        concurrency: int = 32,
        name: str | None = None,  # of its dead-letter topic and in metrics; None: the role
        observe: Callable[[Any, Record], Any] | None = None,
        on_dead: OnDead | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        assignor: str = "roundrobin",
        keep: bool = True,  # False: a partition that comes back is read again from its commit
        keep_map: bool = True,  # False: what was done above the commit is done again
        span: int | None = DEFAULT_SPAN,  # offsets in flight per partition; None: no limit
        writer: Writer | None = None,  # None: one of its own
    ) -> None:
        settings = member.settings.runner
        self.member = member
        self.topics = list(topics)
        self.group = group
        self.kind = kind
        self.name = name or member.role
        self.observe = observe
        self.assignor = assignor
        self.committer = Committer(
            member.log,
            group,
            interval=settings.commit_interval,
            span=settings.span if span == DEFAULT_SPAN else span,
            keep=keep,
            keep_map=keep_map,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self.in_hand = RecordsInHand(
            member,
            stage,
            self.committer,
            name=self.name,
            concurrency=concurrency,
            on_dead=on_dead,
        )
        self.polled = 0.0  # loop time of the last poll that returned
        self._writer = writer

    @property
    def reader(self) -> GroupReader:
        """The group's reader, while `run` runs."""
        assert self.committer.reader is not None, "the runner does not run"
        return self.committer.reader

    @property
    def blocked(self) -> bool:
        """As much is in hand as may be: nothing more is read."""
        return self.in_hand.free() <= 0

    def oldest(self, now: float) -> float:
        """Seconds that the oldest record has been at work; held ones do not count."""
        return self.in_hand.oldest(now)

    def release(self, at: TopicPartition, offset: int) -> None:
        """A held record is complete after all. Unknown ones are of an earlier assignment: no matter."""
        self.in_hand.release(at, offset)

    async def run(self) -> None:
        """Until the member drains: then what is in hand is finished and committed.

        Raises what no other try of a record can mend; the process is expected to end then.
        """
        member = self.member
        writer = self._writer or await member.log.writer(self.name)
        static = member.settings.kafka.static_members
        self.polled = asyncio.get_running_loop().time()
        self.committer.reader = await member.log.group(
            self.group,
            self.topics,
            listener=self.committer,
            instance_id=f"{member.id}.{self.name}" if static else None,
            assignor=self.assignor,
            name=self.name,
        )
        self._measure()
        try:
            async with asyncio.TaskGroup() as tasks:
                self.in_hand.open(tasks, writer)
                poll = tasks.create_task(self._poll())
                watchdog = Watchdog(member.log.admin, readers=[self], writers=[writer])
                parts = (self.committer, self.in_hand, watchdog)
                beside = [tasks.create_task(part.run()) for part in parts]
                await member.draining.wait()
                await self._drain(poll)
                for task in beside:
                    task.cancel()
            await self.committer.commit(clean=not self.in_hand.working)
        except BaseException as error:
            await self.committer.commit(clean=names_no_record(error))
            raise
        finally:
            await self.in_hand.close()
            await self.reader.close()
            if self._writer is None:
                await writer.close()

    async def _drain(self, poll: "asyncio.Task[None]") -> None:
        self.in_hand.room.set()
        try:
            async with asyncio.timeout(DRAIN_SHARE * self.member.settings.runner.drain_limit):
                await asyncio.wait([poll])
                await self.in_hand.drain()
        except TimeoutError:
            left = list(self.in_hand.working.values())
            logs.warn("drain_limit", stage=self.name, in_hand=len(left))
            for task in (poll, *left):
                task.cancel()

    def _measure(self) -> None:
        """The lag costs nothing until somebody scrapes it."""
        lane = self.topics[0].rpartition(".")[2]
        gauge = metrics.stage_lag.labels(self.topics[0], lane if lane in LANES else "")
        gauge.set_function(self.committer.behind)
        self.in_hand.measure()

    # the poll task

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.member.draining.is_set():
            if self.blocked and not await self._wait_for_room():
                continue
            try:
                records = await self.reader.poll(max(1, self.in_hand.free()), IDLE)
            except LogUnavailable as error:
                logs.warn("poll", group=self.group, error=error)
                await asyncio.sleep(IDLE)
                records = []
            self.polled = loop.time()
            generation = self.committer.generation
            for record in records:
                # after a wait, a rebalance may have made the rest stale: it is read again
                if not await self._place(record, generation) or self.member.draining.is_set():
                    break
                await self._take(record, generation)

    async def _wait_for_room(self) -> bool:
        """Says whether to poll all the same, because the last poll was too long ago."""
        self.in_hand.room.clear()
        try:
            async with asyncio.timeout_at(self.polled + POLL_AT_LEAST):
                await self.in_hand.room.wait()
        except TimeoutError:
            return True
        return False

    async def _place(self, record: Record, generation: int) -> bool:
        """Whether the record's partition is still ours; then its tracker is known."""
        committer = self.committer
        if record.at not in committer.trackers:
            await self._settle(generation)
        if generation != committer.generation or record.at not in committer.trackers:
            return False
        expected = committer.trackers[record.at].next
        if record.offset > expected + 1:  # one missing is a transaction's marker
            await committer.check_hole(record.at, expected, record.offset)
        return generation == committer.generation

    async def _settle(self, generation: int) -> None:
        while generation == self.committer.generation:
            try:
                await self.committer.settle()
                self.in_hand.forget_stale()
                return
            except NotOwner:
                return  # a rebalance is under way
            except LogUnavailable as error:
                logs.warn("settle", group=self.group, error=error)
                await asyncio.sleep(IDLE)

    async def _take(self, record: Record, generation: int) -> None:
        committer = self.committer
        tracker = committer.trackers[record.at]
        if record.offset < tracker.next:
            return  # redelivered: it is in hand or done
        tries = 0
        if committer.careful:
            await self.in_hand.drain()  # one at a time: a death must have one suspect
            if record.offset < committer.careful.get(record.at, 0):
                tries = await committer.note_try(record.at, record.offset)
            if generation != committer.generation:
                return
        fresh = tracker.begin(record.offset)
        item = self._read(record, InHand(record, tracker, asyncio.get_running_loop().time()), tries)
        if fresh:
            self.in_hand.start(item)
        else:
            committer.touch()

    def _read(self, record: Record, item: InHand, tries: int) -> InHand:
        limit = self.member.settings.runner.tries
        if tries > limit:
            why = f"{limit} processes died with it in hand"
            item.fault, item.tries = DeadLetter("kills_the_process", why), limit
            return item
        try:
            item.message = read(record, self.kind)
            if self.observe is not None:
                item.seen = self.observe(item.message, record)
        except Unreadable as error:
            item.fault, item.tries = DeadLetter("unreadable", str(error)), 1
        return item
