"""Real services for tests: started once, on free ports, in directories of their own."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]


def missing(reason: str) -> NoReturn:
    """A service is not there: a skip on a user's machine, a failure where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port(width: int = 1) -> int:
    """The first of `width` neighbouring ports that nobody listens on, below the ephemeral range."""
    start = 20_000 + os.getpid() * 7 % 10_000
    for port in range(start, start + 2_000, width):
        if all(_is_free(port + step) for step in range(width)):
            return port
    raise OSError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass
class ApacheKafka:
    """One cluster through the launcher `$KAFKA_HOME/kafka`; see its own help."""

    launcher: Path
    directory: Path
    port: int
    brokers: int = 1
    bootstrap: str = ""
    properties: tuple[str, ...] = ()  # key=value of server.properties

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--brokers", str(self.brokers)]
        for each in self.properties:
            arguments += ["--set", each]
        self.bootstrap = self._call("start", *arguments).strip()

    def stop(self) -> None:
        self._call("stop")

    def kill(self, broker: int = 1) -> None:
        self._call("kill", "--broker", str(broker))

    def pause(self, broker: int = 1) -> None:
        self._call("pause", "--broker", str(broker))

    def resume(self, broker: int = 1) -> None:
        self._call("resume", "--broker", str(broker))

    def _call(self, command: str, *arguments: str) -> str:
        line = [sys.executable, str(self.launcher), command, "--dir", str(self.directory)]
        done = subprocess.run([*line, *arguments], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"kafka {command}: {done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def apache_kafka(
    directory: Path, brokers: int = 1, properties: tuple[str, ...] = ()
) -> Iterator[ApacheKafka]:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        missing("KAFKA_HOME is not set: Apache Kafka's launcher is not there")
    cluster = ApacheKafka(Path(home) / "kafka", directory, free_port(2 * brokers), brokers)
    cluster.properties = properties
    cluster.start()
    try:
        yield cluster
    finally:
        for number in range(brokers):  # nobody wants its data: it need not end in order
            cluster.kill(number + 1)


@dataclass
class EmbeddedBroker:
    """`python -m pipeline.embedded`, which prints where it listens once it answers."""

    directory: Path
    port: int = 0
    bootstrap: str = ""
    process: subprocess.Popen[str] | None = None
    program: str = "pipeline.embedded"
    arguments: tuple[str, ...] = ()

    def start(self) -> None:
        """On the same port again after a kill."""
        line = [sys.executable, "-m", self.program, "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [*line, "--port", str(self.port), *self.arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        patience = threading.Timer(
            60.0, self.process.kill
        )  # a broker that says nothing ends the wait
        patience.start()
        try:
            for text in self.process.stdout:
                if found := re.search(r"127\.0\.0\.1:(\d+)", text):
                    self.port = int(found[1])
                    self.bootstrap = found[0]
                    return
        finally:
            patience.cancel()
        raise RuntimeError(f"the embedded broker ended with {self.process.wait()}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=20)

    def kill(self, broker: int = 1) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=20)

    def pause(self, broker: int = 1) -> None:
        assert self.process is not None
        self.process.send_signal(19)  # SIGSTOP

    def resume(self, broker: int = 1) -> None:
        assert self.process is not None
        self.process.send_signal(18)  # SIGCONT


@contextmanager
def embedded_broker(directory: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(directory)
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.resume()
            broker.stop()


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """A redis-server on a unix socket; gives its URL."""
    path = directory / "redis.sock"
    line = ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(directory)]
    try:
        process = subprocess.Popen([*line, "--save", ""], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        missing("redis-server is not on the PATH")
    try:
        deadline = time.monotonic() + 20
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("redis-server did not come up")
            time.sleep(0.02)
        yield f"unix://{path}"
    finally:
        process.terminate()
        process.wait(timeout=20)
