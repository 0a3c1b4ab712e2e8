"""The result is a pure function of the counted output, where it lies and when it was appended: whoever
makes it again makes the same."""

from pipeline.log import Record
from schemas.codec import encoding_of, int_header, text_header
from schemas.errors import CODES, Error
from schemas.ids import InvalidId, birth
from schemas.ledger import Output
from schemas.result import Choice, Result, Timings


def result_of(output: Output, offset: int, appended: int) -> Result:
    """`offset`: of the output in its ledger partition. `appended`: its append time, ms."""
    return Result(
        id=output.request_id,
        outcome=output.outcome,
        error=output.error,
        kind=output.kind,
        model=output.model,
        choices=[
            Choice(
                index=said.index,
                text="".join(said.pieces),
                token_ids=said.ids,
                finish_reason=said.finish_reason,
            )
            for said in output.choices
        ],
        usage=output.usage,
        timings=timings_of(output, appended),
        attempts=output.attempt,
        same_answer=output.same_answer,
        tenant=output.tenant,
        lane=output.lane,
        correlation_id=output.correlation_id,
        service_tier=output.service_tier,
        metadata=output.metadata,
        echoed=output.echoed,
        created=output.created,
        finished=output.finished,
        output=offset,
        body_hash=output.body_hash,
    )


def timings_of(output: Output, appended: int) -> Timings:
    """How long each stage took, ms, from the times noted on the way.

    ingress: acceptance → ready. queue: ready → its worker was chosen. dispatch: → the order was written
    (the lease was read back between). prefill: → first token. decode: first token → finished.
    first_token: acceptance → first token. delivery: finished → appended to the ledger.
    """
    at = output.entered
    first = at.get("first_token")
    return Timings(
        ingress=_between(output.accepted, at.get("ready")),
        queue=_between(at.get("ready"), at.get("orchestration")),
        dispatch=_between(at.get("orchestration"), at.get("dispatch")),
        prefill=_between(at.get("dispatch"), first),
        first_token=_between(output.accepted, first),
        decode=_between(first, output.finished),
        delivery=_between(output.finished, appended),
    )


def _between(start: int | None, end: int | None) -> float | None:
    """None where one is not known; clocks of two machines may differ, and no stage took less than 0."""
    return None if start is None or end is None else float(max(0, end - start))


def unreadable_output(record: Record, request_id: str, why: str) -> Output:
    """An output that counts and cannot be read ends its request all the same, by its headers."""
    headers = record.headers
    try:
        born = birth(request_id)
    except InvalidId:
        born = record.timestamp
    return Output(
        request_id=request_id,
        attempt=int_header(headers, "attempt") or 0,
        outcome="failed",
        error=Error(
            message=f"the output of this request cannot be read: {why}"[:300],
            type=CODES["unreadable"].type,
            code="unreadable",
        ),
        tenant=text_header(headers, "tenant") or "default",
        lane=text_header(headers, "lane") or "silver",
        encoding=encoding_of((), record.value or b""),
        correlation_id=text_header(headers, "correlation-id"),
        created=born,
        accepted=born,
        finished=record.timestamp,
    )
