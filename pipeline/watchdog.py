"""Notices that a process cannot go on, and ends it: the supervisor starts another.

It looks at a stage's own work only, and never takes an outage, a pause of the whole process or long work
elsewhere for a fault of ours: a stop is only called that while the broker answers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from . import logs, metrics
from .committer import Committer
from .log import Admin, LogError, TopicPartition, Writer

EVERY = 5.0  # s between looks
ANSWER = 10.0  # s in which a broker that is there answers


class Stuck(Exception):
    """The process cannot go on; it is to end with a status other than 0."""


class LoopStalled(Stuck):
    """Something keeps the event loop from running, again and again."""


class PositionStuck(Stuck):
    """There are records to read, room for them, and none come."""


class RecordStuck(Stuck):
    """A record has been in the stage's hands for too long."""


class SendStuck(Stuck):
    """The broker answers, and a record sent long ago has no ack."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds."""

    stall: float = 5.0  # a look this late is a stall
    stalls: int = 3  # so many in a row are no pause of the process, which is one, however long
    position: float = 90.0  # longer than a rebalance may take (60)
    record: float = 300.0  # a stage's own work takes milliseconds, a look-up 5 s
    send: float = 90.0  # a client gives up after 20, the broker elects a leader in 10
    confirm: float = 45.0  # twice a client's time-out: what was under way has failed by then


SENDS = TopicPartition("", -1)  # stands for the writers among the positions


@dataclass(slots=True)
class Progress:
    """Since when one thing has stood still while it should move."""

    since: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)

    def still(self, at: TopicPartition, position: int, now: float) -> float:
        """Seconds that the position has been this one."""
        known, since = self.since.get(at, (-1, now))
        if known != position:
            since = now
        self.since[at] = (position, since)
        return now - since


class Reading(Protocol):
    """Who reads a group's partitions: a Runner, a Follow."""

    name: str
    committer: Committer

    @property
    def blocked(self) -> bool:
        """Nothing is read now, on purpose: as much is in hand as may be."""

    def oldest(self, now: float) -> float:
        """Seconds that the oldest record has been at work."""


def names_no_record(error: BaseException) -> bool:
    """Whether a process ends for reasons that no record in hand has given: then the next life need not
    take its records one by one."""
    if not isinstance(error, BaseExceptionGroup):
        return isinstance(error, asyncio.CancelledError)
    return error.split(lambda e: isinstance(e, Stuck) and not isinstance(e, RecordStuck))[1] is None


class Watchdog:
    """`run` in one task group with the work it looks at: what it raises ends the process."""

    def __init__(
        self,
        admin: Admin,
        *,
        readers: Sequence[Reading] = (),
        writers: Sequence[Writer] = (),
        limits: Limits | None = None,
    ) -> None:
        self.admin = admin
        self.readers = list(readers)
        self.writers = list(writers)
        self.limits = limits or Limits()
        self._stalls = 0
        self._progress = Progress()
        self._answering = Progress()  # what was found wrong, and the broker has answered since

    async def run(self) -> None:
        """Until cancelled. Raises a Stuck that says what, where and for how long."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            late = loop.time() - due
            self._loop_ran(late)
            if late < self.limits.stall:  # after a stop of ours nothing has had its chance yet
                await self.look(loop.time())

    def _loop_ran(self, late: float) -> None:
        metrics.loop_lag.set(late)
        self._stalls = self._stalls + 1 if late >= self.limits.stall else 0
        if late >= 1.0:
            logs.warn("loop_late", seconds=round(late, 3))
        if self._stalls >= self.limits.stalls:
            raise LoopStalled(
                f"the event loop was late by {self.limits.stall:g} s and more {self._stalls} times in a row"
            )

    async def look(self, now: float) -> None:
        """One look at everything. Raises Stuck."""
        for one in self.readers:
            self._look_at_record(one, now)
            await self._look_at_positions(one, now)
        await self._look_at_sends(now)

    def _look_at_record(self, one: Reading, now: float) -> None:
        age = one.oldest(now)
        if age > self.limits.record and not self._unacked(now):
            raise RecordStuck(f"stage {one.name} has had a record in hand for {age:.0f} s")

    async def _look_at_positions(self, one: Reading, now: float) -> None:
        reader = one.committer.reader
        if reader is None or one.blocked:
            self._progress.since.clear()
            return
        trackers = one.committer.trackers
        places = {
            at: trackers[at].next if at in trackers else -1 for at in sorted(reader.assignment())
        }
        still = {
            at: seconds
            for at, place in places.items()
            if (seconds := self._progress.still(at, place, now)) > self.limits.position
        }
        if not still:
            return
        try:
            async with asyncio.timeout(ANSWER):
                ends = await self.admin.end_offsets(still)
                # not the tracker's: behind the last record there may be a transaction's marker
                positions = {at: await reader.position(at) for at in still}
        except (LogError, TimeoutError, KeyError):  # away, or revoked meanwhile: no fault of ours
            self._progress.since.clear()
            self._answering.since.clear()
            return
        for at, seconds in still.items():
            if ends[at] <= positions[at]:
                self._progress.since[at] = (places[at], now)  # idle: ask again after the limit only
            elif self._confirmed(at, places[at], now):
                raise PositionStuck(
                    f"{at.topic}[{at.partition}] stands at {positions[at]} of {ends[at]} "
                    f"for {seconds:.0f} s"
                )

    async def _look_at_sends(self, now: float) -> None:
        age = self._unacked(now)
        if age <= self.limits.send:
            self._answering.since.pop(SENDS, None)
            return
        try:
            async with asyncio.timeout(ANSWER):
                await self.admin.describe_topics()
        except (LogError, TimeoutError):
            self._answering.since.clear()
            return
        if self._confirmed(SENDS, 0, now):
            raise SendStuck(f"a record sent {age:.0f} s ago has no ack, and the broker answers")

    def _confirmed(self, what: TopicPartition, place: int, now: float) -> bool:
        """Whether it has stood still for long while the broker answered: after an outage the first
        answer comes before anything could move."""
        return self._answering.still(what, place, now) >= self.limits.confirm

    def _unacked(self, now: float) -> float:
        """Age of the oldest unacked record, s."""
        oldest = [each.oldest for each in self.writers]
        return max((now - sent for sent in oldest if sent is not None), default=0.0)
