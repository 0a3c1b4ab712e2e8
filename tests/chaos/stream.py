"""One client with a stream: it insists until it is taken, and goes on at any edge when it is cut."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 240.0  # s a client insists; a broker that is away for 20 s and a role's 45 s fit in
AGAIN = 0.1  # s before a cut stream asks the other edge


@dataclass
class Frame:
    """One SSE frame: its bytes, and its place in the log where it has one."""

    raw: bytes
    id: str = ""
    event: str = ""
    data: str = ""


def split(buffer: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames of a buffer (comments left out), and what is left of it."""
    *whole, rest = buffer.split(b"\n\n")
    frames = []
    for raw in whole:
        fields = dict(
            line.partition(": ")[::2] for line in raw.decode().split("\n") if line[:1] != ":"
        )
        if fields:
            frames.append(
                Frame(
                    raw + b"\n\n",
                    fields.get("id", ""),
                    fields.get("event", ""),
                    fields.get("data", ""),
                )
            )
    return frames, rest


@dataclass
class Stream:
    """`native`: accepted by 202 and followed by its events; otherwise an OpenAI stream under a key."""

    native: bool
    body: dict[str, Any]
    key: str
    turn: int  # which edge it asks first
    request_id: str = ""
    frames: list[Frame] = field(default_factory=list)  # those with an id: what the log says
    signs: list[float] = field(default_factory=list)  # monotonic times of everything heard
    errors: list[str] = field(default_factory=list)  # error frames: none may come
    refused: int = 0  # times that the door said: not now
    resumed: int = 0  # times that a stream which had begun was continued
    ended: float | None = None

    @property
    def events(self) -> str:
        framing = "" if self.native else "?format=openai"
        return f"/v1/requests/{self.request_id}/events{framing}"

    @property
    def joined(self) -> bytes:
        return b"".join(frame.raw for frame in self.frames)

    async def live(self, http: httpx.AsyncClient, edges: Callable[[int], str]) -> None:
        """Until the closing frame. Raises TimeoutError when it never comes."""
        async with asyncio.timeout(PATIENCE):
            while self.ended is None:
                with contextlib.suppress(httpx.HTTPError):  # that edge is gone: the other one
                    await self._once(http, edges(self.turn))
                self.turn += 1
                if self.ended is None:
                    await asyncio.sleep(AGAIN)

    async def _once(self, http: httpx.AsyncClient, edge: str) -> None:
        """One exchange with one edge. Raises httpx.HTTPError."""
        if self.request_id:
            last = {"Last-Event-ID": self.frames[-1].id} if self.frames else {}
            await self._read(http, "GET", f"{edge}{self.events}", headers=last)
        elif self.native:
            answer = await http.post(f"{edge}/v1/requests", json=self.body)
            if answer.status_code == 202:
                self._taken(str(answer.json()["id"]))
            else:
                await self._refused(answer)
        else:
            body, key = {**self.body, "stream": True}, {"Idempotency-Key": self.key}
            await self._read(http, "POST", f"{edge}/v1/completions", json=body, headers=key)

    def _taken(self, request_id: str) -> None:
        self.request_id = request_id
        self.signs.append(time.monotonic())

    async def _refused(self, answer: httpx.Response) -> None:
        if answer.status_code not in (429, 503):
            self.errors.append(f"{answer.status_code} {(await answer.aread()).decode()}")
            self.ended = time.monotonic()  # asking again would not help
        self.refused += 1
        await asyncio.sleep(min(2.0, float(answer.headers.get("Retry-After", 1))))

    async def _read(self, http: httpx.AsyncClient, verb: str, url: str, **more: Any) -> None:
        async with http.stream(verb, url, **more) as answer:
            if answer.status_code != 200:
                await self._refused(answer)
                return
            self.resumed += bool(self.frames)
            if not self.request_id:
                self._taken(answer.headers["Headrace-Request-Id"])
            buffer = b""
            async for piece in answer.aiter_raw():
                frames, buffer = split(buffer + piece)
                for frame in frames:
                    self._hear(frame)

    def _hear(self, frame: Frame) -> None:
        now = time.monotonic()
        self.signs.append(now)
        if frame.data.startswith('{"error"'):
            self.errors.append(frame.data)
        if frame.id:
            self.frames.append(frame)
        if frame.event == "done" or frame.data == "[DONE]":
            self.ended = now


async def uncut(http: httpx.AsyncClient, edge: str, stream: Stream) -> bytes:
    """The finished stream, read once from its beginning; asked again while the edge says: not now.

    Raises TimeoutError.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(httpx.HTTPError):
                answer = await http.get(f"{edge}{stream.events}")
                if answer.status_code == 200:
                    frames, _ = split(answer.content)
                    return b"".join(frame.raw for frame in frames if frame.id)
            await asyncio.sleep(1)
