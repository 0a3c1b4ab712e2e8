"""The broker inside the test's own process, where its limits can be set."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.embedded import store, upkeep
from pipeline.embedded.server import serve


@dataclass
class Inside:
    """A broker in this process; `room` limits its file to so many pages."""

    directory: Path
    bootstrap: str = ""
    connections: list[sqlite3.Connection] = field(default_factory=list)

    def room(self, pages: int) -> None:
        self.connections[0].execute(f"PRAGMA max_page_count = {pages}")  # the one that writes


@pytest.fixture
async def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    broker = Inside(tmp_path)
    connected = store._connected

    def watched(path: Path, fsync: bool) -> sqlite3.Connection:
        connection = connected(path, fsync)
        broker.connections.append(connection)
        return connection

    monkeypatch.setattr(store, "_connected", watched)
    monkeypatch.setattr(upkeep, "_INTERVAL", 0.02)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(tmp_path, port=0, ready=ready.set_result))
    broker.bootstrap = f"127.0.0.1:{await asyncio.wait_for(ready, 20)}"
    yield broker
    serving.cancel()
    await asyncio.wait({serving})
