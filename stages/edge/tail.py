"""Reads the ends of partitions for all open feeds: one reader for the edge's own slots and the results,
and one for every foreign slot that somebody here is reading at the moment."""

import asyncio
import zlib
from collections.abc import Callable

from pipeline import logs, metrics
from pipeline.log import LogUnavailable, OffsetGone, Reader, TopicPartition
from pipeline.member import Member
from schemas.ids import partition_of

from .feeds import Feeds

OWN_SHARE = 4  # an edge reads a quarter of the slots: sharing one costs only filtering
IDLE = 30.0  # s that a foreign slot is read on after its last feed left
POLL = 1.0  # s that a poll may wait for the first record
RETRY = 0.2  # s between tries while no broker answers


def own_slots(member_id: str, partitions: int) -> list[int]:
    """The slots into which this edge mints its ids, spread over the topic by its name."""
    count = max(1, partitions // OWN_SHARE)
    first = zlib.crc32(member_id.encode())
    return sorted((first + i) % partitions for i in range(count))


class Tail:
    """One reader at the end of some partitions. `open` returns once their positions are known, so that
    nothing written afterwards is missed."""

    def __init__(self, member: Member, feeds: Feeds, at: list[TopicPartition]) -> None:
        self._member = member
        self._feeds = feeds
        self._at = at
        self._reader: Reader | None = None
        self.away: str | None = None  # why nothing can be read

    async def open(self) -> None:
        ends: dict[TopicPartition, int | str] = dict.fromkeys(self._at, "end")
        self._reader = await self._member.log.reader(ends, name="tail")

    async def run(self) -> None:
        """After `open`; cancel it to stop."""
        if self._reader is None:  # it was to go before it was there
            return
        results = self._member.topics.results
        push, push_result = self._feeds.push, self._feeds.push_result
        try:
            while True:
                try:
                    records = await self._reader.poll(timeout=POLL)
                except OffsetGone as gone:
                    self._skip(self._reader, gone)
                    continue
                except LogUnavailable as error:
                    self.away = str(error)
                    await asyncio.sleep(RETRY)
                    continue
                self.away = None
                for record in records:
                    if record.topic == results:
                        push_result(record)
                    else:
                        push(record)
        finally:
            await self._reader.close()

    def _skip(self, reader: Reader, gone: OffsetGone) -> None:
        """We were away for longer than the log keeps records: whoever misses some looks for himself."""
        logs.warn("tail_gap", error=gone)
        metrics.offset_gaps.labels(gone.at.topic).inc()
        reader.seek(gone.at, gone.start)
        for feed in self._feeds.all():
            feed.lag()


class Tails:
    """Own slots for ever, foreign ones while they are needed."""

    def __init__(self, member: Member, feeds: Feeds) -> None:
        topics = member.topics
        self.member = member
        self.feeds = feeds
        self.slots = own_slots(member.id, topics.tokens_partitions)
        self.own = frozenset(self.slots)
        slots = [TopicPartition(topics.tokens, slot) for slot in self.slots]
        results = [TopicPartition(topics.results, p) for p in range(topics.ledger_partitions)]
        self.shared = Tail(member, feeds, slots + results)
        self._foreign: dict[int, _Foreign] = {}

    def slot(self, request_id: str) -> TopicPartition:
        topics = self.member.topics
        return TopicPartition(topics.tokens, partition_of(request_id, topics.tokens_partitions))

    async def follow(self, request_id: str) -> Callable[[], None]:
        """Have the request's slot read from now on, until the returned function is called.

        Raises LogUnavailable.
        """
        slot = self.slot(request_id).partition
        if slot in self.own:
            return _nothing
        foreign = self._foreign.get(slot)
        if foreign is None:
            tail = Tail(self.member, self.feeds, [self.slot(request_id)])
            foreign = self._foreign[slot] = _Foreign(tail, lambda: self._close(slot))
        await foreign.hold()
        return foreign.release

    def _close(self, slot: int) -> None:
        foreign = self._foreign.pop(slot, None)
        if foreign is not None:
            foreign.stop()

    async def close(self) -> None:
        for slot in list(self._foreign):
            self._close(slot)


class _Foreign:
    """A tail with a count of who needs it."""

    def __init__(self, tail: Tail, idle: Callable[[], None]) -> None:
        self._idle = idle
        self._holds = 0
        self._timer: asyncio.TimerHandle | None = None
        self._opened = asyncio.ensure_future(tail.open())
        self._task = asyncio.create_task(self._run(tail))

    async def _run(self, tail: Tail) -> None:
        try:
            await self._opened
        except LogUnavailable:
            self._idle()  # whoever waits is told by `hold`; the next one tries anew
            return
        await tail.run()

    async def hold(self) -> None:
        self._holds += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._idle)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._task.cancel()


def _nothing() -> None:
    """Own slots are always read."""
