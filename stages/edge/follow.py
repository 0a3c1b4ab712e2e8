"""From a feed to the bytes of a stream: the past from the log, then live, then the end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import TypeVar

from pipeline import logs
from pipeline.log import LogUnavailable, OffsetGone, Record, TopicPartition
from pipeline.lookup import ScanBudget, find_result, scan
from pipeline.member import Member
from schemas.codec import Unreadable, decode
from schemas.errors import Refusal
from schemas.ids import birth, partition_of
from schemas.ledger import LedgerRecord, Output
from schemas.result import Result

from .feeds import Feed
from .frames import OPENAI, Frames
from .tail import Tails

T = TypeVar("T")

PING = b": ping\n\n"
CLOCK_SKEW = 300_000  # ms that an id's time may be off: ingress refuses what is further away
SCANS = 4  # looks into the log at once, each a reader of its own: more of them only make all of them late
RESULT_WAIT = 1.0  # s for the result's record, which was written before the slot's `end`
RETRY_AFTER = 2  # s: a look-up that ran out of its budget has warmed the broker's cache


def since(request_id: str) -> int:
    """From when on the log may know the request, ms."""
    return birth(request_id) - CLOCK_SKEW


class Follower:
    """Reads requests for streams, and what is said about them elsewhere in the log."""

    def __init__(self, member: Member, tails: Tails) -> None:
        self.member = member
        self.tails = tails
        self.turn = asyncio.Semaphore(SCANS)
        self.budget = member.settings.edge.scan_budget

    async def frames(self, feed: Feed, frames: Frames) -> AsyncGenerator[bytes, None]:
        """What to send, until the stream has ended or the client is gone."""
        while not feed.gone:
            if data := feed.take():
                feed.busy = True
                yield data
            elif feed.lagging:
                await self.read_past(feed)
            elif feed.end is not None or feed.only_result:
                yield await self.closing(feed, frames)
                return
            elif feed.ping or feed.tell:
                pinged, feed.ping, feed.tell = feed.ping, False, False
                told = b"" if feed.aside is None else await feed.aside()
                if told or pinged:
                    yield told or PING
            else:
                await feed.wake.wait()
                feed.wake.clear()

    async def catch_up(self, feed: Feed) -> None:
        """The past up to now, or as much as the feed may hold; where the slot knows nothing of a request
        that has ended, its result is all there is. Raises Refusal."""
        await self._read_up(feed)
        if feed.seen:
            return
        feed.result = feed.result or await self.find_result(feed.request_id)
        if feed.result is not None:
            feed.lag()  # what the slot knows was there before the result: this look decides
            await self._read_up(feed)
            feed.only_result = not feed.seen

    async def _read_up(self, feed: Feed) -> None:
        while feed.lagging and not feed.full:
            await self.read_past(feed)

    async def read_past(self, feed: Feed) -> None:
        """What the log holds beyond `feed.position`, or as much of it as the feed may hold.

        Raises Refusal when the budget ends without a step forward, or no broker answers.
        """
        at = self.tails.slot(feed.request_id)
        before = feed.position
        feed.begin_past()
        try:
            async with self.turn, aclosing(self._records(feed, at)) as records:
                async for record in records:
                    if record.key == feed.key:
                        feed.apply(record)
                    feed.position = max(feed.position, record.offset)
                    if feed.full:
                        feed.lag()
                        break
        except OffsetGone as gone:
            feed.position = gone.start - 1  # what is lost is taken from the result at the end
            feed.lag()
        except ScanBudget as error:
            if feed.position == before:
                raise over_budget() from error
            feed.lag()  # on from here
        except LogUnavailable as error:
            raise no_broker(error) from error
        finally:
            feed.join()

    def _records(self, feed: Feed, at: TopicPartition) -> AsyncGenerator[Record, None]:
        if feed.position < 0:
            return scan(self.member.log, at, since_ms=since(feed.request_id), budget=self.budget)
        return scan(self.member.log, at, start=feed.position + 1, budget=self.budget)

    async def closing(self, feed: Feed, frames: Frames) -> bytes:
        """The last frames, with what the slot did not say."""
        if feed.end is None:
            result = await self.result(feed)
            # the native `done` says it all; OpenAI's framing has no word for that
            output = None
            if frames.framing == OPENAI:
                output = await self.output(feed.request_id, result.output)
            return frames.close_without_slot(result, output)
        offset, end = feed.end
        known = await self.result(feed) if frames.needs_result(end) else None
        output = None
        if frames.lacks_rest(end):
            output = await self.output(feed.request_id, end.output)
        return frames.close(offset, end, known, output)

    async def result(self, feed: Feed) -> Result:
        """The result of a request whose `end` was read. Raises Refusal when it cannot be found."""
        try:
            async with asyncio.timeout(0 if feed.ended_before else RESULT_WAIT):
                while not feed.has_result:
                    feed.wake.clear()
                    await feed.wake.wait()
        except TimeoutError:
            pass
        result = feed.result or await self.find_result(feed.request_id)
        if result is None:
            raise Refusal("internal_error", f"the result of {feed.request_id} is not in the log")
        return result

    async def find_result(self, request_id: str) -> Result | None:
        """From `hr.results`, from the request's birth on. Raises Refusal."""
        log, topics = self.member.log, self.member.topics
        async with self.turn:
            found = await guarded(find_result(log, topics, request_id, since_ms=since(request_id)))
        return None if found is None else found[1]

    async def output(self, request_id: str, offset: int) -> Output | None:
        """The counted output, from the ledger; None after the ledger's retention."""
        topics = self.member.topics
        at = TopicPartition(topics.ledger, partition_of(request_id, topics.ledger_partitions))
        record = await self.record_at(at, offset)
        if record is None or record.key != request_id.encode():
            return None
        try:
            said: LedgerRecord = decode(record.value, LedgerRecord)
        except Unreadable as error:  # its result says so too
            logs.warn("unreadable", topic=at.topic, offset=offset, error=error)
            return None
        return said if isinstance(said, Output) else None

    async def record_at(self, at: TopicPartition, offset: int) -> Record | None:
        """The record at exactly this offset; None where the log has dropped it. Raises Refusal."""
        async with self.turn:
            return await guarded(self._record_at(at, offset))

    async def _record_at(self, at: TopicPartition, offset: int) -> Record | None:
        try:
            async with aclosing(
                scan(self.member.log, at, start=offset, budget=self.budget)
            ) as records:
                async for record in records:
                    return record if record.offset == offset else None
        except OffsetGone as gone:
            if offset >= gone.start:
                raise
        return None


async def guarded(look: Awaitable[T]) -> T:
    """A look into the log whose failures are answers."""
    try:
        return await look
    except ScanBudget as error:
        raise over_budget() from error
    except LogUnavailable as error:
        raise no_broker(error) from error


def over_budget() -> Refusal:
    return Refusal(
        "lookup_budget",
        "the request was not found within the time a look-up may take; ask again",
        retry_after=RETRY_AFTER,
    )


def no_broker(error: Exception | str) -> Refusal:
    return Refusal(
        "broker_unavailable", f"the log cannot be read: {error}", retry_after=RETRY_AFTER
    )
