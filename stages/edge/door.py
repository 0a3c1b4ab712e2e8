"""The door: who asks, what, for how long, and whether there is room. What passes it gets an id."""

import asyncio
import hashlib
import re
from functools import partial
from typing import NamedTuple

from pipeline import metrics, tracing
from pipeline.log import Placed
from schemas.errors import Refusal
from schemas.ids import mint_into
from schemas.intake import Route, parse_body
from schemas.request import TIER_LANES, Request

from .edge import Begun, Edge
from .exchange import Exchange
from .idempotency import Claim, checked_key, hash_of
from .outbox import AWAY_RETRY

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Asked(NamedTuple):
    """A request that passed the door: shape, size, key."""

    request: Request
    stream: bool
    lane: str
    deadline: int  # ms epoch
    include_usage: bool
    key: str | None  # Idempotency-Key
    hash: str  # of route and body, where there is a key


class Ticket(NamedTuple):
    """An id for what was asked; `replayed`: the request exists already, or was meant to."""

    id: str
    deadline: int
    replayed: bool


def trace(exchange: Exchange, name: str) -> None:
    """The span of this exchange, below the client's own."""
    given = exchange.header(b"traceparent")
    if given is not None and TRACEPARENT.fullmatch(given) is None:
        given = None  # W3C: a malformed one counts as none
    state = exchange.header(b"tracestate") if given is not None else None
    exchange.span = tracing.span(name, "server", given, state)


def authenticate(edge: Edge, exchange: Exchange) -> None:
    """Sets the tenant from the key, never from another header. Raises Refusal."""
    keys = edge.member.settings.keys
    if not keys:
        return
    scheme, _, key = (exchange.header(b"authorization") or "").partition(" ")
    digest = hashlib.sha256(key.strip().encode("latin-1")).hexdigest()
    tenant = keys.get(digest) if scheme.lower() == "bearer" else None
    if tenant is None:
        raise Refusal("invalid_api_key", "send a valid key as `Authorization: Bearer <key>`")
    exchange.tenant = tenant


async def read(edge: Edge, exchange: Exchange, route: Route) -> Asked:
    """The body and the headers that go with it. Raises Refusal."""
    raw = await exchange.body()
    request, stream, include_usage = parse_body(raw, route)
    key = checked_key(exchange.header(b"idempotency-key"))
    lane = TIER_LANES[request.service_tier]
    deadline = deadline_of(edge, exchange.header(b"x-request-deadline"), request, lane)
    digest = "" if key is None else hash_of(route, raw)
    return Asked(request, stream, lane, deadline, include_usage, key, digest)


def deadline_of(edge: Edge, header: str | None, request: Request, lane: str) -> int:
    """The earlier of header and body, else the lane's default; never beyond the limit."""
    limits = edge.member.settings.ingress
    now = edge.member.clock.ms()
    wanted: list[int] = []
    if header is not None:
        if not header.isascii() or not header.isdigit() or len(header) > 15:
            raise _bad_deadline("X-Request-Deadline must be milliseconds since the epoch")
        if int(header) <= now:
            raise _bad_deadline(f"X-Request-Deadline is past: it is {now} now")
        wanted.append(int(header))
    if request.timeout is not None:
        wanted.append(now + int(request.timeout * 1000))
    default = limits.deadline_bronze if lane == "bronze" else limits.deadline
    wanted = wanted or [now + int(default * 1000)]
    return min(*wanted, now + int(limits.deadline_limit * 1000))


async def admit(edge: Edge, exchange: Exchange, asked: Asked) -> Ticket:
    """An id, after the look at the lane; only then is a key claimed. Raises Refusal."""
    member = edge.member
    if member.draining.is_set():
        raise Refusal("draining", "this edge is going away; ask another", retry_after=1)
    now = member.clock.ms()
    edge.check_broker()
    edge.admission.check(asked.lane, edge.sample(asked.lane))
    request_id = mint_into(now, member.chance, edge.tails.own, member.topics.tokens_partitions)
    own = Claim(request_id, asked.hash, asked.deadline)
    claim = own
    if asked.key is not None:
        claim = await edge.idempotency.claim(exchange.tenant, asked.key, own)
    replayed = claim.id != request_id
    exchange.name(claim.id)
    if replayed:
        exchange.headers.append((b"idempotency-replayed", b"true"))
    else:
        request = asked.request
        edge.admission.admitted(asked.lane, claim.id)
        edge.remember(claim.id, Begun(exchange.tenant, asked.lane, request.model, request.kind))
        metrics.requests_total.labels(metrics.capped("tenant", exchange.tenant), asked.lane).inc()
    return Ticket(claim.id, claim.deadline, replayed)


def publish(
    edge: Edge, exchange: Exchange, asked: Asked, ticket: Ticket
) -> "asyncio.Future[Placed]":
    sent = edge.outbox.publish(
        asked.request,
        ticket.id,
        tenant=exchange.tenant,
        lane=asked.lane,
        deadline=ticket.deadline,
        correlation_id=exchange.correlation_id,
        traceparent=exchange.span.traceparent,
        tracestate=exchange.span.tracestate,
    )
    sent.add_done_callback(partial(_placed, edge, asked.lane, ticket.id))
    return sent


def _placed(edge: Edge, lane: str, request_id: str, sent: "asyncio.Future[Placed]") -> None:
    if not sent.cancelled() and sent.exception() is None:
        edge.admission.placed(lane, request_id, sent.result())


async def acknowledged(
    edge: Edge,
    exchange: Exchange,
    asked: Asked,
    sent: "asyncio.Future[Placed]",
    waited: float = 0.0,
) -> None:
    """The request is in the log. Raises Refusal where nobody knows.

    Then it is cancelled, unless its key lets the client come back to it."""
    assert exchange.request_id is not None
    if await edge.outbox.acknowledged(sent, waited):
        return
    request_id = exchange.request_id
    edge.recent.pop(request_id, None)  # what the log says decides from now on
    if asked.key is None:
        edge.outbox.cancel(
            request_id, "publish_unknown", exchange.tenant, asked.lane, exchange.correlation_id
        )
        advice = "it was cancelled; ask again"
    else:
        advice = "repeat it with its key"
    raise Refusal(
        "broker_unavailable",
        f"no broker acknowledged {request_id} in time: {advice}",
        retry_after=AWAY_RETRY,
    )


def _bad_deadline(message: str) -> Refusal:
    return Refusal("invalid_deadline", message, param="X-Request-Deadline")
