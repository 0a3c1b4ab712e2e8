"""Starts everything, shows why it waits, restarts what dies, drains on the way out."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from .child import Child, python
from .home import HomeError
from .log_file import LogFile
from .plan import ROLES, Plan, check_ports, store_command

BROKER_START = 30.0  # s until the embedded broker must have named its address
STORE_START = 30.0  # s: it reads its append-only file first
STOPPED_LATER = {"delivery": 1, "store": 2, "broker": 2}  # every other role first
DRAIN_LIMIT = 25.0  # s a role has to finish or hand over
DRAIN_MARGIN = 3.0  # s more before SIGKILL: a role that uses its whole limit still says goodbye


class StartError(Exception):
    """A child that everything needs did not start; carries its last words."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Supervisor:
    plan: Plan
    prepare: Callable[[str], Any]  # async (bootstrap): declares topics, publishes models
    children: list[Child] = field(default_factory=list)
    kafka: str = ""
    store: str = ""
    doing: str = "starting"
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _drain: "asyncio.Task[None] | None" = None

    async def run(self) -> None:
        """Until SIGTERM or SIGINT; twice SIGINT stops without draining. Raises StartError, HomeError."""
        home = self.plan.home
        home.prepare()
        lock = home.lock()
        try:
            check_ports(self.plan)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.request_stop)
            await self._start()
            await self._stop.wait()
            await self._shut_down()
        finally:
            for child in self.children:
                if child.process is not None and child.process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.process.kill()
            home.state_file.unlink(missing_ok=True)
            lock.close()

    def request_stop(self) -> None:
        if self._stop.is_set():  # the second time: now
            for child in self.children:
                child.stopping = True
                if child.process is not None and child.process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.process.kill()
        self._stop.set()

    async def _start(self) -> None:
        if self.plan.kafka is None:
            self.kafka = await self._start_broker()
        else:
            self.kafka = self.plan.kafka
        self.store = await self._start_store() if self.plan.store is None else self.plan.store
        self._say("declaring topics and models")
        await self.prepare(self.kafka)
        self._say("waiting for the roles")
        for role in ROLES:
            for number in range(1, self.plan.count(role) + 1):
                self._start_role(role, number)
        self._say("")

    async def _start_broker(self) -> str:
        self._say("starting the embedded broker")
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_line(line: str) -> None:
            if not address.done() and ":" in line:
                address.set_result(line.split()[-1])
            child.become("ready")

        command = python("-m", "pipeline.embedded", "--dir", str(self.plan.home.broker))
        command += ["--host", self.plan.host, "--port", str(self.plan.broker_port)]
        if self.plan.advertise:
            command += ["--advertise", self.plan.advertise]
        if self.plan.fsync:
            command.append("--fsync")
        child = self._child("broker", "broker", command, on_line)
        await self._first(address, child, BROKER_START)
        return address.result()

    async def _start_store(self) -> str:
        found = store_command(self.plan.home)
        if found is None:
            return ""
        command, path = found
        path.unlink(missing_ok=True)
        self._say("starting the store")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def probe() -> None:
            await _answers(str(path))
            if not answered.done():
                answered.set_result(None)

        child = self._child("store", "store", command, probe=probe)
        await self._first(answered, child, STORE_START)
        return f"unix://{path}"

    async def _first(self, sign: "asyncio.Future[Any]", child: Child, limit: float) -> None:
        """Wait for a sign of life, or for the child's end, whichever comes first. Raises StartError."""
        deadline = asyncio.get_running_loop().time() + limit
        while not sign.done():
            if child.exit_code is None and asyncio.get_running_loop().time() < deadline:
                await asyncio.wait({sign}, timeout=0.05)
                continue
            sign.cancel()
            child.stopping = True
            fault = (
                "did not start" if child.exit_code is not None else f"is silent for {limit:.0f} s"
            )
            words = "\n".join(child.last_lines[-5:])
            raise StartError(f"{child.id} {fault}:\n{words}", child.exit_code or 1)

    def _start_role(self, role: str, number: int) -> None:
        child_id = f"{role}-{number}"

        def on_line(line: str) -> None:
            self._hear(child, line)

        command = python("-m", "pipeline", "serve", role, "--id", child_id)
        if role == "edge":
            command += ["--http", str(self.plan.http + number - 1 if self.plan.http else 0)]
        child = self._child(role, child_id, command, on_line)

    def _hear(self, child: Child, line: str) -> None:
        """A role says on its standard output where it listens and what it waits for."""
        try:
            said = json.loads(line)
        except ValueError:
            return
        child.http = said.get("http", child.http)
        child.missing = said.get("missing", {})
        if child.state in ("starting", "ready"):
            child.become("starting" if child.missing else "ready")
        self._write_state()

    def _child(
        self,
        role: str,
        child_id: str,
        command: list[str],
        on_line: Callable[[str], None] | None = None,
        probe: Callable[[], Awaitable[None]] | None = None,
    ) -> Child:
        log = LogFile(self.plan.home.logs / f"{child_id}.log")
        environment = {
            **self.plan.environment,
            "HEADRACE_HOME": str(self.plan.home.path),
            "HEADRACE_KAFKA_BOOTSTRAP": self.kafka,
            "HEADRACE_STORE_URL": self.store,
            "HEADRACE_SUPERVISED": "1",
        }
        child = Child(role, child_id, command, log, environment, self._write_state, on_line, probe)
        self.children.append(child)
        task = asyncio.create_task(child.keep())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return child

    def _say(self, doing: str) -> None:
        self.doing = doing
        self._write_state()

    def state(self) -> dict[str, Any]:
        roles = [
            {
                "role": child.role,
                "id": child.id,
                "pid": child.pid,
                "state": child.state,
                "http": child.http,
                "metrics": f"{child.http}/metrics" if child.http else None,
                "restarts": child.restarts,
                "missing": child.missing,
                "words": child.last_lines[-5:] if child.state in ("failed", "backoff") else [],
            }
            for child in self.children
        ]
        return {
            "pid": os.getpid(),
            "kafka": self.kafka,
            "store": self.store,
            "doing": self.doing,
            "said": dict(self.plan.said),
            "roles": roles,
        }

    def _write_state(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the supervision
            self.plan.home.write_state(self.state())

    async def _shut_down(self) -> None:
        """Edges stop taking, then everyone finishes or hands over, then delivery, store and broker."""
        self._say("draining")
        limit = DRAIN_LIMIT + DRAIN_MARGIN
        by_order: tuple[list[Child], ...] = ([], [], [])
        for child in self.children:
            by_order[STOPPED_LATER.get(child.role, 0)].append(child)
        for group in by_order:
            await asyncio.gather(*(child.stop(limit) for child in group))
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _answers(path: str) -> None:
    """Until the store answers a ping."""
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.write(b"PING\r\n")
        reply = await reader.readline()
        writer.close()
        if reply.startswith(b"+PONG"):
            return
        await asyncio.sleep(0.05)  # still loading its append-only file


__all__ = ["HomeError", "StartError", "Supervisor"]
