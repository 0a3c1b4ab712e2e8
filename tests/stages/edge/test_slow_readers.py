"""Sixty-four clients that read a kilobyte a second cost little, and nobody else notices them."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from pipeline.log import Record
from stages.edge.feeds import Feed
from stages.edge.protocol import Corked
from stages.edge.server import Server

from .backstage import CHAT, Asked, Backstage, EdgeUnderTest, an_edge

SLOW, QUICK = 64, 4
HELD = 65_536  # bytes at the edge for one of them, at most
PIECE, PIECES = "x" * 2000, 100  # 200 kB an answer
KERNEL = (
    4096  # bytes of a socket's buffer, on either side: what it holds is not what is asked about
)


async def connect(edge: EdgeUnderTest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", edge.port))
    reader, writer = await asyncio.open_connection(sock=own, limit=1024)
    body = msgspec.json.encode(CHAT | {"stream": True})
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    return reader, writer


async def slowly(edge: EdgeUnderTest) -> None:
    """A kilobyte a second, for as long as it is let."""
    reader, writer = await connect(edge)
    try:
        while await reader.read(1024):  # noqa: ASYNC110 - that slow is what it is
            await asyncio.sleep(1)
    finally:
        writer.transport.abort()


async def quickly(edge: EdgeUnderTest) -> str:
    reader, writer = await connect(edge)
    text = (await reader.read()).decode()
    writer.close()
    return text


async def long_answer(asked: Asked) -> None:
    await asked.admit()
    await asked.open()
    for k in range(PIECES):
        await asked.say(PIECE, k=k, counts=False)
    await asked.say(".", k=PIECES, finish="stop", counts=False)
    await asked.end()


async def test_slow_readers_hold_no_memory_and_slow_nobody(
    back: Backstage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = written = 0
    push, flush, listen = Feed.push, Corked.flush, Server.listen

    def pushed(self: Feed, record: Record) -> None:
        nonlocal waiting
        push(self, record)
        waiting = max(waiting, self._size)

    def flushed(self: Corked) -> None:
        nonlocal written
        flush(self)
        written = max(written, self.get_write_buffer_size())

    async def listening(self: Server) -> int:
        port = await listen(self)
        assert self._server is not None
        for each in self._server.sockets:  # the accepted ones inherit it
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL)
        return port

    monkeypatch.setattr(Feed, "push", pushed)
    monkeypatch.setattr(Corked, "flush", flushed)
    monkeypatch.setattr(Server, "listen", listening)
    async with an_edge(back) as edge:
        slow = [asyncio.create_task(slowly(edge)) for _ in range(SLOW)]
        asked = [await back.asked() for _ in range(SLOW)]
        telling = [asyncio.create_task(long_answer(each)) for each in asked]
        quick = [asyncio.create_task(quickly(edge)) for _ in range(QUICK)]
        telling += [asyncio.create_task(long_answer(await back.asked())) for _ in range(QUICK)]
        async with asyncio.timeout(120):
            texts = await asyncio.gather(*quick)
            await asyncio.gather(*telling)
        assert not any(task.done() for task in slow), "it was quick enough to have read everything"
        for task in slow:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*slow)
    assert all(text.count(PIECE) == PIECES and "[DONE]" in text for text in texts)
    assert waiting and written, "nobody was slow"
    assert waiting + written <= HELD
