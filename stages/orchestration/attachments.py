"""Who reads which stream, and since when nobody does. Pure.

Edges say `attach` and `detach` on `hr.control`; an edge life that is gone counts as detached. Of several
graces the largest counts; who was never attached, or only by observers (grace 0), is never cancelled. A
detach with `gone=False` (the stream ended, the edge drains) starts no count: the client is expected
elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.control import Attach, Detach

KEEP = (
    1800.0  # s without an attach or detach until a request is forgotten: edges repeat every 600 s
)
LIMIT = 100_000  # requests remembered; beyond it the one heard longest ago is forgotten


@dataclass(slots=True)
class Readers:
    """The streams of one request."""

    last: Attach
    heard: float  # loop time
    grace: int = 0  # ms
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)  # stream → (edge, epoch)
    empty_since: float | None = None  # loop time; None: read by somebody, or not to be counted
    asked: bool = False  # its cancel is written


class Attachments:
    def __init__(self) -> None:
        self.requests: dict[str, Readers] = {}

    def attach(self, message: Attach, now: float) -> None:
        readers = self.requests.pop(message.request_id, None)
        if readers is None:
            if len(self.requests) >= LIMIT:
                del self.requests[next(iter(self.requests))]
            readers = Readers(message, now)
        self.requests[message.request_id] = readers  # last again: the first is the oldest
        readers.heard = now
        if message.grace > readers.grace or not readers.grace:
            readers.last, readers.grace = message, message.grace
        readers.streams[message.stream] = (message.edge, message.epoch)
        readers.empty_since = None

    def detach(self, message: Detach, now: float) -> None:
        readers = self.requests.get(message.request_id)
        if readers is None or readers.streams.pop(message.stream, None) is None:
            return
        readers.heard = now
        if readers.streams:
            return
        if message.gone and readers.grace:
            readers.empty_since = now
        else:
            del self.requests[message.request_id]

    def gone(self, dead: Callable[[str, str], bool], now: float) -> None:
        """Streams of edge lives that are over: their readers are detached from now on."""
        verdicts: dict[tuple[str, str], bool] = {}
        for readers in self.requests.values():
            for stream, edge in list(readers.streams.items()):
                if edge not in verdicts:
                    verdicts[edge] = dead(*edge)
                if verdicts[edge]:
                    del readers.streams[stream]
            if not readers.streams and readers.empty_since is None and readers.grace:
                readers.empty_since = now

    def caught_up(self, now: float) -> None:
        """All that was said is read: what lies back counts from now, not from when it was read."""
        for readers in self.requests.values():
            if readers.empty_since is not None:
                readers.empty_since = now

    def due(self, now: float) -> list[Attach]:
        """Requests that nobody has read for their grace; each is named once."""
        found = []
        for request_id, readers in list(self.requests.items()):
            since = readers.empty_since
            if since is not None and not readers.asked and now - since >= readers.grace / 1000:
                readers.asked = True
                found.append(readers.last)
            elif now - readers.heard > KEEP:
                del self.requests[request_id]
        return found

    def forget(self, request_id: str) -> None:
        """It has ended."""
        self.requests.pop(request_id, None)
