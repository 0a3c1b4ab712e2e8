"""`/v1/requests`: begin now, ask and read later, from any edge."""

import asyncio

import msgspec

from schemas.errors import Refusal
from schemas.result import Result

from .completions import write
from .cursor import Cursor, check, place, query_of
from .door import acknowledged, admit, publish, read
from .edge import Edge
from .exchange import JSON, Exchange
from .feeds import Feed
from .follow import guarded
from .frames import NATIVE, Frames
from .standing import Standing, check_id, known, look, not_found, slot
from .waiting import estimate, position, tell_while_queued

CANCEL_WAIT = 2.0  # s for the outcome of a cancel before 202
OBSERVER = 0.0  # s: reading events cancels nothing by leaving

_json = msgspec.json.encode


async def submit(edge: Edge, exchange: Exchange) -> None:
    """202 once the request is in the log; refusals after that are outcomes."""
    asked = await read(edge, exchange, "native")
    ticket = await admit(edge, exchange, asked)
    feed = Feed(ticket.id, None, 0)
    if not ticket.replayed or not await known(edge, feed, exchange.tenant):
        await acknowledged(edge, exchange, asked, publish(edge, exchange, asked, ticket))
    request = asked.request
    standing = Standing(ticket.id, exchange.tenant, asked.lane, request.model, request.kind)
    location = (b"location", f"/v1/requests/{ticket.id}".encode())
    await exchange.answer(202, _json(standing.body()), [*JSON, location])


async def one(edge: Edge, exchange: Exchange, request_id: str) -> None:
    """GET and DELETE of one request."""
    if exchange.scope["method"] == "DELETE":
        await cancel(edge, exchange, request_id)
    else:
        await show(edge, exchange, request_id)


async def show(edge: Edge, exchange: Exchange, request_id: str) -> None:
    standing = await look(edge, request_id, exchange.tenant)
    exchange.name(request_id)
    await exchange.answer(200, _json(await body_of(edge, standing)))


async def body_of(edge: Edge, standing: Standing) -> dict[str, object]:
    """GET's body."""
    return standing.body() | {
        "position": await position(edge, standing),
        "estimate": estimate(edge, standing),
        "attempt": standing.attempt,
        "output_tokens": standing.output_tokens,
        "outcome": standing.result,
    }


async def cancel(edge: Edge, exchange: Exchange, request_id: str) -> None:
    """200 with GET's body if it ends within 2 s, else 202: the cancel is in the log either way."""
    standing = await look(edge, request_id, exchange.tenant)
    exchange.name(request_id)
    status = 200
    if standing.result is None:
        feed = Feed(request_id, None, edge.settings.stream_buffer)
        async with edge.followed(feed):
            sent = edge.outbox.cancel(
                request_id,
                "asked",
                standing.tenant,
                standing.lane or "silver",
                standing.correlation_id,
            )
            if not await edge.outbox.acknowledged(sent):
                raise Refusal(
                    "broker_unavailable", "no broker acknowledged the cancel", retry_after=2
                )
            standing.result = await _outcome(feed)
        status = 202 if standing.result is None else 200
        if standing.result is not None:
            standing.attempt = standing.result.attempts
            standing.output_tokens = standing.result.usage.completion_tokens
    await exchange.answer(status, _json(await body_of(edge, standing)))


async def _outcome(feed: Feed) -> Result | None:
    try:
        async with asyncio.timeout(CANCEL_WAIT):
            while feed.result is None and not feed.gone:
                feed.wake.clear()
                await feed.wake.wait()
    except TimeoutError:
        return None
    return feed.result


async def events(edge: Edge, exchange: Exchange, request_id: str) -> None:
    """The request from its beginning, or from where the client was cut, on whatever edge."""
    if exchange.scope["method"] == "HEAD":
        raise Refusal("method_not_allowed", "events have no HEAD: it would last as long as they do")
    framing, cursor = query_of(exchange)
    check_id(edge, request_id)
    edge.check_broker()
    this = await _who(edge, request_id, exchange.tenant)
    exchange.name(request_id)
    frames = Frames(request_id, this.model or "", this.kind, framing)
    feed = Feed(request_id, frames, edge.settings.stream_buffer, lagging=True, resumable=True)
    async with edge.followed(feed):
        exchange.on_gone(feed.leave)
        await _begin(edge, feed, frames, cursor)
        stream = edge.attachments.attach(
            request_id,
            grace=OBSERVER,
            tenant=this.tenant,
            lane=this.lane or "silver",
            correlation_id=this.correlation_id,
        )
        telling = tell_while_queued(edge, this, feed, frames) if framing == NATIVE else None
        try:
            await write(edge, exchange, feed, frames)
        finally:
            if telling is not None:
                telling.cancel()
            edge.attachments.detach(stream, gone=exchange.gone)


async def _who(edge: Edge, request_id: str, tenant: str) -> Standing:
    """Enough to render its frames: what is known here, then what its slot says first, then all."""
    begun = edge.recent.get(request_id)
    if begun is not None:
        found: Standing | None = Standing(
            request_id, begun.tenant, begun.lane, begun.model, begun.kind
        )
    else:
        found = await guarded(slot(edge, request_id, first=True))
    if found is None or found.model is None:
        return await look(edge, request_id, tenant)
    if found.tenant != tenant:
        raise not_found(request_id)
    return found


async def _begin(edge: Edge, feed: Feed, frames: Frames, cursor: Cursor | None) -> None:
    """Read the past up to what a stream may hold, so that a bad cursor is still a 400."""
    if cursor is not None:
        await place(edge, feed, frames, cursor)
    await edge.follower.catch_up(feed)
    if cursor is not None and not feed.only_result:
        check(feed, frames, cursor)
