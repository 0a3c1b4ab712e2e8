"""Clients that send too much, too slowly, or do not read."""

import asyncio
import contextlib

import msgspec
import pytest

from pipeline.log import Record
from stages.edge.feeds import Feed
from stages.edge.follow import Follower

from .backstage import CHAT, WAIT, Backstage, EdgeUnderTest, an_edge

HEAD = b"POST /v1/requests HTTP/1.1\r\nhost: x\r\n"


async def converse(edge: EdgeUnderTest, *parts: bytes, pause: float = 0.0) -> tuple[int, bytes]:
    """Send the parts and read until the edge closes: status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    try:
        async with asyncio.timeout(WAIT):
            sending = asyncio.create_task(_send(writer, parts, pause))
            answer = await reader.read()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    finally:
        writer.close()
    if not answer:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


async def _send(writer: asyncio.StreamWriter, parts: tuple[bytes, ...], pause: float) -> None:
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)


def code(body: bytes) -> str:
    found: str = msgspec.json.decode(body)["error"]["code"]
    return found


@pytest.mark.parametrize("size", [40_000, 4_000_000])
async def test_headers_beyond_the_limit_are_431(edge: EdgeUnderTest, size: int) -> None:
    status, body = await converse(edge, HEAD + b"x: " + b"y" * size)
    assert (status, code(body)) == (431, "headers_too_large")


async def test_a_url_beyond_the_limit_is_431(edge: EdgeUnderTest) -> None:
    status, _ = await converse(edge, b"GET /" + b"y" * 100_000)
    assert status == 431


async def test_a_declared_body_beyond_the_limit_is_413_at_once(edge: EdgeUnderTest) -> None:
    status, body = await converse(edge, HEAD + b"content-length: 999999999\r\n\r\n")
    assert (status, code(body)) == (413, "request_too_large")


async def test_an_endless_chunked_body_is_413(edge: EdgeUnderTest) -> None:
    chunk = b"10000\r\n" + b"z" * 0x10000 + b"\r\n"
    parts = (HEAD + b"transfer-encoding: chunked\r\n\r\n", *([chunk] * 40))
    status, body = await converse(edge, *parts)
    assert (status, code(body)) == (413, "request_too_large")


async def test_a_body_of_just_the_limit_is_read(edge: EdgeUnderTest) -> None:
    limit = edge.member.settings.edge.body_limit
    head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % limit
    status, body = await converse(edge, head + b"{" + b" " * (limit - 1))
    assert (status, code(body)) == (400, "invalid_json")


async def test_half_a_header_is_408(back: Backstage) -> None:
    async with an_edge(back, header_timeout=0.3) as edge:
        status, body = await converse(edge, HEAD)
        assert (status, code(body)) == (408, "request_timeout")


async def test_one_byte_at_a_time_is_408_however_long_it_goes_on(back: Backstage) -> None:
    async with an_edge(back, header_timeout=0.5, body_timeout=0.5) as edge:
        slowly = tuple(bytes([byte]) for byte in HEAD)
        status, _ = await converse(edge, *slowly, pause=0.05)
        assert status == 408
        head = HEAD + b"content-length: 1000\r\n\r\n"
        status, body = await converse(edge, head, *([b" "] * 1000), pause=0.05)
        assert (status, code(body)) == (408, "request_timeout")


async def test_a_connection_that_says_nothing_is_closed(back: Backstage) -> None:
    async with an_edge(back, header_timeout=0.2) as edge:
        assert await converse(edge) == (0, b"")


async def test_what_is_not_http_is_400_in_openais_shape(edge: EdgeUnderTest) -> None:
    status, body = await converse(edge, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    assert (status, code(body)) == (400, "invalid_request")


async def test_many_requests_on_one_connection(back: Backstage, edge: EdgeUnderTest) -> None:
    body = msgspec.json.encode(CHAT)
    one = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    last = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    _, rest = await converse(edge, one * 30 + last)
    assert rest.count(b"HTTP/1.1 202") == 30


async def test_100_continue_is_said_before_a_body(edge: EdgeUnderTest) -> None:
    body = msgspec.json.encode(CHAT)
    head = HEAD + b"expect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    async with asyncio.timeout(WAIT):
        writer.write(head % len(body))
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(body)
        assert b"202 Accepted" in await reader.read()
    writer.close()


async def test_a_reader_that_stands_still_costs_no_more_than_its_buffer(
    back: Backstage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped from the live stream, and reads everything from the log when it goes on."""
    looks, most = 0, 0
    read_past, push = Follower.read_past, Feed.push

    async def counted(self: Follower, feed: Feed) -> None:
        nonlocal looks
        looks += 1
        await read_past(self, feed)

    def measured(self: Feed, record: Record) -> None:
        nonlocal most
        push(self, record)
        most = max(most, self._size)

    monkeypatch.setattr(Follower, "read_past", counted)
    monkeypatch.setattr(Feed, "push", measured)
    piece, count = "x" * 2000, 5_000  # 10 MB: more than the kernel keeps for two sockets
    async with an_edge(back, stream_buffer=16_384) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port, limit=4096)
        body = msgspec.json.encode(CHAT | {"stream": True})
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        asked = await back.asked()
        await asked.admit()
        await asked.open()
        for k in range(count):
            await asked.say(piece, k=k, counts=False)
        await asked.say(".", k=count, finish="stop", counts=False)
        await asked.end()
        async with asyncio.timeout(30):
            text = (await reader.read()).decode()
        writer.close()
    assert text.count(piece) == count
    assert "[DONE]" in text
    assert looks > 0
    assert most < 16_384 + 4_096  # one record more than the limit
