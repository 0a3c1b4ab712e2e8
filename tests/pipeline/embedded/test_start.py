"""The broker starts, or says in one line why it does not, and stops when told."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.brokers import ROOT, EmbeddedBroker
from tests.pipeline.embedded.scene import create, fetch, produce, records_of
from tests.pipeline.embedded.wire import Wire, batch


def refused(directory: Path, port: int = 0, *arguments: str) -> str:
    """The one line that a broker says which cannot start."""
    line = [sys.executable, "-m", "pipeline.embedded", "--dir", str(directory)]
    done = subprocess.run(
        [*line, "--port", str(port), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 75
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused(tmp_path, port)


def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    try:
        assert str(tmp_path) in refused(tmp_path)
    finally:
        broker.stop()


def test_data_of_a_newer_release_is_not_touched(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "log.sqlite3")
    db.execute("PRAGMA user_version = 99")
    db.close()
    assert "data version 99" in refused(tmp_path)


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    broker.stop()
    path = tmp_path / "log.sqlite3"
    data = bytearray(path.read_bytes())
    data[4096:20_000] = b"\xa5" * len(data[4096:20_000])
    path.write_bytes(data)
    assert str(path) in refused(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    assert str(tmp_path / "file") in refused(tmp_path / "file" / "log")


def test_a_wrong_address_to_advertise_is_named(tmp_path: Path) -> None:
    assert "host:port" in refused(tmp_path, 0, "--advertise", "nonsense")


@pytest.mark.parametrize("arguments", [(), ("--fsync",)])
async def test_records_survive_a_stop_by_signal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    broker = EmbeddedBroker(tmp_path, arguments=arguments)
    broker.start()
    async with await Wire.connect(broker.bootstrap) as wire:
        await create(wire, "kept")
        await produce(wire, "kept", batch((b"k", b"v")))
    assert broker.process is not None
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(timeout=20) == 0
    broker.start()
    async with await Wire.connect(broker.bootstrap) as wire:
        assert [each[4] for each in records_of(await fetch(wire, "kept", 0))] == [b"v"]
    broker.stop()


async def test_clients_are_told_the_address_to_use(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, arguments=("--advertise", "127.0.0.1:4321"))
    broker.start()
    assert broker.bootstrap == "127.0.0.1:4321"
    broker.stop()
