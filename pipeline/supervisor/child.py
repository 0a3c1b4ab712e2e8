"""One supervised process: started, watched, restarted, drained."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .log_file import LogFile

BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # s before the next start; the first restart is at once
HEALTHY_AFTER = 30.0  # s alive, after which the back-off begins anew
FATAL = (2, 75)  # usage; port, lock or space: starting again would not help
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """In the child, before exec: the supervisor's own kill -9 takes its children along (Linux)."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(slots=True)
class Child:
    """A process that is kept alive until it is told to stop.

    `state`: starting, ready, backoff, draining, stopped, failed.
    """

    role: str
    id: str
    command: Sequence[str]
    log: LogFile
    environment: Mapping[str, str] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None
    on_line: Callable[[str], None] | None = None  # its standard output, line by line
    probe: Callable[[], Awaitable[None]] | None = (
        None  # returns once it answers, for who says nothing
    )
    state: str = "starting"
    http: str | None = None
    missing: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    exit_code: int | None = None
    process: asyncio.subprocess.Process | None = None
    stopping: bool = False
    last_lines: list[str] = field(default_factory=list)  # of standard error, for a clear failure

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def become(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.changed()

    async def keep(self) -> None:
        """Start, wait, start again; returns when stopped, or failed for good."""
        loop = asyncio.get_running_loop()
        failures = 0
        while not self.stopping:
            self.become("starting")
            begun = loop.time()
            await self._once()
            if self.stopping:
                break
            if self.exit_code in FATAL:
                self.become("failed")
                return
            if loop.time() - begun > HEALTHY_AFTER:
                failures = 0
            delay = BACKOFF[min(failures, len(BACKOFF) - 1)]
            failures += 1
            self.restarts += 1
            if delay:
                self.become("backoff")
                await asyncio.sleep(delay)
        self.become("stopped")

    async def _once(self) -> None:
        self.http = None
        self.last_lines = []
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.environment},
            preexec_fn=_die_with_parent,
        )
        self.changed()
        probing = asyncio.create_task(self._probe())
        try:
            await self._until_ended(self.process)
        finally:
            probing.cancel()

    async def _probe(self) -> None:
        if self.probe is not None:
            await self.probe()
            self.become("ready")

    async def _until_ended(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        await asyncio.gather(
            self._pump(process.stdout, self.on_line),
            self._pump(process.stderr, self._remember),
        )
        self.exit_code = await process.wait()
        self.log.write(f"--- {self.id} exited with {self.exit_code}\n".encode())

    async def _pump(
        self, stream: asyncio.StreamReader, on_line: Callable[[str], None] | None
    ) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line beyond asyncio's limit: its rest follows
                continue
            if not line:
                return
            self.log.write(line)
            if on_line is not None:
                on_line(line.decode("utf-8", "replace").rstrip("\n"))

    def _remember(self, line: str) -> None:
        self.last_lines = [*self.last_lines[-19:], line]

    async def stop(self, limit: float) -> None:
        """SIGTERM, then SIGKILL after `limit` seconds."""
        self.stopping = True
        process = self.process
        if process is None or process.returncode is not None:
            return
        self.become("draining")
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), limit)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self.become("stopped")


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def log_path(folder: Path, child_id: str) -> Path:
    return folder / f"{child_id}.log"
