"""A load of chat streams over raw sockets: cheap enough not to be what is measured."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from urllib.parse import urlsplit

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def arrivals(count: int, rate: float) -> AsyncIterator[int]:
    """Numbers at the moments of a Poisson process of `rate` a second, the same ones every time."""
    chance, at = random.Random(0), time.perf_counter()
    for number in range(count):
        at += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        yield number


@dataclass
class Load:
    """Streams of `tokens` tokens against one edge; times in milliseconds."""

    url: str
    tokens: int = 16
    model: str = "null"
    prompt: str = "Tell me something"
    first_token: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    finished: int = 0
    failed: int = 0
    _until: float = float("inf")
    _raw: bytes = b""

    async def run(self, requests: int, at_once: int) -> "Load":
        left = iter(range(requests))
        await asyncio.gather(*(self._client(left) for _ in range(at_once)))
        return self

    async def run_for(self, seconds: float, at_once: int) -> "Load":
        self._until = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(repeat(0)) for _ in range(at_once)))
        return self

    async def run_open(self, requests: int, clients: int, rate: float) -> "Load":
        """Whoever comes does not wait for those before: `clients` connections, more where all are busy."""
        idle = [await self._connect() for _ in range(clients)]
        self._raw = self._request()

        async def come() -> None:
            begun = time.perf_counter()
            connection = idle.pop() if idle else await self._connect()
            if await self._ask(connection, begun):
                idle.append(connection)

        async with asyncio.TaskGroup() as tasks:
            async for _ in arrivals(requests, rate):
                tasks.create_task(come())
        for _, writer in idle:
            writer.close()
        return self

    async def _client(self, left: Iterable[int]) -> None:
        """One connection after another, kept alive where the edge keeps it."""
        connection: Connection | None = None
        self._raw = self._request()
        for _ in left:
            if time.perf_counter() >= self._until:
                break
            if connection is None:
                connection = await self._connect()
            if not await self._ask(connection, time.perf_counter()):
                connection = None
        if connection is not None:
            connection[1].close()

    async def _connect(self) -> Connection:
        host = urlsplit(self.url)
        return await asyncio.open_connection(host.hostname, host.port)

    def _request(self) -> bytes:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.tokens,
            "stream": True,
        }
        raw = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        return head.encode() + raw

    async def _ask(self, connection: Connection, begun: float) -> bool:
        """One request; False where it failed, and the connection with it."""
        reader, writer = connection
        writer.write(self._raw)
        if await self._read_stream(reader, begun):
            self.finished += 1
            return True
        self.failed += 1
        writer.close()
        return False

    async def _read_stream(self, reader: asyncio.StreamReader, begun: float) -> bool:
        """One chunked answer; True when it ended as it should."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                return False
            seen, done, tail = False, False, b""
            while True:
                size = int((await reader.readline()).strip() or b"0", 16)
                data = await reader.readexactly(size + 2)
                if size == 0:
                    break
                window = tail + data
                if not seen and b'"content":"' in window.replace(b'"content":""', b""):
                    self.first_token.append((time.perf_counter() - begun) * 1000)
                    seen = True
                done = done or b"[DONE]" in window
                tail = data[-64:]
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return False
        self.whole.append((time.perf_counter() - begun) * 1000)
        return done and seen
