"""A connection: frames in, one request at a time to its handler, answers out in order."""

from __future__ import annotations

import asyncio
import collections
import logging
import socket
import struct
from typing import cast

from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Refused
from pipeline.embedded.guard import Malformed
from pipeline.embedded.handlers import HANDLERS
from pipeline.embedded.protocol import Request
from pipeline.embedded.repeats import Repeats

log = logging.getLogger(__name__)

_FRAME_MOST = 100 << 20  # bytes: Kafka's socket.request.max.bytes
_SMALL_MOST = 4 << 20  # bytes of anything but Produce: decoded it takes many times as much
_LENGTH = struct.Struct(">i")


class Connection(asyncio.Protocol):
    """One client. Requests are answered in their order, as the protocol demands."""

    def __init__(self, broker: Broker, connections: set[Connection]) -> None:
        self._broker = broker
        self._connections = connections
        self._received = bytearray()
        self._frames: collections.deque[bytes] = collections.deque()
        self._repeats = Repeats()
        self._wake: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._host = ""
        self.used = 0.0  # loop time of the last sign of life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        # asyncio does it only for sockets that name their protocol, which a bound one does not
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._host = "/" + str(transport.get_extra_info("peername", ("",))[0])
        self._writable.set()
        self.used = self._loop.time()
        self._connections.add(self)
        self._task = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._frames:
            self._transport.pause_reading()  # the client has to wait: one request at a time
        elif self._take_frames() and self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _take_frames(self) -> bool:
        """Cut whole frames off what was received."""
        received, at = self._received, 0
        while len(received) - at >= 4:
            (size,) = _LENGTH.unpack_from(received, at)
            if not 0 <= size <= _FRAME_MOST or (size > _SMALL_MOST and not self._produces(at)):
                log.warning("%s sent a frame of %d bytes: closed", self._host, size)
                self._transport.abort()
                return False
            if len(received) - at - 4 < size:
                break
            with memoryview(received) as view:
                self._frames.append(bytes(view[at + 4 : at + 4 + size]))
            at += 4 + size
        del received[:at]
        return bool(self._frames)

    def _produces(self, at: int) -> bool:
        """Whether the frame there is a Produce request, as far as one can see yet."""
        return bytes(self._received[at + 4 : at + 6]) in (b"", b"\0", b"\0\0")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def _serve(self) -> None:
        try:
            while True:
                while not self._frames:
                    if self._take_frames():
                        break
                    self._transport.resume_reading()
                    self._wake = self._loop.create_future()
                    await self._wake
                self.used = self._loop.time()
                await self._answer(self._repeats.decode(self._frames[0]))
                self._frames.popleft()
        except (Malformed, Refused) as error:
            log.warning("%s: %s: closed", self._host, error)
        except Exception:
            log.exception("%s: a request failed: closed", self._host)
        finally:
            self._transport.close()

    async def _answer(self, request: Request) -> None:
        call = Call(request.version, request.client_id or "", self._host)
        answer = await HANDLERS[request.key](self._broker, request.body, call)
        if answer is None:
            return
        # an unknown ApiVersions version is answered in version 0, which everybody reads
        version = request.version if request.body is not None else 0
        self._transport.write(self._repeats.encode(request, version, answer))
        await self._writable.wait()

    def close(self) -> None:
        """End the connection; what it waits for is given up."""
        self._transport.abort()
