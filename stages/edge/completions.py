"""`POST /v1/chat/completions` and `POST /v1/completions`: a whole answer or a stream."""

import asyncio
from contextlib import aclosing

from pipeline.log import Placed
from schemas.errors import Refusal
from schemas.intake import Route
from schemas.result import Result

from .door import Asked, Ticket, acknowledged, admit, publish, read
from .edge import Edge
from .exchange import Exchange
from .feeds import Feed
from .frames import Frames
from .logprobs import Transcript
from .outbox import acked
from .outcome import completion_body, error_body, error_of, server_timing, status_of
from .standing import known

OVERTIME = 30.0  # s after its deadline in which a request's outcome must have come


async def complete(edge: Edge, exchange: Exchange, route: Route) -> None:
    asked = await read(edge, exchange, route)
    ticket = await admit(edge, exchange, asked)
    try:
        if asked.stream:
            await _stream(edge, exchange, asked, ticket)
        else:
            await _whole(edge, exchange, asked, ticket)
    finally:
        edge.admission.ended(asked.lane, ticket.id)


async def _stream(edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket) -> None:
    request = asked.request
    frames = Frames(ticket.id, request.model, request.kind, usage=asked.include_usage)
    feed = Feed(ticket.id, frames, edge.settings.stream_buffer, lagging=ticket.replayed)
    async with edge.followed(feed, own=not ticket.replayed):
        exchange.on_gone(feed.leave)
        stream = attach(edge, exchange, asked, ticket)
        try:
            sent = await _send(edge, exchange, asked, ticket, feed)
            await _verdict(edge, exchange, asked, feed, sent)
            if await _refused(edge, exchange, feed):
                return
            await write(edge, exchange, feed, frames)
        finally:
            edge.attachments.detach(stream, gone=exchange.gone)


async def write(edge: Edge, exchange: Exchange, feed: Feed, frames: Frames) -> None:
    """The stream itself. A fault in the middle is an event without id, since it is not in the log."""
    await exchange.begin_stream()
    try:
        async with aclosing(edge.follower.frames(feed, frames)) as stream:
            async for data in stream:
                await exchange.write(data)
        if feed.drained:
            await exchange.write(b"retry: 1000\n\n")
    except Refusal as refusal:
        data = error_body(refusal.error)
        await exchange.write(b"data: " + data + b"\n\n")
    await exchange.finish()


async def _send(
    edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket, feed: Feed
) -> "asyncio.Future[Placed] | None":
    """Publish it, unless it is a repeat of which the log knows already."""
    if ticket.replayed and await known(edge, feed, exchange.tenant):
        return None
    sent = publish(edge, exchange, asked, ticket)
    sent.add_done_callback(lambda done: feed.wake.set() if done.exception() else None)
    return sent


async def _verdict(
    edge: Edge,
    exchange: Exchange,
    asked: Asked,
    feed: Feed,
    sent: "asyncio.Future[Placed] | None",
) -> None:
    """Wait until the request was admitted, refused or has begun; then the status line may go out.

    Where nothing comes in time it was accepted and ingress is slow: 200, and a refusal is an event."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    timer = loop.call_at(began + edge.settings.verdict_wait, feed.hurry)
    try:
        while not (feed.decided or feed.gone or feed.only_result or feed.hurried):
            if sent is not None and sent.done():
                acked(sent)
            feed.wake.clear()
            await feed.wake.wait()
    finally:
        timer.cancel()
    if sent is not None and not feed.decided:
        await acknowledged(edge, exchange, asked, sent, loop.time() - began)


async def _refused(edge: Edge, exchange: Exchange, feed: Feed) -> bool:
    """Answer with a status of its own what ended before anything was said."""
    if feed.only_result:
        result = feed.result
        if result is None or result.outcome == "completed":
            return False
    elif feed.end is None or feed.end[1].outcome == "completed" or feed.end[1].tokens:
        return False
    await fail(exchange, await edge.follower.result(feed))
    return True


async def _whole(edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket) -> None:
    transcript = Transcript() if asked.request.logprobs else None
    feed = Feed(ticket.id, transcript, edge.settings.stream_buffer, lagging=ticket.replayed)
    # others may wait under the same key, so there one that leaves must not end it for all
    stream = None if asked.key is None else attach(edge, exchange, asked, ticket)
    async with edge.followed(feed, own=not ticket.replayed):
        sent = await _send(edge, exchange, asked, ticket, feed)
        exchange.on_gone(feed.leave)
        try:
            if sent is not None:
                await acknowledged(edge, exchange, asked, sent)
            result = await _result(edge, exchange, asked, ticket, feed)
        finally:
            if stream is not None:
                edge.attachments.detach(stream, gone=exchange.gone)
        if result is None:  # nobody is there to be answered
            return
        if transcript is not None:
            await _said(edge, feed)
        if result.outcome != "completed":
            await fail(exchange, result)
            return
        if timing := server_timing(result.timings):
            exchange.headers.append((b"server-timing", timing))
        await exchange.answer(200, completion_body(result, asked.request.model, transcript))


async def _result(
    edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket, feed: Feed
) -> Result | None:
    """Wait for the outcome; None when the client left, whose request is cancelled at once."""
    left = (ticket.deadline - edge.member.clock.ms()) / 1000
    try:
        async with asyncio.timeout(max(left, 0) + OVERTIME):
            while feed.result is None and not feed.gone:
                feed.wake.clear()
                await feed.wake.wait()
    except TimeoutError:
        raise Refusal("deadline_exceeded", "the deadline passed and nothing has ended it") from None
    if feed.result is not None:
        return feed.result
    if feed.drained:
        raise Refusal("draining", f"this edge is going away; {ticket.id} goes on", retry_after=1)
    if asked.key is None:
        edge.outbox.cancel(
            ticket.id, "client_gone", exchange.tenant, asked.lane, exchange.correlation_id
        )
    return None


def attach(edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket) -> str:
    """This client waits for the request from now on."""
    return edge.attachments.attach(
        ticket.id,
        grace=edge.settings.disconnect_grace,
        tenant=exchange.tenant,
        lane=asked.lane,
        correlation_id=exchange.correlation_id,
    )


async def _said(edge: Edge, feed: Feed) -> None:
    """The slot up to its `end`, for what the result does not carry."""
    while feed.end is None and not feed.gone and not feed.only_result:
        if feed.lagging:
            await edge.follower.read_past(feed)
            continue
        feed.wake.clear()
        await feed.wake.wait()


async def fail(exchange: Exchange, result: Result) -> None:
    """An outcome other than `completed`, as an HTTP answer."""
    await exchange.fail(status_of(result), error_of(result))
