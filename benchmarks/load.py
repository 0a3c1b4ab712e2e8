"""A load of chat streams over raw sockets: cheap enough not to be what is measured."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit


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

    async def run(self, requests: int, at_once: int) -> "Load":
        left = iter(range(requests))
        await asyncio.gather(*(self._client(left) for _ in range(at_once)))
        return self

    async def run_for(self, seconds: float, at_once: int) -> "Load":
        self._until = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(iter(int, 1)) for _ in range(at_once)))
        return self

    async def _client(self, left: "object") -> None:
        """One connection after another, kept alive where the edge keeps it."""
        host = urlsplit(self.url)
        reader = writer = None
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.tokens,
            "stream": True,
        }
        raw = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        ).encode()
        for _ in left:  # type: ignore[attr-defined]
            if time.perf_counter() >= self._until:
                break
            if writer is None or writer.is_closing():
                reader, writer = await asyncio.open_connection(host.hostname, host.port)
            begun = time.perf_counter()
            writer.write(head + raw)
            assert reader is not None
            if await self._read_stream(reader, begun):
                self.finished += 1
            else:
                self.failed += 1
                writer.close()
                writer = None
        if writer is not None:
            writer.close()

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
