"""One HTTP request and its answer: as much of ASGI as the edge needs, and no more per frame than a write."""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline import metrics, tracing
from schemas.errors import CODES, Error, Refusal

from .outcome import error_body

Scope = Mapping[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Any], Any]
Headers = list[tuple[bytes, bytes]]

ID_LIMIT = 128  # visible ASCII characters of a client's X-Request-ID
NEVER_REPEAT = (409, 500, 504)  # the openai client repeats these by itself
JSON: Headers = [(b"content-type", b"application/json")]
SSE: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """`headers` are added to whatever the answer is; `gone` once the client has left."""

    __slots__ = (
        "_gone",
        "_receive",
        "_send",
        "correlation_id",
        "gone",
        "headers",
        "received",
        "request_id",
        "scope",
        "span",
        "started",
        "tenant",
    )

    def __init__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.received: dict[bytes, bytes] = dict(scope["headers"])
        self.headers: Headers = []
        self.tenant = "default"
        self.correlation_id: str | None = None
        self.request_id: str | None = None
        self.span = tracing.Span(None)
        self.started = False
        self.gone = False
        self._gone: Callable[[], None] | None = None
        self._receive = receive
        self._send = send
        # the server calls this when the connection is lost: no task has to wait for it
        scope.get("state", {}).get("lost", []).append(self._lost)

    def header(self, name: bytes) -> str | None:
        value = self.received.get(name)
        return None if value is None else value.decode("latin-1")

    def identify(self) -> None:
        """Take over the client's own id. Raises Refusal."""
        given = self.header(b"x-request-id")
        if given is None:
            return
        if not 0 < len(given) <= ID_LIMIT or not all("!" <= letter <= "~" for letter in given):
            raise Refusal(
                "invalid_value",
                f"X-Request-ID must be 1 to {ID_LIMIT} visible ASCII characters",
                param="X-Request-ID",
            )
        self.correlation_id = given
        self.headers.append((b"x-request-id", given.encode()))

    def name(self, request_id: str) -> None:
        """From now on every answer says which request it is about."""
        self.request_id = request_id
        self.headers.append((b"headrace-request-id", request_id.encode()))

    def on_gone(self, call: Callable[[], None]) -> None:
        """Call it once when the client leaves; at once if it has."""
        self._gone = call
        if self.gone:
            call()

    def _lost(self) -> None:
        self.gone = True
        if self._gone is not None:
            self._gone()

    async def body(self) -> bytes:
        message = await self._receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await self._receive()
            body += message.get("body", b"")
        return body

    async def answer(self, status: int, body: bytes, headers: Headers = JSON) -> None:
        """The whole answer at once."""
        length = (b"content-length", b"%d" % len(body))
        await self._start(status, [*headers, length])
        await self._send({"type": "http.response.body", "body": body})

    async def begin_stream(self) -> None:
        await self._start(200, SSE)

    async def write(self, data: bytes) -> None:
        """Frames of a stream; waits while the connection's own buffer is full."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refusal) -> None:
        more: Headers = []
        if refusal.retry_after is not None:
            more.append((b"retry-after", b"%d" % max(1, refusal.retry_after)))
        await self.fail(refusal.status, refusal.error, more)

    async def fail(self, status: int, error: Error, more: Headers | None = None) -> None:
        """An error in OpenAI's shape; the code is in a header and in the metrics too."""
        code = error.code if error.code in CODES else "other"
        metrics.refusals.labels(code).inc()
        headers = [*JSON, (b"headrace-reason", error.code.encode("ascii", "replace"))]
        if status in NEVER_REPEAT:
            headers.append((b"x-should-retry", b"false"))
        await self.answer(status, error_body(error), headers + (more or []))

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        if self.span.traceparent is not None:
            headers = [*headers, (b"traceparent", self.span.traceparent.encode())]
        start = {"type": "http.response.start", "status": status, "headers": headers + self.headers}
        await self._send(start)
