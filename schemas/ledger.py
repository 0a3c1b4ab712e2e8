"""Records of `hr.ledger`: who runs a request and how it ended."""

from typing import Any

import msgspec

from .errors import Error
from .work import Place

OUTCOMES = ("completed", "failed", "cancelled", "expired", "refused")


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="lease/1"):
    """Attempt `attempt` belongs to one worker epoch. The first of its number counts."""

    request_id: str
    attempt: int
    worker: str  # or the orchestrator itself, when it only ends the request
    epoch: str
    slot_from: int
    ready: Place
    accepted: int  # append time of the hr.requests record, ms
    tenant: str
    body_hash: str
    nonce: str  # tells a writer its own lease
    orchestrator: str
    lane: str
    deadline: int
    encoding: str = "msgpack"
    correlation_id: str | None = None
    device_type: str | None = None
    why: str = ""
    alone: bool = False
    same_answer: bool = True  # False: a pin had to be broken


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of one choice."""

    index: int
    ids: list[int] = []
    pieces: list[str] = []
    finish_reason: str | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0


class Output(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output/1"):
    """How a request ended; the counted one is the outcome. Carries all that its result needs."""

    request_id: str
    attempt: int  # 0: ended by ingress before any lease
    outcome: str
    error: Error | None = None
    kind: str = "chat"
    model: str | None = None
    revision: str | None = None
    choices: list[Said] = []
    usage: Usage = Usage()
    same_answer: bool = True
    tenant: str
    lane: str
    encoding: str = "msgpack"
    correlation_id: str | None = None
    service_tier: str = "auto"
    metadata: Any = None
    echoed: dict[str, Any] = {}
    worker: str | None = None
    epoch: str | None = None
    created: int  # birth of the id, ms
    accepted: int  # ms
    finished: int  # ms, the writer's clock
    body_hash: str = ""
    entered: dict[str, int] = {}


class Released(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="released/1"):
    """A worker gives an attempt back: full, drain, fault, unreadable, wrong_model."""

    request_id: str
    attempt: int
    worker: str
    epoch: str
    why: str
    detail: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel/1"):
    """Somebody wants it ended; a flag, not an end."""

    request_id: str
    why: str  # asked | client_gone | publish_unknown
    by: str
    tenant: str
    lane: str
    encoding: str = "msgpack"
    correlation_id: str | None = None


LedgerRecord = Lease | Output | Released | Cancel
