"""`/healthz`, `/readyz` and `/metrics` of every process: a responder small enough to cost nothing idle.

One request a connection, GET and HEAD only, its head limited in size and time.
"""

import asyncio
from typing import cast

import msgspec

from . import metrics
from .member import Member

HEAD_LIMIT = 8192  # bytes of a request's head
HEAD_TIMEOUT = 5.0  # s: a prober is near
CONNECTIONS = 32  # at once; beyond it 503
LINGER = 0.5  # s that a refused client is still listened to

Answer = tuple[int, str, bytes]  # status, content type, body
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {408: "Request Timeout", 431: "Request Header Fields Too Large"}
REASONS |= {500: "Internal Server Error", 503: "Service Unavailable"}
KINDS = {404: "not_found_error", 408: "timeout_error", 503: "server_error"}


def answer(member: Member, path: str) -> Answer:
    """What this process says at `path`."""
    if path == "/metrics":
        return 200, metrics.CONTENT_TYPE, metrics.render()
    who = {"member": member.id, "role": member.role, "epoch": member.epoch}
    if path == "/healthz":
        return _json(200, {"alive": True, **who})
    if path == "/readyz":
        missing = dict(member.missing)
        if member.draining.is_set():
            missing["draining"] = "draining"
        body = {"ready": member.ready, "missing": missing, **who}
        return _json(200 if member.ready else 503, body)
    return _error(404, "route_not_found", f"no route {path[:100]}: /healthz, /readyz, /metrics")


def _json(status: int, body: dict[str, object]) -> Answer:
    return status, "application/json", msgspec.json.encode(body)


def _error(status: int, code: str, message: str) -> Answer:
    """In OpenAI's shape, as the edges' errors."""
    kind = KINDS.get(status, "invalid_request_error")
    return _json(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


async def serve_health(member: Member, host: str, port: int = 0) -> int:
    """Listen and return the port; `member.http` says where unless an edge already did."""
    server = await listen(member, host, port)
    bound: int = server.sockets[0].getsockname()[1]
    if member.http is None:
        shown = f"[{host}]" if ":" in host else host
        member.http = f"http://{shown}:{bound}"
    return bound


async def listen(member: Member, host: str, port: int = 0) -> asyncio.Server:
    """The server itself, for who must close it."""
    connections: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(member, loop, connections), host, port)


class _Connection(asyncio.Protocol):
    """One request; closed by us after the answer, cut off when the other side does not read it."""

    def __init__(
        self, member: Member, loop: asyncio.AbstractEventLoop, others: "set[_Connection]"
    ) -> None:
        self.member = member
        self.loop = loop
        self.others = others
        self.head = b""
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass of it
        self.others.add(self)
        self.timer = self.loop.call_later(HEAD_TIMEOUT, self._too_slow)
        if len(self.others) > CONNECTIONS:
            self._refuse(503, "busy", f"{CONNECTIONS} connections are open")

    def connection_lost(self, error: Exception | None) -> None:
        self.timer.cancel()
        self.others.discard(self)

    def data_received(self, data: bytes) -> None:
        if self.answered:
            return
        self.head += data
        head, end, _ = self.head.partition(b"\r\n\r\n")
        if len(head) > HEAD_LIMIT:
            self._refuse(431, "headers_too_large", f"a head has at most {HEAD_LIMIT} bytes")
        elif end:
            self._respond(head)

    def eof_received(self) -> bool:
        if not self.answered:
            self._refuse(400, "invalid_request", "the request ends before its head does")
        return True  # we close when our answer is out

    def _respond(self, head: bytes) -> None:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            self._refuse(400, "invalid_request", "this is not an HTTP/1.1 request line")
        elif words[0] not in ("GET", "HEAD"):
            self._refuse(405, "method_not_allowed", "GET and HEAD only")
        else:
            path = words[1].partition("?")[0]
            self._send(answer(self.member, path), with_body=words[0] == "GET")
            self.transport.close()

    def _too_slow(self) -> None:
        self._refuse(408, "request_timeout", f"no whole head within {HEAD_TIMEOUT:g} s")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(_error(status, code, message))
        self.timer.cancel()
        # what the client still sends is read for a moment: closing on it would reset our answer
        self.timer = self.loop.call_later(LINGER, self.transport.close)

    def _send(self, reply: Answer, with_body: bool = True) -> None:
        self.answered = True
        self.timer.cancel()
        status, kind, body = reply
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + (body if with_body else b""))
        self.timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)
