"""The role: makes the parts, lets them look at one another, runs them, drains."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from pipeline import logs
from pipeline.dead_letter import REQUEST_LIMIT
from pipeline.log import LogUnavailable
from pipeline.member import Member
from pipeline.members import Members
from pipeline.presence import Presence
from pipeline.table import Table
from schemas.codec import decode
from schemas.models import Model

from .arrivals import Arrivals
from .control import Control
from .desk import Desk
from .dispatch import Dispatch
from .doubts import Doubts
from .endings import Endings
from .figures import Figures
from .fleet import Fleet
from .ledger import Ledger
from .missing import Missing
from .oversight import Oversight
from .queue import ReadyQueue, lane_weights
from .recovery import Recovery
from .slots import SlotEnds
from .wakes import Wakes

RETRY = 0.5  # s between tries while no broker answers
DRAIN = 5.0  # s at most until leases on their way have become orders


async def run(member: Member) -> None:
    """Orchestrate until `member.draining`; raises what only a new process can mend."""
    settings = member.settings.orchestration
    log, topics = member.log, member.topics
    writer = await log.writer("orchestration")
    dead_writer = await log.writer("orchestration.dead", max_request_size=REQUEST_LIMIT)
    members = Members(log, topics, dead_after=settings.dead_after)
    desk = Desk(
        member,
        writer,
        dead_writer,
        members,
        Table(log, topics.models, lambda value: decode(value, Model)),
        Fleet(members, member.epoch),
        ReadyQueue(lane_weights(settings), settings.floor),
        SlotEnds(log, topics),
    )
    oversight = Oversight()
    ledger = Ledger(desk, oversight)
    figures = connect(desk, oversight, ledger)
    members.subscribe(oversight.heard)
    presence = Presence(member, writer, lambda: {"orchestrator": figures.now()})
    parts: list[Coroutine[Any, Any, None]] = [
        members.run(),
        desk.models.run(),
        desk.slots.run(),
        ledger.run(),
        oversight.arrivals.run(),
        oversight.control.run(),
        oversight.doubts.run(),
        oversight.missing.run(),
        oversight.recovery.run(),
        oversight.run(),
        figures.run(),
        presence.run(),
    ]
    await _first_sample(desk.slots)
    tasks = [asyncio.create_task(part) for part in parts]
    ready = asyncio.create_task(_ready(desk))
    drained = asyncio.create_task(_drained(member))
    watched: list[asyncio.Future[None]] = [*tasks, drained, desk.failed]
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()  # raises what ended it: none but `drained` ends well
        await _drain(desk)
        await presence.leave()
    finally:
        for future in (*watched, ready):
            future.cancel()
        await asyncio.gather(*watched, ready, return_exceptions=True)
        await oversight.endings.close()
        await writer.close()
        await dead_writer.close()


def connect(desk: Desk, oversight: Oversight, ledger: Ledger) -> Figures:
    """The parts of one orchestrator, each with those it needs."""
    wakes = Wakes(desk)
    endings = Endings(desk)
    dispatch = Dispatch(desk, endings, wakes)
    doubts = Doubts(desk, ledger, endings)
    recovery = Recovery(desk, dispatch, endings)
    arrivals = Arrivals(desk, dispatch, endings, doubts)
    oversight.desk, oversight.wakes, oversight.endings = desk, wakes, endings
    oversight.dispatch, oversight.doubts, oversight.recovery = dispatch, doubts, recovery
    oversight.missing = Missing(desk, ledger, dispatch, recovery)
    oversight.control = Control(desk)
    oversight.arrivals = arrivals
    figures = Figures(desk, arrivals)
    dispatch.leased = figures.count
    return figures


async def _first_sample(slots: SlotEnds) -> None:
    while True:
        try:
            return await slots.sample()
        except LogUnavailable as error:
            logs.warn("slot_ends", error=error)
            await asyncio.sleep(RETRY)


async def _ready(desk: Desk) -> None:
    """Say what is missing until everything that we must not miss has been read."""
    missing = desk.member.missing
    missing["status"] = "reading hr.status"
    missing["models"] = "reading hr.models"
    missing.pop("start", None)
    await desk.members.complete.wait()
    desk.fleet.listening()
    missing.pop("status", None)
    await desk.models.until_caught_up()
    missing.pop("models", None)


async def _drained(member: Member) -> None:
    await member.draining.wait()


async def _drain(desk: Desk) -> None:
    """Nothing new is leased; what was leased becomes an order, or the next owner sends it."""
    try:
        async with asyncio.timeout(DRAIN):
            await desk.settled()
        await desk.writer.flush(DRAIN)
    except (TimeoutError, LogUnavailable) as error:
        logs.warn("drain_limit", leases=len(desk.pending), error=repr(error))
