"""A Kafka client that sends exactly what it is told: any API, any version, any bytes."""

from __future__ import annotations

import asyncio
import io
import itertools
import struct
import time
from types import TracebackType
from typing import Any, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.serial import entity_reader, entity_writer

from pipeline.embedded.protocol import APIS, entity_of, filler

NOW = int(time.time() * 1000)  # ms; young enough for any retention
KEYS = {api.name: key for key, api in APIS.items()}


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


class Wire:
    """One connection. `await Wire.connect(bootstrap)`, then `call` as often as wanted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlations = itertools.count(1)

    @classmethod
    async def connect(cls, bootstrap: str) -> Self:
        host, port = bootstrap.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the broker."""
        host, port = self._writer.get_extra_info("peername")
        return host, port

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()

    async def call(self, name: str, version: int, /, **fields: Any) -> Any:
        """Ask and wait for the answer, as kio's dataclass. Times in `fields` are timedeltas."""
        response = entity_of(name, version, "Response")
        correlation = await self.send(name, version, **fields)
        frame = await self.receive()
        start = 4
        assert struct.unpack_from(">i", frame) == (correlation,), "the answer to another call"
        if response.__header_schema__.__flexible__:
            _, size = entity_reader(response.__header_schema__)(frame, 0)
            start = size
        answer, end = entity_reader(response)(frame, start)
        assert start + end == len(frame), "bytes left after the answer"
        return answer

    async def send(self, name: str, version: int, /, **fields: Any) -> int:
        """Ask and do not wait; the correlation id."""
        request = entity_of(name, version, "Request")
        header = request.__header_schema__(
            request_api_key=KEYS[name],
            request_api_version=version,
            correlation_id=(correlation := next(self._correlations)),
            client_id="wire",
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(request)(buffer, filler(request)(fields))
        await self.send_frame(buffer.getvalue())
        return correlation

    async def send_frame(self, frame: bytes) -> None:
        await self.send_bytes(struct.pack(">i", len(frame)) + frame)

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, timeout: float = 30) -> bytes:
        """One frame; raises `Closed`."""
        try:
            async with asyncio.timeout(timeout):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed from error


def batch(
    *records: tuple[bytes | None, bytes | None],
    timestamp: int = NOW,
    compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A record batch of (key, value) records; `producer` is (id, epoch, base sequence)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 30,
    )
    for offset, (key, value) in enumerate(records):
        builder.append(offset, timestamp + offset, key, value, [])
    return bytes(builder.build())
