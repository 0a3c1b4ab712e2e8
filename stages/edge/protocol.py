"""HTTP/1.1 with limits: bytes and seconds of a header and of a body, and of a reader that stands still.

uvicorn's httptools protocol has none of them (httptools takes a header of any size). The application is
called once the whole body is here, so nobody can hold a task of it with half a request.
"""

import asyncio
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from pipeline import metrics
from pipeline.settings import EdgeSettings
from schemas.errors import Refusal

from .outcome import refusal_body

KEEP_ALIVE = 75.0  # s that an idle connection stays: longer than the usual 60 of a proxy's pool
LINGER = 1.0  # s in which a refused client may read why, instead of a reset
CONNECTIONS = 10_000  # open at once: about 100 MB of buffers
STALL = 60.0  # s that a client may read nothing while its buffers are full


class Corked:
    """A transport that writes once a turn of the loop: head, frames and end of an answer are one packet
    and one system call, which costs more than all of its rendering."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts = []
            if not self._transport.is_closing():
                self._transport.write(data)

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class EdgeProtocol(HttpToolsProtocol):
    """One connection. What it refuses itself is answered in OpenAI's shape, then it is closed."""

    def __init__(self, config: Config, state: ServerState, limits: EdgeSettings) -> None:
        super().__init__(config, state, {}, None)
        self.access_log = False  # ordinary success is not logged
        self.limits = limits
        self.refused = False
        self.head_bytes: int | None = 0  # None: not in a header
        self.held: tuple[Any, Any] | None = None  # a request whose body is not all here
        self.answered: Any = None  # the request that is being answered
        self.timer: asyncio.TimerHandle | None = None
        self.stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, Corked(transport, self.loop)))
        # with the quarter that a feed hands over at once, and once more within one turn of the loop
        transport.set_write_buffer_limits(high=self.limits.stream_buffer // 8)
        if len(self.connections) > CONNECTIONS:
            message = f"this edge has {CONNECTIONS} connections open and takes no more"
            self._refuse(Refusal("quota_exceeded", message, retry_after=1))
            return
        self._limit(self.limits.header_timeout, self._slow_header)

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_limit()
        if self.stall is not None:
            self.stall.cancel()
        super().connection_lost(exc)
        if self.answered is not None and not self.answered.response_complete:
            self.answered.disconnected = True  # uvicorn marks the newest of pipelined ones
            for lost in self.answered.scope["state"]["lost"]:
                lost()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        if self.head_bytes is not None:
            room = self.limits.header_limit - self.head_bytes
            if len(data) > room:
                self._feed_to_limit(data, room)
                return
            self.head_bytes += len(data)
        super().data_received(data)

    def _feed_to_limit(self, data: bytes, room: int) -> None:
        """A header longer than the limit is never given to the parser, which would keep it."""
        self.head_bytes = self.limits.header_limit
        super().data_received(data[:room])
        if self.refused or self.transport.is_closing():
            return
        if self.head_bytes != self.limits.header_limit:  # it ended; the rest is body, or the next
            self.data_received(data[room:])
            return
        limit = self.limits.header_limit
        self._refuse(Refusal("headers_too_large", f"the header has more than {limit} bytes"))

    def on_message_begin(self) -> None:
        if self.refused:
            return
        super().on_message_begin()
        self.scope["state"]["lost"] = []  # whom to tell when the client is gone
        if self.timer is None:  # a further request on this connection: its header begins now
            self._limit(self.limits.header_timeout, self._slow_header)

    def on_headers_complete(self) -> None:
        if self.refused:
            return
        self.head_bytes = None
        self._no_limit()
        limit = self.limits.body_limit
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        if int(length) > limit:  # httptools has checked that it is a number
            self._refuse(Refusal("request_too_large", _too_large(limit)))
            return
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if not cycle.more_body:
            self._answer(cycle, app)
            return
        self.held = (cycle, app)
        self._limit(self.limits.body_timeout, self._slow_body)
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, cycle: Any, app: Any) -> None:
        self.answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        if self.refused or self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > self.limits.body_limit:
            self._refuse(Refusal("request_too_large", _too_large(self.limits.body_limit)))

    def on_message_complete(self) -> None:
        if self.refused:
            return
        self.head_bytes = 0
        self._no_limit()
        super().on_message_complete()
        if self.held is not None:
            held, self.held = self.held, None
            self._answer(*held)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stall = self.loop.call_later(STALL, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.stall is not None:
            self.stall.cancel()
            self.stall = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("invalid_request", msg))

    def _slow_header(self) -> None:
        self.timer = None
        if self.cycle is None and not self.head_bytes:
            self.transport.close()  # connected and said nothing: there is no request to answer
            return
        seconds = self.limits.header_timeout
        self._refuse(Refusal("request_timeout", f"no whole header within {seconds:g} s"))

    def _slow_body(self) -> None:
        self.timer = None
        seconds = self.limits.body_timeout
        self._refuse(Refusal("request_timeout", f"no whole body within {seconds:g} s"))

    def _limit(self, seconds: float, call: Any) -> None:
        self._no_limit()
        self.timer = self.loop.call_later(seconds, call)

    def _no_limit(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, close our half, and read what still comes into nothing until the client has seen it."""
        if self.refused:
            return
        self.refused = True
        self._no_limit()
        self._unset_keepalive_if_required()
        metrics.refusals.labels(refusal.code).inc()
        unheard = self.held[0] if self.held is not None else None
        self.held = None
        if self.cycle not in (None, unheard) and not self.cycle.response_complete:
            self.transport.close()  # an earlier request is still being answered: no room for this
            return
        body = refusal_body(refusal)
        head = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"headrace-reason: {refusal.code}\r\nconnection: close\r\n"
        )
        if refusal.retry_after is not None:
            head += f"retry-after: {refusal.retry_after}\r\n"
        self.transport.write(STATUS_LINE[refusal.status] + head.encode() + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.abort)


def _too_large(limit: int) -> str:
    return f"the body has more than {limit} bytes, the most a request may have"
