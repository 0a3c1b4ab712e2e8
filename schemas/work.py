"""A request made ready (`hr.ready.<lane>`), and the order for one worker (`hr.work`)."""

from typing import Any

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: list[tuple[int, float]] = []
    logprobs: bool = False
    top_logprobs: int = 0
    stop: list[str] = []
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int = 0


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready/1"):
    """A tokenised, budgeted request: all that a worker needs, and all that its output must carry."""

    request_id: str
    kind: str  # chat | text: the shape of its chunks
    tenant: str
    lane: str
    model: str
    revision: str  # SHA-256 of the model file: a pin
    plan: str  # exact | fast: a pin
    device_type: str | None = None  # a pin once a worker was chosen; None: any
    prompt_ids: list[int]
    max_tokens: int
    n: int = 1
    sampling: SamplingParams = SamplingParams()
    salt: str = ""  # tenant salt of the prefix cache
    affinity: str = ""  # prefix hash: prefer the worker that holds it
    accepted: int  # append time of its hr.requests record, ms
    deadline: int  # ms epoch
    created: int  # birth of its id, ms
    body_hash: str
    encoding: str = "msgpack"  # in which it came, and in which its events and result are written
    correlation_id: str | None = None
    service_tier: str = "auto"
    metadata: Any = None
    echoed: dict[str, Any] = {}
    entered: dict[str, int] = {}  # stage → ms: "why was it slow" is answered from the record


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="order/1"):
    """One attempt for one worker epoch. `count` is the cumulative credit it spends."""

    request_id: str
    attempt: int
    worker: str
    epoch: str
    orchestrator: str  # member id
    orchestrator_epoch: str
    count: int
    slot_from: int  # the end of the request's slot before lease 1
    why: str = ""  # the plan in words: why this worker
    alone: bool = False  # after a death without progress: runs without company
    same_answer: bool = True  # False: a pin had to be broken
    ready: Ready
    entered: dict[str, int] = {}
