"""Simulated processes: the roles that production runs, each on a connection of its own."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from pipeline.member import Member
from pipeline.memory import MemoryLog
from pipeline.simulation.loop import OWNER, VirtualLoop
from stages.delivery.role import run as delivery
from stages.edge.app import App
from stages.edge.role import serve
from stages.ingress.role import run as ingress
from stages.orchestration.role import run as orchestration

from .store import Store


class InlineServer:
    """What an edge's role asks of its server, without sockets: exchanges are calls of the application."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.open = False
        self.calls: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        self.open = True
        return 0

    def stamp(self, now: float) -> None:
        """The `Date` header is the server's, and there is none."""

    def refuse_new(self) -> None:
        self.open = False

    async def idle(self, timeout: float) -> bool:
        if self.calls:
            await asyncio.wait(self.calls, timeout=timeout)
        return not self.calls

    async def close(self) -> None:
        self.open = False


@dataclass(eq=False)
class Process:
    """One life of one member."""

    member: Member
    log: MemoryLog
    task: "asyncio.Task[None] | None" = None
    server: InlineServer = field(default_factory=InlineServer)
    ended: bool = False  # on purpose
    held: bool = False  # paused: what it is asked waits
    context: Context = field(default_factory=copy_context)  # that everything of it runs in
    owner: str = ""

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run its role, in a context that says whose it is."""
        self.owner = self.log.name
        self.context.run(OWNER.set, self.owner)
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(work, name=self.owner, context=self.context)
        return self.task

    def stop(self) -> None:
        """SIGSTOP: time passes, and it does not know."""
        self.held = True
        self.log.pause()
        self._loop.freeze(self.owner)

    def go_on(self) -> None:
        """SIGCONT."""
        self.held = False
        self.log.resume()
        self._loop.thaw(self.owner)

    @property
    def _loop(self) -> VirtualLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop

    def kill(self) -> None:
        """kill -9: nothing more of it is written, and its connections break."""
        self.ended = True
        self.server.open = False
        self.log.cut()
        self._loop.thaw(self.owner)  # what is dead is not stopped any more
        for call in list(self.server.calls):
            call.cancel()
        if self.task is not None:
            self.task.cancel()


async def edge(process: Process, store: Store) -> None:
    """The edge's role without its sockets."""

    def host(app: App) -> InlineServer:
        process.server.app = app
        return process.server

    await serve(process.member, host, store)  # type: ignore[arg-type]  # all that keys need


ROLES: dict[str, Callable[[Member], Coroutine[Any, Any, None]]] = {
    "ingress": ingress,
    "orchestration": orchestration,
    "delivery": delivery,
}


def chance_of(seed: int, name: str, life: int) -> random.Random:
    return random.Random(f"{seed}/{name}/{life}")
