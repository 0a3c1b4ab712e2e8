"""The server: it listens, keeps the log, and stops when told."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from pipeline.embedded import upkeep
from pipeline.embedded.broker import Broker
from pipeline.embedded.connection import Connection
from pipeline.embedded.errors import StartError
from pipeline.embedded.store import Store

_BACKLOG = 1024  # connections waiting to be accepted: storms come


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
        with _stop_signals() as stopped:
            server = await loop.create_server(
                lambda: Connection(broker, connections), sock=listener, backlog=_BACKLOG
            )
            if ready is not None:
                ready(bound)
            try:
                await _until(stopped, upkeep.run(broker, connections))
            finally:
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


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; in another thread than the main one nothing does."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _until(stopped: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it fails, this task is cancelled, or the event is set."""
    tasks = {asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(work)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
