"""HTTP without sockets: one call of an edge's ASGI application, and the frames it answers."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from .processes import Process

BUFFER = 64  # messages between application and client: a client that stops reading stops the writer


class Broken(Exception):
    """The connection broke, or nobody listens."""


@dataclass
class Frame:
    id: str | None
    event: str | None
    data: str
    raw: bytes


class Call:
    """One exchange. `close` is a client that goes away."""

    def __init__(
        self, process: Process | None, method: str, path: str,
        body: dict[str, Any] | None = None, headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        if process is None or process.server.app is None or not process.server.open:
            raise Broken("nobody listens")
        self._incoming: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(BUFFER)
        self._lost: list[Any] = []
        raw = b"" if body is None else json.dumps(body).encode()
        self._body = {"type": "http.request", "body": raw}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "state": {"lost": self._lost},
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self._rest = b""
        self._ended = False
        self._task = asyncio.get_running_loop().create_task(
            self._run(process.server.app, scope), context=process.context
        )
        process.server.calls.add(self._task)
        self._task.add_done_callback(process.server.calls.discard)
        self._task.add_done_callback(self._broken)

    async def _run(self, app: Any, scope: Any) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        return self._body

    async def _send(self, message: Any) -> None:
        if not self._ended:
            await self._incoming.put(message)

    def _broken(self, task: "asyncio.Task[None]") -> None:
        """The application ended: well, or with its process."""
        if not task.cancelled():
            task.exception()  # its answer, if any, is on its way; the edge has logged it
        if self._incoming.full():
            self._incoming.get_nowait()
        self._incoming.put_nowait(None)

    async def start(self) -> int:
        """The status. Raises Broken."""
        message = await self._next()
        self.status = message["status"]
        self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        return self.status

    async def _next(self) -> dict[str, Any]:
        message = await self._incoming.get()
        if message is None:
            raise Broken("the connection broke")
        return message

    async def content(self) -> bytes:
        parts = []
        while True:
            message = await self._next()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)

    async def frame(self) -> Frame | None:
        """The next frame that is no comment; None at the stream's end. Raises Broken."""
        while True:
            while b"\n\n" in self._rest:
                raw, _, self._rest = self._rest.partition(b"\n\n")
                if not raw.startswith(b":"):
                    return _parse(raw + b"\n\n")
            if self._ended:
                return None
            message = await self._next()
            self._rest += message.get("body", b"")
            self._ended = not message.get("more_body")

    def close(self) -> None:
        """The client is gone."""
        self._ended = True
        for tell in self._lost:
            tell()
        while not self._incoming.empty():
            self._incoming.get_nowait()


def _parse(raw: bytes) -> Frame:
    fields = dict(line.partition(": ")[::2] for line in raw.decode().splitlines() if line)
    return Frame(fields.get("id"), fields.get("event"), fields.get("data", ""), raw)
