"""What keeps it from starting is said at once, with what to do about it; nothing starts half."""

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.embedded.store import DATA_VERSION
from tests.flow.installation import ROOT, Installation
from tests.pipeline.brokers import ApacheKafka, free_port

NO_PLACE = 75


def up(home: Path, *flags: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    port = free_port(2)
    own = {
        "HEADRACE_HOME": str(home),
        "HEADRACE_WORKER_ENGINE": "null",
        "HEADRACE_EDGE_PORT": str(port),
        "HEADRACE_UP_BROKER_PORT": str(port + 1),
    }
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "up", "--detach", *flags],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, **own, **environment},
    )  # fmt: skip


def check(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_data_of_another_version_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("99\n")
    check(up(tmp_path), NO_PLACE, str(tmp_path), "version 99", "HEADRACE_HOME")


def test_data_of_another_version_of_the_broker_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    with sqlite3.connect(folder / "log.sqlite3") as db:
        db.execute(f"PRAGMA user_version = {DATA_VERSION + 1}")
    check(up(tmp_path), NO_PLACE, str(folder), "version")


@pytest.mark.parametrize("flag", ["--http", "HEADRACE_UP_BROKER_PORT"])
def test_a_taken_port_names_port_and_setting(tmp_path: Path, flag: str) -> None:
    name = {"--http": "HEADRACE_EDGE_PORT"}.get(flag, flag)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        check(up(tmp_path, **{name: port}), NO_PLACE, port, "taken", flag)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    check(
        up(tmp_path / "file" / "home"), NO_PLACE, str(tmp_path / "file" / "home"), "HEADRACE_HOME"
    )


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """A file system of a few pages stands for it, where we may mount one."""
    mounted = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=16k none "$0" && exec "$@"',
         str(tmp_path), sys.executable, "-m", "pipeline", "up", "--detach"],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, "HEADRACE_HOME": str(tmp_path / "home"), "HEADRACE_WORKER_ENGINE": "null"},
    )  # fmt: skip
    if "mount" in mounted.stderr or "unshare" in mounted.stderr:
        pytest.skip("mounting a small file system is not allowed here")
    check(mounted, NO_PLACE, "space")


def test_a_folder_in_use_is_named(narrow: Installation) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "up"],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, **narrow.environment},
    )  # fmt: skip
    check(done, NO_PLACE, str(narrow.home), "headrace down")


def test_no_model_says_how_to_fetch_one(tmp_path: Path) -> None:
    done = up(tmp_path, HEADRACE_WORKER_ENGINE="torch")
    check(done, 1, str(tmp_path / "models"), "headrace models pull smollm2-135m")


def test_no_torch_says_how_to_install_it(tmp_path: Path) -> None:
    hidden = tmp_path / "path"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    done = up(tmp_path / "home", HEADRACE_WORKER_ENGINE="torch", PYTHONPATH=str(hidden))
    check(done, 1, "torch is not installed", "pip install")


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    check(up(tmp_path, HEADRACE_EDGE_PROT="1"), 2, "HEADRACE_EDGE_PROT", "HEADRACE_EDGE_PORT")


def test_no_broker_at_the_address_is_said(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    check(up(tmp_path, "--kafka", address), 1, address)
    check(up(tmp_path, HEADRACE_KAFKA_BOOTSTRAP=address), 1, address)  # none of its own is started


@pytest.mark.kafka
def test_without_the_right_to_create_topics_they_are_named(
    guarded_kafka: ApacheKafka, tmp_path: Path
) -> None:
    done = up(
        tmp_path, "--kafka", guarded_kafka.bootstrap,
        HEADRACE_KAFKA_SECURITY_PROTOCOL="SASL_SSL",
        HEADRACE_KAFKA_SSL_CAFILE=str(guarded_kafka.directory / "cert.pem"),
        HEADRACE_KAFKA_SASL_USERNAME="guest", HEADRACE_KAFKA_SASL_PASSWORD="guest",
    )  # fmt: skip
    check(done, 1, "hr.requests", "hr.results", "right Create is missing")
