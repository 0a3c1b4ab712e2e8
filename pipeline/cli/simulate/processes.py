"""Simulated processes: the roles that production runs, each on a connection of its own."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from pipeline.member import Member
from pipeline.memory import MemoryLog
from pipeline.presence import Presence
from pipeline.simulation.loop import OWNER, VirtualLoop
from stages.delivery.role import run as delivery
from stages.edge.app import App
from stages.edge.edge import Edge
from stages.edge.idempotency import Idempotency
from stages.edge.outbox import Outbox
from stages.edge.role import assemble, drain, note_missing, tick
from stages.ingress.role import run as ingress
from stages.orchestration.role import run as orchestration

from .store import Store


class InlineServer:
    """What an edge's role asks of its server, without sockets: exchanges are calls of the application."""

    def __init__(self) -> None:
        self.calls: set[asyncio.Task[None]] = set()
        self.open = True

    def stamp(self, now: float) -> None:
        """The `Date` header is the server's, and there is none."""

    def refuse_new(self) -> None:
        self.open = False

    async def idle(self, timeout: float) -> bool:
        if self.calls:
            await asyncio.wait(self.calls, timeout=timeout)
        return not self.calls


@dataclass(eq=False)
class Process:
    """One life of one member."""

    member: Member
    log: MemoryLog
    task: "asyncio.Task[None] | None" = None
    app: App | None = None  # of an edge, once it serves
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
        self.app = None
        self.log.cut()
        self._loop.thaw(self.owner)  # what is dead is not stopped any more
        for call in list(self.server.calls):
            call.cancel()
        if self.task is not None:
            self.task.cancel()


async def edge(process: Process, store: Store) -> None:
    """The edge's role without its sockets."""
    member = process.member
    urgent = await member.log.writer("edge")
    bulk = await member.log.writer("edge-bulk")
    made: Edge = assemble(member, Outbox(member, urgent))
    made.idempotency = Idempotency(store, member.topics.prefix)  # type: ignore[arg-type]
    presence = Presence(member, bulk, lambda: {"slots": made.tails.slots})
    await made.tails.shared.open()
    note_missing(made, 0.0)
    member.missing.pop("start", None)
    process.app = App(made)
    server: Any = process.server
    work = [
        asyncio.create_task(each)
        for each in (
            made.tails.shared.run(),
            made.members.run(),
            made.models.run(),
            presence.run(),
            tick(made, server, presence),
        )
    ]
    drained = asyncio.create_task(_until(member.draining))
    try:
        await asyncio.wait({*work, drained}, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()
        await drain(made, server)
    finally:
        process.app = None
        for task in (*work, drained):
            task.cancel()
        await asyncio.gather(*work, drained, return_exceptions=True)
        await presence.leave()
        await made.tails.close()
        await urgent.close()
        await bulk.close()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


ROLES: dict[str, Callable[[Member], Coroutine[Any, Any, None]]] = {
    "ingress": ingress,
    "orchestration": orchestration,
    "delivery": delivery,
}


def chance_of(seed: int, name: str, life: int) -> random.Random:
    return random.Random(f"{seed}/{name}/{life}")
