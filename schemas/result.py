"""The outcome, one object in GET, in the `done` event and on `hr.results`."""

from typing import Any

import msgspec

from .errors import Error
from .ledger import Usage


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; null where the request never came so far."""

    ingress: float | None = None
    queue: float | None = None
    dispatch: float | None = None
    prefill: float | None = None
    first_token: float | None = None
    decode: float | None = None
    delivery: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result/1"):
    """The record may be repeated, always with the same `id` and `output`: readers take the first."""

    id: str
    outcome: str
    error: Error | None = None
    kind: str = "chat"
    model: str | None = None
    choices: list[Choice] = []
    usage: Usage = Usage()
    timings: Timings = Timings()
    attempts: int = 0
    same_answer: bool = True
    tenant: str = "default"
    lane: str = "silver"
    correlation_id: str | None = None
    service_tier: str = "auto"
    metadata: Any = None
    echoed: dict[str, Any] = {}
    created: int = 0  # ms
    finished: int = 0  # ms
    output: int = 0  # offset of the counted output in hr.ledger
    body_hash: str = ""
