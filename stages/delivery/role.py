"""The role: follows the ledger, decides the winner in offset order, delivers it."""

import asyncio

from pipeline.dead_letter import REQUEST_LIMIT
from pipeline.member import Member
from pipeline.presence import Presence

from .deliver import Deliver
from .outcomes import Outcomes


async def run(member: Member) -> None:
    """Deliver until `member.draining`; raises what only a new process can mend."""
    writer = await member.log.writer("delivery")
    dead_writer = await member.log.writer("delivery.dead", max_request_size=REQUEST_LIMIT)
    outcomes = Outcomes(member, Deliver(member, writer), dead_writer)
    presence = Presence(member, writer)
    tasks = [
        asyncio.create_task(outcomes.follow.run()),
        asyncio.create_task(outcomes.answer()),
        asyncio.create_task(presence.run()),
    ]
    drained = asyncio.create_task(_drained(member))
    watched: list[asyncio.Future[None]] = [*tasks, drained, outcomes.deliver.failed]
    member.missing.pop("start", None)
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()  # raises what ended it: none but `drained` ends well
        await outcomes.drain()
        await presence.leave()
    finally:
        for future in watched:
            future.cancel()
        await asyncio.gather(*watched, return_exceptions=True)
        await writer.close()
        await dead_writer.close()


async def _drained(member: Member) -> None:
    await member.draining.wait()
