"""The server: connections, one request of each at a time, handed to its handler."""

from __future__ import annotations

import asyncio
import collections
import logging
import signal
import socket
import sqlite3
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from pipeline.embedded import handle_configs, handle_groups, handle_log, handle_topics, upkeep
from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused, StartError
from pipeline.embedded.guard import Malformed
from pipeline.embedded.protocol import (
    API_VERSIONS,
    APIS,
    Answer,
    Request,
    decode,
    encode,
)
from pipeline.embedded.store import Store

log = logging.getLogger(__name__)

_FRAME_MOST = 100 << 20  # bytes: Kafka's socket.request.max.bytes
_LENGTH = struct.Struct(">i")
_BACKLOG = 1024  # connections waiting to be accepted: storms come

Handler = Callable[[Broker, Any, Call], Awaitable[Answer | None]]


async def api_versions(broker: Broker, request: Any, call: Call) -> Answer:
    """What is served; a client with a newer version asks again with version 0."""
    return {
        "error_code": Code.none if request is not None else Code.unsupported_version,
        "api_keys": [
            {"api_key": key, "min_version": api.least, "max_version": api.most}
            for key, api in APIS.items()
        ],
    }


_MODULES = (handle_log, handle_topics, handle_configs, handle_groups)
HANDLERS: dict[int, Handler] = {
    key: api_versions
    if key == API_VERSIONS
    else next(getattr(module, api.name) for module in _MODULES if hasattr(module, api.name))
    for key, api in APIS.items()
}


class Connection(asyncio.Protocol):
    """One client. Requests are answered in their order, as the protocol demands."""

    def __init__(self, broker: Broker, connections: set[Connection]) -> None:
        self._broker = broker
        self._connections = connections
        self._received = bytearray()
        self._frames: collections.deque[bytes] = collections.deque()
        self._wake: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._host = ""
        self.used = 0.0  # loop time of the last sign of life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
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
            if not 0 <= size <= _FRAME_MOST:
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
                await self._answer(decode(self._frames[0]))
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
        self._transport.write(encode(request, version, answer))
        await self._writable.wait()

    def close(self) -> None:
        """End the connection; what it waits for is given up."""
        self._transport.abort()


async def serve(
    directory: Path,
    host: str = "127.0.0.1",
    port: int = 19092,
    *,
    advertise: str | None = None,
    fsync: bool = False,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Serve the log in `directory` until cancelled or told to stop (SIGTERM, SIGINT).

    `port` 0 takes a free one. `advertise` (host:port) is the address that clients are told.
    `ready` gets the port once it listens. With `fsync` an acknowledged record survives a power
    loss, without it the death of the process. Raises `StartError`.
    """
    loop = asyncio.get_running_loop()
    listener = _bound(host, port)
    bound = int(listener.getsockname()[1])
    try:
        store = Store(directory, fsync=fsync)
    except StartError:
        listener.close()
        raise
    connections: set[Connection] = set()
    try:
        broker = Broker(store, *_address(advertise, host, bound))
        await broker.start()
        server = await loop.create_server(
            lambda: Connection(broker, connections), sock=listener, backlog=_BACKLOG
        )
        if ready is not None:
            ready(bound)
        await _until_stopped(upkeep.run(broker, connections))
        server.close()
        for connection in list(connections):
            connection.close()
    except sqlite3.Error as error:
        raise StartError(f"{store.path}: {error}") from error
    finally:
        listener.close()
        await store.close()


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise StartError(
            f"cannot listen on {host}:{port} ({error.strerror}): stop what uses it, or take"
            " another --port"
        ) from error


def _address(advertise: str | None, host: str, port: int) -> tuple[str, int]:
    """The address that clients are told."""
    if advertise is None:
        return host, port
    name, _, number = advertise.rpartition(":")
    if not name or not number.isdigit():
        raise StartError(f"--advertise takes host:port, not {advertise}")
    return name.strip("[]"), int(number)


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it fails, this task is cancelled, or the process is told to stop."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            loop.add_signal_handler(number, stopped.set)
    stop = loop.create_task(stopped.wait())
    working = loop.create_task(work)
    try:
        await asyncio.wait({stop, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (stop, working):
            task.cancel()
        await asyncio.gather(stop, working, return_exceptions=True)
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                loop.remove_signal_handler(number)
