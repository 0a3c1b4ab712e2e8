"""The edge: HTTP in, SSE out."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from redis.asyncio import Redis

from pipeline.lanes import shares
from pipeline.log import LogUnavailable
from pipeline.member import Fatal, Member
from pipeline.members import REST, Members
from pipeline.presence import Presence
from pipeline.settings import EdgeSettings
from pipeline.table import Table
from pipeline.watchdog import Watchdog
from schemas.codec import decode
from schemas.models import Model

from .admission import Admission
from .app import App
from .attachments import REPEAT, Attachments
from .edge import Edge
from .feeds import Feeds
from .follow import Follower
from .idempotency import Idempotency, connect
from .outbox import Outbox
from .server import Server
from .tail import Tails

NO_PLACE = 75  # exit code: port, lock or space
SILENT = 5.0  # s without an acked status, after which the broker counts as away
TICK = 1.0  # s
MARGIN = 3.0  # s of the drain limit kept for closing what is still open


class Host(Protocol):
    """What takes requests to the application: a server of sockets, or of a simulation."""

    async def listen(self) -> int: ...
    def stamp(self, now: float) -> None: ...
    def refuse_new(self) -> None: ...
    async def idle(self, timeout: float) -> bool: ...
    async def close(self) -> None: ...


async def run(member: Member) -> None:
    """Serve until `draining` is set and what is open has ended, or its time is over.

    Raises Fatal when it cannot listen.
    """
    settings = member.settings
    store = connect(settings.store.url)
    await serve(member, lambda app: Server(app, settings.edge), store)


async def serve(member: Member, host: Callable[[App], Host], store: Redis | None) -> None:
    """The same, behind whatever `host` makes."""
    urgent = await member.log.writer("edge")
    bulk = await member.log.writer("edge-status")
    edge = assemble(member, Outbox(member, urgent), store)
    presence = Presence(member, bulk, lambda: {"slots": edge.tails.slots})
    server = host(App(edge))
    member.http = await listen(server, member.settings.edge)
    await open_tail(edge)
    note_missing(edge, 0.0)
    member.missing.pop("start", None)
    work: list[asyncio.Task[None]] = [
        asyncio.create_task(task)
        for task in (
            edge.tails.shared.run(),
            edge.members.run(),
            edge.models.run(),
            presence.run(),
            tick(edge, server, presence),
            Watchdog(member.log.admin, writers=[urgent, bulk]).run(),
        )
    ]
    drained = asyncio.create_task(_until(member.draining))
    try:
        await asyncio.wait({*work, drained}, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()  # one of them died: so does this process
        await drain(edge, server)
    finally:
        for task in (*work, drained):
            task.cancel()
        await asyncio.gather(*work, drained, return_exceptions=True)
        await server.close()
        await presence.leave()
        await edge.tails.close()
        await urgent.close()
        await bulk.close()


async def listen(server: Host, settings: EdgeSettings) -> str:
    """The URL. Raises Fatal: the port is taken, or may not be used."""
    try:
        port = await server.listen()
    except OSError as error:
        raise Fatal(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror}): free it, or choose "
            "another one with --http or --host",
            NO_PLACE,
        ) from error
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{shown}:{port}"


async def open_tail(edge: Edge) -> None:
    """Not ready before the positions of the own slots are known, however long that takes."""
    while not edge.member.draining.is_set():
        try:
            await edge.tails.shared.open()
            return
        except LogUnavailable as error:
            edge.member.missing["start"] = f"no position in hr.tokens yet: {error}"
            await asyncio.sleep(TICK)


def assemble(member: Member, outbox: Outbox, store: Redis | None) -> Edge:
    settings, topics = member.settings.edge, member.topics
    feeds = Feeds()
    tails = Tails(member, feeds)
    target = {
        "gold": settings.drain_gold,
        "silver": settings.drain_silver,
        "bronze": settings.drain_bronze,
    }
    orchestration = member.settings.orchestration
    weights = {
        "gold": orchestration.weight_gold,
        "silver": orchestration.weight_silver,
        "bronze": orchestration.weight_bronze,
    }
    return Edge(
        member=member,
        members=Members(member.log, topics, rest=REST),
        models=Table(member.log, topics.models, _model),
        feeds=feeds,
        tails=tails,
        follower=Follower(member, tails),
        outbox=outbox,
        attachments=Attachments(member, outbox),
        admission=Admission(target, member.chance, shares(weights, orchestration.floor)),
        idempotency=Idempotency(store, topics.prefix),
    )


def _model(value: bytes) -> Model:
    model: Model = decode(value, Model)
    return model


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def tick(edge: Edge, server: Host, presence: Presence) -> None:
    """Once a second, and more often while something is missing: what `/readyz` names, who needs a ping,
    and now and then the attachments again."""
    loop = asyncio.get_running_loop()
    pinged = repeated = loop.time()
    while True:
        server.stamp(edge.member.clock.ms() / 1000)
        note_missing(edge, loop.time() - presence.last_ack)
        if loop.time() - pinged >= edge.settings.ping:
            pinged = loop.time()
            ping(edge)
        if loop.time() - repeated >= REPEAT:
            repeated = loop.time()
            edge.attachments.repeat()
        await asyncio.sleep(TICK if edge.member.ready else TICK / 20)


def note_missing(edge: Edge, silent: float) -> None:
    """What `/readyz` names."""
    away = edge.tails.shared.away
    if away is None and silent > SILENT:
        away = f"no status was acknowledged for {silent:.0f} s"
    reasons = {
        "broker": away,
        "status": None if edge.members.caught_up else "reading who is here",
        "models": None if edge.models.caught_up else "reading which models there are",
        "worker": None if edge.members.live("worker") else "no worker is alive",
    }
    for name, why in reasons.items():
        if why is None:
            edge.member.missing.pop(name, None)
        else:
            edge.member.missing[name] = why


def ping(edge: Edge) -> None:
    """Every stream to which nothing was sent since the last time."""
    for feed in edge.feeds.all():
        if not feed.busy:
            feed.ping = True
            feed.wake.set()
        feed.busy = False


async def drain(edge: Edge, server: Host) -> None:
    """Events can be resumed elsewhere and close at once; the others get what time there is."""
    edge.attachments.drain()
    for feed in edge.feeds.all():
        if feed.resumable:
            feed.drain()
    server.refuse_new()
    limit = edge.member.settings.runner.drain_limit
    if await server.idle(limit - MARGIN):
        return
    for feed in edge.feeds.all():
        feed.drain()
    await server.idle(MARGIN / 2)
