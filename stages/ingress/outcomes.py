"""The ends that ingress itself decides: `output(0)`, before any lease."""

from pipeline.log import Outgoing, Record
from pipeline.stage import DeadLetter
from pipeline.topics import Topics
from schemas.codec import JSON, encode, header, headers_of, tag_of, text_header
from schemas.errors import CODES, Error, Refusal
from schemas.ids import birth, is_id
from schemas.ledger import Output
from schemas.request import TIER_LANES, Request

from .arrival import Arrival, arrive, timely

# what is wrong with the id itself: the outcome may not be written under it
_OF_THE_ID = ("bad_id", "id_conflict")


def refused(
    refusal: Refusal, id: str, arrival: Arrival, body_hash: str, now: int, request: Request | None
) -> Output:
    return _output("refused", refusal.error, id, arrival, body_hash, now, request)


def expired(id: str, arrival: Arrival, body_hash: str, now: int, request: Request | None) -> Output:
    code = "deadline_exceeded"
    message = "the deadline was over before the request was read"
    error = Error(message=message, type=CODES[code].type, code=code)
    return _output("expired", error, id, arrival, body_hash, now, request)


def of_dead_letter(record: Record, dead: DeadLetter, now: int) -> Output:
    """What ends the request of a record that nobody can read, under an id that nobody else has.

    An edge waits under the id of its header; anybody else finds the outcome by its correlation id.
    """
    arrival = arrive(record)
    if header(record.headers, "content-type") is None:
        # no form was said and none can be seen: its publisher reads JSON at the least
        arrival = arrival._replace(encoding=JSON)
    id = arrival.derived_id
    given = text_header(record.headers, "request-id") or ""
    fresh = is_id(given) and timely(given, record)
    if fresh and dead.reason not in _OF_THE_ID:
        id = given
    message = f"{dead.reason}: {dead.message}" if dead.message else dead.reason
    refusal = Refusal("invalid_record", message[:1000])
    return _output("refused", refusal.error, id, arrival, "", now, None)


def outgoing(output: Output, topics: Topics, traceparent: str | None) -> Outgoing:
    return Outgoing(
        topics.ledger,
        encode(output),
        key=output.request_id.encode(),
        headers=headers_of(
            tag_of(output),
            request_id=output.request_id,
            attempt=output.attempt,
            tenant=output.tenant,
            lane=output.lane,
            correlation_id=output.correlation_id,
            traceparent=traceparent,
        ),
    )


def _output(
    outcome: str,
    error: Error,
    id: str,
    arrival: Arrival,
    body_hash: str,
    now: int,
    request: Request | None,
) -> Output:
    known = (
        {}
        if request is None
        else {
            "kind": request.kind,
            "model": request.model,
            "service_tier": request.service_tier,
            "metadata": request.metadata,
            "echoed": request.echoed,
        }
    )
    return Output(
        request_id=id,
        attempt=0,
        outcome=outcome,
        error=error,
        tenant=arrival.tenant,
        lane=arrival.lane or TIER_LANES[request.service_tier if request else "auto"],
        encoding=arrival.encoding,
        correlation_id=arrival.correlation_id,
        created=birth(id),
        accepted=arrival.accepted,
        finished=now,
        body_hash=body_hash,
        entered={"accepted": arrival.accepted, "ingress": now},
        **known,
    )
