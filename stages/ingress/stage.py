"""The stage: one record of `hr.requests` becomes `admitted` and `ready`, or its outcome."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pipeline import metrics
from pipeline.log import LogUnavailable, Outgoing
from pipeline.lookup import ScanBudget
from pipeline.stage import Context, DeadLetter, Emit, Retry
from pipeline.topics import Topics
from schemas.codec import JSON, encode, headers_of, tag_of
from schemas.errors import Refusal
from schemas.intake import body_hash, body_id, parse_body
from schemas.request import Request
from schemas.tokens import Admitted
from schemas.work import Ready

from . import outcomes
from .arrival import Arrival, BadId, arrive, check_headers, minted_by_edge, supplied_id
from .draft import Draft, Expired, Step, ready_of
from .uses import Found, Use, Uses

PACKING = 16_384  # bytes that MessagePack may be longer than the body it was made of
# what is against the contract of the record itself, not merely impossible
_DEAD = {"invalid_record": "unreadable", "bad_id": "bad_id"}


class Body(NamedTuple):
    """What was in the value: a request, or why it is none."""

    request: Request | None
    refusal: Refusal | None
    id: object  # as it stands there
    hash: str


class Ingress:
    """`pipeline.stage.Stage` over the raw values of `hr.requests`.

    `steps` are taken in order; each may refuse. What a request must pass before it may cost a device
    anything is put here.
    """

    def __init__(
        self, topics: Topics, uses: Uses, steps: Sequence[Step], *, body_limit: int
    ) -> None:
        self._topics = topics
        self._uses = uses
        self._steps = steps
        self._body_limit = body_limit

    async def __call__(self, raw: bytes, context: Context) -> AsyncIterator[Emit]:
        arrival = arrive(context.record)
        try:
            body = self._read(raw, arrival)
            supplied = supplied_id(context.record, body.id)
        except (Refusal, BadId) as error:
            yield _dead_letter(error)
            return
        if supplied is None:
            for record in self._decide(arrival.derived_id, arrival, body, context):
                yield record
            return
        use = Use(arrival.tenant, body.hash)
        look_up = not minted_by_edge(arrival.record)
        try:
            found = await self._uses.find(supplied, use, arrival.record, look_up=look_up)
        except (ScanBudget, LogUnavailable) as error:
            yield Retry(f"whether the id was used before is not known yet: {error}")
            return
        if found is Found.AGAIN:
            metrics.void_records.labels("request").inc()
        elif found is Found.CONFLICT:
            yield DeadLetter("id_conflict", "another tenant or another body has used this id")
        else:
            with self._uses.passing(supplied, use, arrival.record):
                for record in self._decide(supplied, arrival, body, context):
                    yield record
                await context.flush()

    def _read(self, raw: bytes, arrival: Arrival) -> Body:
        """Raises Refusal only where the record itself cannot be."""
        limit = self._body_limit + (0 if arrival.encoding == JSON else PACKING)
        if len(raw) > limit:
            raise Refusal("request_too_large", f"{len(raw)} bytes; at most {limit} are allowed")
        try:
            # first: what no reader knows is a dead letter, whatever its headers say
            request = parse_body(raw, "record").request
            check_headers(arrival.record)
        except Refusal as refusal:
            if refusal.code in _DEAD:
                raise
            return Body(None, refusal, body_id(raw), hashlib.sha256(raw).hexdigest())
        return Body(request, None, request.id, body_hash(request))

    def _decide(
        self, id: str, arrival: Arrival, body: Body, context: Context
    ) -> Sequence[Outgoing]:
        now = context.clock.ms()
        try:
            if body.request is None:
                assert body.refusal is not None, "a body is a request or a refusal"
                raise body.refusal
            draft = Draft(id, arrival, body.request, body.hash, now)
            for step in self._steps:
                step(draft)
        except Refusal as refusal:
            metrics.refusals.labels(refusal.code).inc()
            output = outcomes.refused(refusal, id, arrival, body.hash, now, body.request)
        except Expired:
            output = outcomes.expired(id, arrival, body.hash, now, body.request)
        else:
            return self._let_pass(ready_of(draft, context.clock.ms()), context)
        return [outcomes.outgoing(output, self._topics, context.traceparent)]

    def _let_pass(self, ready: Ready, context: Context) -> Sequence[Outgoing]:
        """`admitted` first: a client is answered as soon as it is known that nothing refuses."""
        metrics.requests_total.labels(metrics.capped("tenant", ready.tenant), ready.lane).inc()
        admitted = Admitted(
            request_id=ready.request_id,
            model=ready.model,
            lane=ready.lane,
            prompt_tokens=len(ready.prompt_ids),
            created=ready.created,
            kind=ready.kind,
        )
        key = ready.request_id.encode()
        event_headers = headers_of(
            tag_of(admitted),
            encoding=ready.encoding,
            request_id=ready.request_id,
            tenant=ready.tenant,
            correlation_id=ready.correlation_id,
            traceparent=context.traceparent,
            tracestate=context.tracestate,
        )
        ready_headers = headers_of(
            tag_of(ready),
            request_id=ready.request_id,
            tenant=ready.tenant,
            lane=ready.lane,
            deadline=ready.deadline,
            correlation_id=ready.correlation_id,
            traceparent=context.traceparent,
            tracestate=context.tracestate,
        )
        return [
            Outgoing(
                self._topics.tokens, encode(admitted, ready.encoding), key, headers=event_headers
            ),
            Outgoing(self._topics.ready(ready.lane), encode(ready), key, headers=ready_headers),
        ]


def _dead_letter(error: Refusal | BadId) -> DeadLetter:
    if isinstance(error, BadId):
        return DeadLetter("bad_id", str(error))
    return DeadLetter(_DEAD.get(error.code, error.code), error.message)
