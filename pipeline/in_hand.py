"""The records that a stage has in hand: at work, parked for another try, or held.

A record leaves it done, with its outputs acked, or as a dead letter whose request has been ended.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence

from . import logs, metrics
from .attempt import InHand, acked, attempt, where
from .committer import Committer
from .dead_letter import REQUEST_LIMIT, dead_letter, reasons_only
from .log import Outgoing, Record, RecordTooLarge, TopicPartition, Writer
from .member import Member
from .park import Park
from .stage import DeadLetter, Hold, Retry, Stage, Verdict
from .tracker import Tracker

PARKED = 256  # records that wait for another try; beyond it nothing new is read
REASON_LABEL = 40  # characters of a reason in a metric

OnDead = Callable[[Record, DeadLetter], Sequence[Outgoing]]


class RecordsInHand:
    """Bounded by `concurrency` at work and PARKED parked; the poll task asks `free` before it reads."""

    def __init__(
        self,
        member: Member,
        stage: Stage,
        committer: Committer,
        *,
        name: str,
        concurrency: int,
        on_dead: OnDead | None,
    ) -> None:
        if inspect.iscoroutinefunction(stage):
            raise TypeError(f"{stage.__name__} has no `yield`: a stage is an async generator")
        self.member = member
        self.stage = stage
        self.committer = committer
        self.name = name
        self.concurrency = concurrency
        self.on_dead = on_dead
        self.finished = asyncio.get_running_loop().time()  # when a record last left the stage
        self.room = asyncio.Event()  # set whenever something left
        self.working: dict[InHand, asyncio.Task[None]] = {}
        self._held: set[tuple[Tracker, int]] = set()
        self._released: set[tuple[Tracker, int]] = set()  # before the stage had said Hold
        self._park: Park[InHand] = Park(member.settings.runner.retry_delay, PARKED)
        self._parked = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._writer: Writer | None = None
        self._dead_writer: Writer | None = None

    def open(self, tasks: asyncio.TaskGroup, writer: Writer) -> None:
        """Work in `tasks`: a fault that no record explains ends them all."""
        self._tasks = tasks
        self._writer = writer

    async def close(self) -> None:
        if self._dead_writer is not None:
            await self._dead_writer.close()

    def free(self) -> int:
        """How many more records may be at work."""
        committer = self.committer
        if self._park.full or any(each.full for each in committer.trackers.values()):
            return 0
        if committer.careful and not self.working:
            committer.end_careful()
        return (1 if committer.careful else self.concurrency) - len(self.working)

    def oldest(self, now: float) -> float:
        """Seconds that the oldest record has been at work."""
        return max((now - item.began for item in self.working), default=0.0)

    def measure(self) -> None:
        """Gauges that cost nothing until somebody scrapes them."""
        loop = asyncio.get_running_loop()
        metrics.records_in_hand.labels(self.name).set_function(lambda: len(self.working))
        metrics.oldest_record.labels(self.name).set_function(lambda: self.oldest(loop.time()))

    def start(self, item: InHand) -> None:
        assert self._tasks is not None, "not open"
        self.working[item] = self._tasks.create_task(self._work(item))

    def release(self, at: TopicPartition, offset: int) -> None:
        tracker = self.committer.trackers.get(at)
        if tracker is None:
            return
        key = (tracker, offset)
        if key in self._held:
            self._held.discard(key)
            self.committer.done(*key)
            self.room.set()
        elif any(each.tracker is tracker and each.record.offset == offset for each in self.working):
            self._released.add(key)

    def forget_stale(self) -> None:
        """Drop what was held under assignments that are over."""
        current = set(self.committer.trackers.values())
        self._held = {key for key in self._held if key[0] in current}
        self._released = {key for key in self._released if key[0] in current}

    async def run(self) -> None:
        """Start parked records when they are due; nothing is parked, nothing wakes."""
        loop = asyncio.get_running_loop()
        while not self.member.draining.is_set():
            due = self._park.next_due()
            if due is None:
                self._parked.clear()
                await self._parked.wait()
            elif due > loop.time():
                await asyncio.sleep(due - loop.time())
            elif len(self.working) >= self.concurrency:
                self.room.clear()
                await self.room.wait()
            elif (item := self._park.take_due(loop.time())) is not None:
                metrics.records_parked.labels(self.name).set(len(self._park))
                item.began = loop.time()
                self.start(item)
                self.room.set()  # the park has room again

    async def drain(self) -> None:
        """Until nothing is at work; what is parked or held is read again by the next owner."""
        while self.working:
            await asyncio.wait(self.working.values())

    async def _work(self, item: InHand) -> None:
        assert self._writer is not None
        loop = asyncio.get_running_loop()
        began = loop.time()
        verdict: Verdict | None = item.fault
        if verdict is None:
            names = {"name": self.name, "group": self.committer.group}
            verdict = await attempt(self.stage, item, self.member, self._writer, **names)
        if isinstance(verdict, Retry) and item.tries >= self.member.settings.runner.tries:
            verdict = DeadLetter(verdict.reason, f"gave up after {item.tries} tries")
        if isinstance(verdict, DeadLetter):
            await self._bury(item, verdict)
        self._conclude(item, verdict, loop.time())
        metrics.stage_seconds.labels(self.name).observe(loop.time() - began)

    def _conclude(self, item: InHand, verdict: Verdict | None, now: float) -> None:
        del self.working[item]
        key = (item.tracker, item.record.offset)
        if isinstance(verdict, Retry):
            self._park.put(item, now)
            self._parked.set()
            metrics.records_parked.labels(self.name).set(len(self._park))
        elif isinstance(verdict, Hold) and key not in self._released:
            self._held.add(key)
        else:
            self._released.discard(key)
            self.committer.done(*key)
        name = "done" if verdict is None else type(verdict).__name__.lower()
        metrics.stage_records.labels(self.name, name).inc()
        self.finished = now
        self.room.set()

    async def _bury(self, item: InHand, why: DeadLetter) -> None:
        """To the dead-letter topic; then end the request that the record was an obligation for."""
        assert self._writer is not None
        record = item.record
        if self._dead_writer is None:
            self._dead_writer = await self.member.log.writer(
                f"{self.name}.dead", max_request_size=REQUEST_LIMIT
            )
        reason = metrics.capped("reason", why.reason[:REASON_LABEL])
        metrics.dead_letters.labels(self.name, reason).inc()
        logs.warn("dead_letter", stage=self.name, **where(record), reason=why.reason)
        letter = dead_letter(
            self.member.topics.dead(self.name),
            record,
            why,
            group=self.committer.group,
            tries=item.tries,
            exception=item.exception,
        )
        try:
            await acked([self._dead_writer.send(letter)])
        except RecordTooLarge as error:
            logs.error("dead_letter_too_large", stage=self.name, **where(record), error=error)
            await acked([self._dead_writer.send(reasons_only(letter))])
        if self.on_dead is not None:
            await acked([self._writer.send(each) for each in self.on_dead(record, why)])
