"""Open readers of requests, fed by whoever reads the slots: bounded, and never behind by a silent gap."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from pipeline import logs, metrics
from pipeline.log import Record
from schemas.codec import Unreadable, decode
from schemas.result import Result
from schemas.tokens import Admitted, Chunk, End, Event, Open, decode_event

PENDING_LIMIT = 256  # records of one request kept while its past is read


class Renderer(Protocol):
    """`Frames`, or whatever else folds the records of a slot."""

    def feed(self, offset: int, event: Event) -> bytes: ...


class Feed:
    """One reader of one request: `push` comes from the reader of its slot, `take` is the client's.

    A client that is slower than its tokens may hold `limit` bytes: a quarter waits here, the rest is for
    what its connection was given before it said that it is full. When the quarter is full nothing more
    is kept and the feed is `lagging`: what is missing has to be read from the log, from `position` on,
    as when a feed joins a request that has begun.
    """

    def __init__(
        self,
        request_id: str,
        renderer: Renderer | None,
        limit: int,
        *,
        lagging: bool = False,
        resumable: bool = False,
    ) -> None:
        self.request_id = request_id
        self.resumable = resumable  # its client knows how to go on elsewhere
        self.key = request_id.encode()
        self.renderer = renderer  # None: only the result matters
        self.limit = limit // 4
        self.lagging = lagging
        self.position = -1  # the last offset that was applied or known to be another's
        self.decided = False  # admitted, a first chunk or the end was read
        self.end: tuple[int, End] | None = None  # with its offset
        self.ended_before = False  # its end is of the past: the result will not come by itself
        self._result: Result | None = None
        self._raw_result: bytes | None = None  # most streams end without a look at it
        self.tenant: str | None = None
        self.seen = False  # the log knows the request
        self.gone = False  # the client left, or the edge drains
        self.drained = False
        self.hurried = False  # the verdict was waited for long enough
        self.only_result = False  # the slot has forgotten it; the result is all there is
        self.ping = False
        self.tell = False  # `aside` is to be asked
        self.aside: Callable[[], Awaitable[bytes]] | None = None  # what goes out instead of a ping
        self.busy = False  # something was sent since the last look of the pinger
        self.wake = asyncio.Event()
        self._frames: list[bytes] = []
        self._size = 0
        self._pending: list[Record] | None = None  # while its past is read

    @property
    def has_result(self) -> bool:
        return self._result is not None or self._raw_result is not None

    @property
    def result(self) -> Result | None:
        if self._result is None and self._raw_result is not None:
            try:
                self._result = decode(self._raw_result, Result)
            except Unreadable as error:  # a repeat may be better, or the look-up finds another
                self._raw_result = None
                logs.warn("unreadable", request_id=self.request_id, error=error)
        return self._result

    @result.setter
    def result(self, result: Result | None) -> None:
        self._result = result

    @property
    def full(self) -> bool:
        return self._size >= self.limit

    def take(self) -> bytes:
        """All frames that are ready."""
        if not self._frames:
            return b""
        frames = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        return frames

    def push(self, record: Record) -> None:
        """A record of the request, as it is written."""
        if self._pending is not None:
            if len(self._pending) < PENDING_LIMIT:
                self._pending.append(record)
            else:
                self.lagging = True  # more than we keep: another look into the log
        elif self.full or self.lagging:
            self.lagging = True
        else:
            decided = self.decided
            self.apply(record)
            if not self._frames and self.end is None and decided == self.decided:
                return  # nothing for which to wake anybody
        self.wake.set()

    def apply(self, record: Record) -> None:
        """In offset order; what was applied before is skipped."""
        if record.offset <= self.position or self.end is not None:
            return
        self.position = record.offset
        self.seen = True
        if self.renderer is None:
            return
        try:
            event = decode_event(record.value)
        except Unreadable as error:
            metrics.unreadable.labels(record.topic).inc()
            logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
            return
        if isinstance(event, End):
            self.end = (record.offset, event)
            self.ended_before = self._pending is not None
            self.decided = True
            return
        if not isinstance(event, Open):
            self.decided = self.decided or isinstance(event, Admitted | Chunk)
        if frames := self.renderer.feed(record.offset, event):
            self._frames.append(frames)
            self._size += len(frames)

    def push_result(self, value: bytes) -> None:
        """The record of an outcome may be repeated: the first is taken."""
        if not self.has_result:
            self._raw_result = value
            if self.renderer is None or self.end is not None:
                self.wake.set()

    def lag(self) -> None:
        """Records were missed: they have to be read from the log."""
        self.lagging = True
        self.wake.set()

    def begin_past(self) -> None:
        """From now on live records wait until `join`."""
        self._pending = []
        self.lagging = False

    def join(self) -> None:
        """The past is read up to an end taken after `begin_past`: go on live."""
        pending, self._pending = self._pending or [], None
        for record in pending:
            if self.full or self.lagging:
                self.lagging = True
                return
            self.apply(record)

    def drain(self) -> None:
        """This edge goes away; the stream can be resumed elsewhere."""
        self.drained = True
        self.leave()

    def hurry(self) -> None:
        self.hurried = True
        self.wake.set()

    def leave(self) -> None:
        self.gone = True
        self.wake.set()


class Feeds:
    """Every open feed, by request id."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, list[Feed]] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def add(self, feed: Feed) -> None:
        self.by_key.setdefault(feed.key, []).append(feed)

    def remove(self, feed: Feed) -> None:
        feeds = self.by_key.get(feed.key, [])
        if feed in feeds:
            feeds.remove(feed)
        if not feeds:
            self.by_key.pop(feed.key, None)

    def all(self) -> list[Feed]:
        return [feed for feeds in self.by_key.values() for feed in feeds]

    def push(self, record: Record) -> None:
        """A record of a slot."""
        if record.key is not None and (feeds := self.by_key.get(record.key)) is not None:
            for feed in feeds:
                feed.push(record)

    def push_result(self, record: Record) -> None:
        """A record of `hr.results`."""
        if record.key is None or record.value is None:
            return
        for feed in self.by_key.get(record.key, ()):
            feed.push_result(record.value)
