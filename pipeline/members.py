"""Who is here: reads `hr.status`, and says who is alive, who is dead and what each should be.

Silence is counted on the reader's own clock, and only while it hears something at the end of the topic:
its own stall, a broker that is away, a reader that is behind start all counts again. So neither a pause
of ours nor an outage ever looks like the death of the others.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.codec import Unreadable, decode
from schemas.status import Status, StatusRecord, Wanted

from . import logs, metrics
from .log import Log, LogUnavailable, OffsetGone, Reader, Record, TopicPartition
from .topics import Topics

WANTED_KEY = "wanted/"
POLL = 1.0  # s: how coarse silence is counted while nobody speaks
REST = 0.5  # s between polls of who acts on no single status: most polls would bring one beat
STALL = 2.0  # s that a poll may be late before it counts as a stall of our own
MEMBER_LIMIT = 4096  # members remembered; beyond it the one heard longest ago is forgotten
PAST_LIMIT = 16  # earlier lives remembered of one member


@dataclass(slots=True)
class Hearing:
    """From when silence counts: pure, in loop time."""

    deaf_after: float  # s without a word from anybody: every member beats, so the broker is away
    at_end: bool = False
    polled: float = 0.0  # when the last poll ended: silence is known up to here, not up to now
    since: float = 0.0
    last: float = 0.0  # when anybody was heard

    def begin(self, now: float) -> None:
        """A reader was opened, or lost: nothing is known."""
        self.at_end = False
        self.polled = self.since = self.last = now

    def poll_ended(self, now: float, heard: bool, at_end: bool) -> None:
        late = now - self.polled > POLL + STALL
        self.polled = now
        if heard or late or not at_end:
            self.last = now
        if late or not self.at_end or now - self.last > self.deaf_after:
            self.since = now
        self.at_end = at_end

    def silence(self, heard: float) -> float:
        """Seconds without a word of one that was last heard then."""
        return max(0.0, self.polled - max(self.since, heard)) if self.at_end else 0.0


@dataclass(slots=True)
class Seen:
    """The latest life of a member, as we heard of it."""

    status: Status
    heard: float  # loop time
    fresh: bool  # heard live: not merely what compaction kept
    past: dict[str, int] = field(default_factory=dict)  # earlier epoch → its last counter


class Members:
    """Reads `hr.status` from its beginning; one reader, no group. `rest`: seconds between its polls
    once it has caught up."""

    def __init__(
        self, log: Log, topics: Topics, *, dead_after: float = 8.0, rest: float = 0.0
    ) -> None:
        self.log = log
        self.at = TopicPartition(topics.status, 0)
        self.dead_after = dead_after
        self.rest = rest
        self.members: dict[str, Seen] = {}
        self.wanted: dict[str, Wanted] = {}
        self.complete = asyncio.Event()  # set once all that was there at the start has been read
        self.hearing = Hearing(dead_after / 2)
        self._listeners: list[Callable[[Seen], None]] = []
        self._watchers: list[Callable[[Wanted], None]] = []

    @property
    def caught_up(self) -> bool:
        return self.hearing.at_end

    def subscribe(self, callback: Callable[[Seen], None]) -> None:
        """Call `callback` at every accepted status."""
        self._listeners.append(callback)

    def watch(self, callback: Callable[[Wanted], None]) -> None:
        """Call `callback` whenever what a member should be was set; `run` when it was taken back."""
        self._watchers.append(callback)

    def silence(self, member_id: str) -> float:
        """Seconds in which we would have heard the member and did not; 0 while we are deaf."""
        seen = self.members.get(member_id)
        return self.hearing.silence(seen.heard if seen else 0.0)

    def dead(self, member_id: str, epoch: str) -> bool:
        """Whether this life is over: it said so, a later life speaks, or it has long been silent."""
        seen = self.members.get(member_id)
        if seen is not None:
            if seen.status.epoch == epoch:
                return seen.status.state == "stopped" or self.silence(member_id) > self.dead_after
            if epoch in seen.past:
                return True
        return self.hearing.silence(0.0) > self.dead_after  # never heard: it may be about to speak

    def live(self, role: str) -> list[Status]:
        """Members of a role that we hear, ordered by id."""
        return [
            seen.status
            for member_id, seen in sorted(self.members.items())
            if seen.fresh
            and seen.status.role == role
            and not self.dead(member_id, seen.status.epoch)
        ]

    async def run(self) -> None:
        """Until cancelled; outages are waited out."""
        while True:
            try:
                reader = await self.log.reader({self.at: "start"}, name="status")
                try:
                    await self._read(reader)
                finally:
                    await reader.close()
            except (LogUnavailable, OffsetGone) as error:
                logs.warn("status_reader", error=error)
                self._begin()
                await asyncio.sleep(POLL)

    def _begin(self) -> None:
        self.hearing.begin(asyncio.get_running_loop().time())

    async def _read(self, reader: Reader) -> None:
        loop = asyncio.get_running_loop()
        first_end = (await self.log.admin.end_offsets([self.at]))[self.at]
        self._begin()
        while True:
            records = await reader.poll(timeout=POLL)
            now = loop.time()
            for record in records:
                self.take(record, now)
            position = await reader.position(self.at)
            at_end = position >= max(first_end, reader.end_seen(self.at) or 0)
            self.hearing.poll_ended(now, bool(records), at_end)
            if at_end:
                self.complete.set()
                if records and self.rest:
                    await asyncio.sleep(self.rest)

    def take(self, record: Record, now: float) -> None:
        """One record of `hr.status`, read at loop time `now`."""
        if record.value is None:
            self._forget((record.key or b"").decode("utf-8", "replace"))
            return
        try:
            message: StatusRecord = decode(record.value, StatusRecord)
        except Unreadable as error:
            metrics.unreadable.labels(record.topic).inc()
            logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
            return
        if isinstance(message, Wanted):
            self.wanted[message.member] = message
            for watcher in self._watchers:
                watcher(message)
        elif (seen := self._accept(message, now)) is not None:
            for listener in self._listeners:
                listener(seen)

    def _forget(self, key: str) -> None:
        if not key.startswith(WANTED_KEY):
            self.members.pop(key, None)
            return
        member_id = key.removeprefix(WANTED_KEY)
        if self.wanted.pop(member_id, None) is not None:
            for watcher in self._watchers:
                watcher(Wanted(member=member_id, state="run", why="taken back"))

    def _accept(self, status: Status, now: float) -> Seen | None:
        fresh = self.complete.is_set()
        seen = self.members.get(status.member)
        if seen is None:
            if len(self.members) >= MEMBER_LIMIT:
                del self.members[min(self.members, key=lambda each: self.members[each].heard)]
            seen = self.members[status.member] = Seen(status, now, fresh)
            return seen
        current = seen.status
        if status.epoch == current.epoch:
            if status.counter <= current.counter:
                return None  # a replaced writer's late batch
        elif not self._succeeds(status, seen):
            return None
        else:
            seen.past.pop(status.epoch, None)
            seen.past[current.epoch] = current.counter
            if len(seen.past) > PAST_LIMIT:
                del seen.past[next(iter(seen.past))]
        seen.status, seen.heard, seen.fresh = status, now, fresh
        return seen

    def _succeeds(self, status: Status, seen: Seen) -> bool:
        """Whether another epoch takes over: a new one does; an earlier one only if it goes on while
        the current one is silent, or a late batch of it would hide the living for ever."""
        last = seen.past.get(status.epoch)
        if last is None:
            return True
        return status.counter > last and self.silence(status.member) > self.dead_after
