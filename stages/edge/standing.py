"""How a request stands, from the log alone: its result, its slot, its lane, the door."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pipeline.log import Record, TopicPartition
from pipeline.lookup import scan
from schemas.codec import Unreadable, decode, text_header
from schemas.errors import Refusal
from schemas.folds import SlotFold
from schemas.ids import InvalidId, birth, partition_of
from schemas.intake import parse_body
from schemas.request import LANES, TIER_LANES
from schemas.result import Result
from schemas.tokens import Admitted, Chunk, End, Open, decode_event
from schemas.work import Ready

from .edge import Edge
from .feeds import Feed
from .follow import CLOCK_SKEW, guarded, over_budget, since
from .outbox import door_of


@dataclass(slots=True)
class Standing:
    """`result` once it has ended; what is not known yet is None."""

    request_id: str
    tenant: str = "default"
    lane: str | None = None
    model: str | None = None
    kind: str = "chat"
    correlation_id: str | None = None
    attempt: int = 0
    output_tokens: int = 0
    result: Result | None = None
    fold: SlotFold = field(default_factory=SlotFold)

    @property
    def state(self) -> str:
        if self.result is not None:
            return self.result.outcome
        return "running" if self.attempt else "queued"

    def body(self) -> dict[str, Any]:
        """What POST, GET and DELETE answer."""
        return {
            "id": self.request_id,
            "object": "request",
            "state": self.state,
            "created": birth(self.request_id) // 1000,
            "model": self.model,
            "lane": self.lane,
            "events_url": f"/v1/requests/{self.request_id}/events",
        }


def check_id(edge: Edge, request_id: str) -> None:
    """Raises Refusal: no id of ours, or of a time that is still to come."""
    try:
        born = birth(request_id)
    except InvalidId as error:
        raise Refusal("request_not_found", str(error)) from error
    if born > edge.member.clock.ms() + CLOCK_SKEW:
        raise not_found(request_id)


def not_found(request_id: str) -> Refusal:
    return Refusal("request_not_found", f"there is no request {request_id}")


async def look(edge: Edge, request_id: str, tenant: str) -> Standing:
    """Raises Refusal: not found (also another tenant's), gone, or not found in time."""
    check_id(edge, request_id)
    edge.check_broker()
    try:
        async with asyncio.timeout(edge.settings.scan_budget):  # of all places together
            found = await guarded(_look(edge, request_id))
    except TimeoutError as error:
        raise over_budget() from error
    if found is None:
        topics = edge.member.topics
        if birth(request_id) < edge.member.clock.ms() - topics.results_retention_ms:
            raise Refusal("request_gone", f"{request_id} is older than what is kept")
        raise not_found(request_id)
    if found.tenant != tenant:
        raise not_found(request_id)
    return found


async def known(edge: Edge, feed: Feed, tenant: str) -> bool:
    """Whether the log knows the request that an idempotency key names; what it knows is in the feed."""
    feed.result = feed.result or await edge.follower.find_result(feed.request_id)
    await edge.follower.catch_up(feed)
    if feed.seen or feed.result is not None:
        return True
    try:
        await look(edge, feed.request_id, tenant)
    except Refusal as refusal:
        if refusal.code != "request_not_found":
            raise
        return False
    return True


async def _look(edge: Edge, request_id: str) -> Standing | None:
    result = await edge.follower.find_result(request_id)
    if result is not None:
        return _of_result(result)
    standing = await slot(edge, request_id)
    if standing is not None:
        if standing.fold.closed and (result := await edge.follower.find_result(request_id)):
            return _of_result(result)
        return standing
    begun = edge.recent.get(request_id)
    if begun is not None:
        return Standing(request_id, begun.tenant, begun.lane, begun.model, begun.kind)
    return await _waiting(edge, request_id)


def _of_result(result: Result) -> Standing:
    return Standing(
        result.id,
        result.tenant,
        result.lane,
        result.model,
        result.kind,
        result.correlation_id,
        attempt=result.attempts,
        output_tokens=result.usage.completion_tokens,
        result=result,
    )


async def slot(edge: Edge, request_id: str, *, first: bool = False) -> Standing | None:
    """What its slot says; with `first`, no more than until it is known what it is."""
    found: Standing | None = None
    key = request_id.encode()
    records = scan(
        edge.member.log,
        edge.tails.slot(request_id),
        since_ms=since(request_id),
        budget=edge.settings.scan_budget,
    )
    async with edge.follower.turn, aclosing(records):
        async for record in records:
            if record.key != key:
                continue
            found = found or Standing(request_id)
            _apply(found, record)
            if first and found.model is not None:
                break
    return found


def _apply(standing: Standing, record: Record) -> None:
    standing.tenant = text_header(record.headers, "tenant") or standing.tenant
    standing.lane = text_header(record.headers, "lane") or standing.lane
    try:
        event = decode_event(record.value)
    except Unreadable:
        return  # the reader of a stream counts it
    if isinstance(event, Admitted):
        standing.model, standing.kind, standing.lane = event.model, event.kind, event.lane
    elif isinstance(event, Open):
        standing.fold.open(event.attempt)
        standing.attempt = standing.fold.attempt
    elif isinstance(event, Chunk):
        standing.fold.chunk(event.attempt, event.choice, event.k, len(event.ids), event.finish)
        standing.output_tokens = standing.fold.seq
    elif isinstance(event, End):
        standing.fold.end()


async def _waiting(edge: Edge, request_id: str) -> Standing | None:
    """A queued request outlives its slot; one that ingress has not read yet is only at the door."""
    topics = edge.member.topics
    partition = partition_of(request_id, topics.ledger_partitions)
    for lane in LANES:
        at = TopicPartition(topics.ready(lane), partition)
        if (record := await find(edge, at, request_id)) is not None:
            ready: Ready = decode(record.value, Ready)
            return Standing(
                request_id, ready.tenant, lane, ready.model, ready.kind, ready.correlation_id
            )
    count = topics.requests_partitions
    record = None
    for place in {
        door_of(request_id, count),
        partition_of(request_id, count),
    }:  # ours, or by its key
        at = TopicPartition(topics.requests, place)
        record = record or await find(edge, at, request_id)
    if record is None or record.value is None:
        return None
    try:
        request = parse_body(record.value, "record").request
    except Refusal:
        return None  # its outcome is on its way
    tenant = text_header(record.headers, "tenant") or "default"
    lane = text_header(record.headers, "lane") or TIER_LANES[request.service_tier]
    correlation_id = text_header(record.headers, "correlation-id")
    return Standing(request_id, tenant, lane, request.model, request.kind, correlation_id)


async def find(edge: Edge, at: TopicPartition, request_id: str) -> Record | None:
    """The request's record in this partition. Raises ScanBudget, LogUnavailable."""
    key = request_id.encode()
    budget = edge.settings.scan_budget
    records = scan(edge.member.log, at, since_ms=since(request_id), budget=budget)
    async with edge.follower.turn, aclosing(records):
        async for record in records:
            if record.key == key:
                return record
    return None
