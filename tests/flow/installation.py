"""A whole Headrace as a user runs it: `headrace up` in a folder of its own, real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pipeline.brokers import ApacheKafka, free_port, missing

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def models_folder() -> Path:
    """Where `make test` has put the model."""
    folder = Path(os.environ.get("TEST_MODELS", ROOT / ".headrace" / "models"))
    if not (folder / MODEL_FILE).is_file():
        missing(f"{MODEL_FILE} is not in {folder}: headrace models pull {MODEL}")
    return folder


@dataclass
class Installation:
    home: Path
    broker: str  # embedded | apache
    environment: dict[str, str]
    flags: list[str] = field(default_factory=list)
    cluster: ApacheKafka | None = None  # where the broker is no child of the supervisor

    def call(self, *arguments: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "pipeline", *arguments],
            capture_output=True, text=True, timeout=timeout, cwd=ROOT,
            env={**os.environ, **self.environment},
        )  # fmt: skip

    def up(self) -> None:
        done = self.call("up", "--detach", *self.flags, timeout=300)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.words()}"

    def down(self) -> None:
        done = self.call("down", timeout=120)
        assert done.returncode in (0, 3), done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.call("status", "--json").stdout)
        return state

    def state(self) -> dict[str, Any]:
        """What the supervisor last wrote: `status` without a process."""
        state: dict[str, Any] = json.loads((self.home / "run" / "supervisor.json").read_text())
        return state

    def member(self, member_id: str) -> dict[str, Any]:
        found: dict[str, Any] = next(r for r in self.state()["roles"] if r["id"] == member_id)
        return found

    def url(self, number: int = 1) -> str:
        return str(self.member(f"edge-{number}")["http"])

    @property
    def kafka(self) -> str:
        return str(self.state()["kafka"])

    @property
    def prefix(self) -> str:
        return self.environment.get("HEADRACE_TOPICS_PREFIX", "hr")

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def kill(self, member_id: str, number: int = signal.SIGKILL) -> int:
        pid = int(self.member(member_id)["pid"])
        os.kill(pid, number)
        return pid

    def restart(self, member_id: str, number: int = signal.SIGKILL) -> None:
        """Signal it and wait for its next life; `broker` is whichever there is."""
        if member_id == "broker" and self.cluster is not None:
            assert number == signal.SIGKILL
            self.cluster.kill()
            self.cluster.start()
        else:
            self.until_ready(member_id, other_than=self.kill(member_id, number))

    def until_ready(
        self, member_id: str, *, other_than: int | None = None, limit: float = 60
    ) -> None:
        """Wait until a member is ready (in another life than the process `other_than`)."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            member = self.member(member_id)
            if member["state"] == "ready" and member["pid"] != other_than:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{member_id} is not ready: {self.member(member_id)}{self.words()}")

    @contextmanager
    def paused(self, *member_ids: str) -> Iterator[None]:
        """These processes stand still, as on a machine that hangs; `broker` is whichever there is."""
        for each in member_ids:
            if each == "broker" and self.cluster is not None:
                self.cluster.pause()
            else:
                self.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in member_ids:
                if each == "broker" and self.cluster is not None:
                    self.cluster.resume()
                else:
                    self.kill(each, signal.SIGCONT)

    def words(self, lines: int = 30) -> str:
        """The ends of the logs, for a failure that explains itself."""
        parts = []
        for log in sorted((self.home / "logs").glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"--- {log.name}\n" + "\n".join(tail))
        return "\n".join(parts)


@contextmanager
def installation(
    home: Path, broker: str, cluster: ApacheKafka | None = None, **environment: str
) -> Iterator[Installation]:
    """Started, and stopped with everything that it started."""
    home.mkdir(parents=True, exist_ok=True)
    engine = environment.get("HEADRACE_WORKER_ENGINE", "torch")
    if engine == "torch":
        (home / "models").mkdir(exist_ok=True)
        for name in (MODEL_FILE, "models.json"):
            link(models_folder() / name, home / "models" / name)
        cache = models_folder().parent / "cache"  # of compiled kernels: the same ones every time
        cache.mkdir(exist_ok=True)
        (home / "cache").symlink_to(cache)
    edges = int(environment.get("HEADRACE_UP_EDGES", "1"))
    port = free_port(edges + 1)
    made = Installation(
        home,
        broker,
        {
            "HEADRACE_HOME": str(home),
            "HEADRACE_EDGE_PORT": str(port),
            "HEADRACE_UP_BROKER_PORT": str(port + edges),
            **environment,
        },
        ["--kafka", cluster.bootstrap] if cluster else [],
        cluster,
    )
    try:
        made.up()
        yield made
    finally:
        made.down()


def link(source: Path, target: Path) -> None:
    """The same file without its bytes, where the file system can."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
