"""What a lease and an output say of a request besides the attempt, from whatever is known of it."""

from typing import Any

import msgspec

from schemas.codec import encoding_of, int_header, text_header
from schemas.control import Attach
from schemas.errors import Error
from schemas.ids import InvalidId, birth
from schemas.ledger import Cancel, Lease, Output, Said, Usage
from schemas.work import Place, Ready

NOWHERE = Place("", -1, -1)  # no ready record is known
DAY = 86_400_000  # ms: the longest deadline


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    tenant: str = "default"
    lane: str = "silver"
    encoding: str = "msgpack"
    correlation_id: str | None = None
    deadline: int
    accepted: int
    created: int
    body_hash: str = ""
    ready: Place = NOWHERE
    kind: str = "chat"
    model: str | None = None
    revision: str | None = None
    prompt_tokens: int = 0
    service_tier: str = "auto"
    metadata: Any = None
    echoed: dict[str, Any] = {}
    entered: dict[str, int] = {}

    def lease(
        self,
        attempt: int,
        worker: str,
        epoch: str,
        *,
        orchestrator: str,
        slot_from: int,
        nonce: str,
        device_type: str | None = None,
        why: str = "",
        alone: bool = False,
        same_answer: bool = True,
    ) -> Lease:
        return Lease(
            request_id=self.request_id,
            attempt=attempt,
            worker=worker,
            epoch=epoch,
            slot_from=slot_from,
            ready=self.ready,
            accepted=self.accepted,
            tenant=self.tenant,
            body_hash=self.body_hash,
            nonce=nonce,
            orchestrator=orchestrator,
            lane=self.lane,
            deadline=self.deadline,
            encoding=self.encoding,
            correlation_id=self.correlation_id,
            device_type=device_type,
            why=why,
            alone=alone,
            same_answer=same_answer,
        )

    def output(
        self,
        attempt: int,
        outcome: str,
        error: Error | None,
        *,
        choices: list[Said],
        same_answer: bool,
        worker: str,
        epoch: str,
        finished: int,
        entered: dict[str, int],
    ) -> Output:
        said = sum(len(choice.ids) for choice in choices)
        return Output(
            request_id=self.request_id,
            attempt=attempt,
            outcome=outcome,
            error=error,
            kind=self.kind,
            model=self.model,
            revision=self.revision,
            choices=choices,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=said,
                total_tokens=self.prompt_tokens + said,
            ),
            same_answer=same_answer,
            tenant=self.tenant,
            lane=self.lane,
            encoding=self.encoding,
            correlation_id=self.correlation_id,
            service_tier=self.service_tier,
            metadata=self.metadata,
            echoed=self.echoed,
            worker=worker,
            epoch=epoch,
            created=self.created,
            accepted=self.accepted,
            finished=finished,
            body_hash=self.body_hash,
            entered={**self.entered, **entered},
        )


def of_ready(ready: Ready, place: Place) -> Subject:
    return Subject(
        request_id=ready.request_id,
        tenant=ready.tenant,
        lane=ready.lane,
        encoding=ready.encoding,
        correlation_id=ready.correlation_id,
        deadline=ready.deadline,
        accepted=ready.accepted,
        created=ready.created,
        body_hash=ready.body_hash,
        ready=place,
        kind=ready.kind,
        model=ready.model,
        revision=ready.revision,
        prompt_tokens=len(ready.prompt_ids),
        service_tier=ready.service_tier,
        metadata=ready.metadata,
        echoed=ready.echoed,
        entered=ready.entered,
    )


def of_lease(lease: Lease) -> Subject:
    return Subject(
        request_id=lease.request_id,
        tenant=lease.tenant,
        lane=lease.lane,
        encoding=lease.encoding,
        correlation_id=lease.correlation_id,
        deadline=lease.deadline,
        accepted=lease.accepted,
        created=_birth(lease.request_id),
        body_hash=lease.body_hash,
        ready=lease.ready,
    )


def of_cancel(cancel: Cancel | Attach) -> Subject:
    """A request that never came behind the door, as far as we know."""
    born = _birth(cancel.request_id)
    return Subject(
        request_id=cancel.request_id,
        tenant=cancel.tenant,
        lane=cancel.lane,
        encoding=cancel.encoding,
        correlation_id=cancel.correlation_id,
        deadline=born + DAY,
        accepted=born,
        created=born,
    )


def of_headers(
    request_id: str, headers: tuple[tuple[str, bytes], ...], value: bytes, place: Place
) -> Subject:
    """A ready record that cannot be read, by its headers."""
    born = _birth(request_id)
    return Subject(
        request_id=request_id,
        tenant=text_header(headers, "tenant") or "default",
        lane=text_header(headers, "lane") or "silver",
        encoding=encoding_of(headers, value),
        correlation_id=text_header(headers, "correlation-id"),
        deadline=int_header(headers, "deadline") or born + DAY,
        accepted=born,
        created=born,
        ready=place,
    )


def _birth(request_id: str) -> int:
    try:
        return birth(request_id)
    except InvalidId:
        return 0
