"""How long a queued request still waits: what is before it in its lane, and an estimate.

Neither is in the log, so a stream shows them in an event without id.
"""

import asyncio

import msgspec

from pipeline.log import Record, TopicPartition
from schemas.errors import Refusal
from schemas.ids import partition_of
from schemas.request import LANES

from .edge import Edge
from .feeds import Feed
from .follow import guarded
from .frames import Frames
from .standing import Standing, find

FIRST_AFTER = 1.0  # s in the queue until a stream says so; most requests do not wait that long
LOOK_LIMIT = 1.0  # s a look may hold up its stream


async def position(edge: Edge, standing: Standing) -> int | None:
    """How many requests of its lane were ready before a queued one and have no worker yet; None where
    that cannot be told. Raises Refusal."""
    if standing.state != "queued" or standing.lane not in LANES:
        return None
    topics = edge.member.topics
    partition = partition_of(standing.request_id, topics.ledger_partitions)
    at = TopicPartition(topics.ready(standing.lane), partition)
    record = await guarded(find(edge, at, standing.request_id))
    return None if record is None else await guarded(_before(edge, record))


async def _before(edge: Edge, own: Record) -> int:
    """Records of all partitions of the lane that are older and not yet leased."""
    topics, admin = edge.member.topics, edge.member.log.admin
    lane = [TopicPartition(own.topic, number) for number in range(topics.ledger_partitions)]
    # where orchestration commits what it has leased
    leased = await admin.committed(topics.group("orchestration.ready"), lane)
    starts = await admin.start_offsets([at for at in lane if leased[at] is None])
    ends = await admin.end_offsets(lane)
    later = await admin.offsets_for_time(dict.fromkeys(lane, own.timestamp + 1))
    before = 0
    for at in lane:
        commit, after = leased[at], later[at]
        first = starts[at] if commit is None else commit.offset
        until = own.offset if at == own.at else ends[at] if after is None else after
        before += max(0, until - first)
    return before


def estimate(edge: Edge, standing: Standing) -> float | None:
    """Seconds until a queued request begins, if its lane drains as it does now."""
    if standing.state != "queued" or standing.lane not in LANES:
        return None
    latest = edge.sample(standing.lane)
    return round(latest.drain, 1) if latest.slots else None


def tell_while_queued(
    edge: Edge, standing: Standing, feed: Feed, frames: Frames
) -> asyncio.TimerHandle:
    """Have the stream say how long it waits, soon and then with every ping. Cancel the timer at its end."""

    async def aside() -> bytes:
        if frames.fold.opened or frames.fold.seq or feed.end is not None or feed.only_result:
            return b""
        try:
            async with asyncio.timeout(LOOK_LIMIT):
                place = await position(edge, standing)
        except (TimeoutError, Refusal):
            return b""  # a stream does not end for want of a figure
        said = {"position": place, "estimate": estimate(edge, standing)}
        return b"event: position\ndata: " + msgspec.json.encode(said) + b"\n\n"

    def soon() -> None:
        feed.tell = True
        feed.wake.set()

    feed.aside = aside
    return asyncio.get_running_loop().call_later(FIRST_AFTER, soon)
