"""A request on its way through ingress, and the steps it takes."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.settings import IngressSettings
from schemas.codec import header, int_header
from schemas.errors import Refusal
from schemas.ids import birth
from schemas.models import Model
from schemas.request import TIER_LANES, Request
from schemas.work import Ready, SamplingParams

from .arrival import SKEW, Arrival
from .vocabularies import Language

AFFINITY_TOKENS = 64  # tokens of prompt that decide which worker is preferred: four KV blocks
_SEED_MASK = (1 << 64) - 1


class Expired(Exception):
    """Its deadline was over before it was looked at."""


@dataclass(slots=True)
class Draft:
    """What the steps have found out so far."""

    id: str
    arrival: Arrival
    request: Request
    body_hash: str
    now: int  # ms, when ingress took it in hand
    lane: str = "silver"
    deadline: int = 0  # ms epoch
    model: Model | None = None
    language: Language | None = None
    prompt_ids: list[int] = field(default_factory=list)
    max_tokens: int = 0


Step = Callable[[Draft], None]  # raises Refusal or Expired


def choose_lane(draft: Draft) -> None:
    """A lane that the publisher named wins over the service tier's."""
    draft.lane = draft.arrival.lane or TIER_LANES[draft.request.service_tier]


def set_deadline(settings: IngressSettings) -> Step:
    """The earliest of header, body and the lane's default; every request has one."""
    limit = int(settings.deadline_limit * 1000)

    def step(draft: Draft) -> None:
        accepted, headers = draft.arrival.accepted, draft.arrival.record.headers
        seconds = settings.deadline_bronze if draft.lane == "bronze" else settings.deadline
        candidates = []
        if draft.request.timeout is not None:
            candidates.append(accepted + max(1, int(draft.request.timeout * 1000)))
        if header(headers, "deadline") is not None:
            at = int_header(headers, "deadline")
            if at is None:
                raise _deadline("must be milliseconds since the epoch")
            if at > accepted + limit + SKEW:
                raise _deadline(f"may be at most {limit // 1000} s after acceptance")
            candidates.append(min(at, accepted + limit))
        draft.deadline = min(candidates, default=accepted + min(limit, int(seconds * 1000)))
        if draft.deadline <= draft.now:
            raise Expired

    return step


def ready_of(draft: Draft, now: int) -> Ready:
    """The record that a worker will need, and all that its output must carry."""
    assert draft.model is not None, "the first step finds the model"
    arrival, request, model = draft.arrival, draft.request, draft.model
    return Ready(
        request_id=draft.id,
        kind=request.kind,
        tenant=arrival.tenant,
        lane=draft.lane,
        model=model.name,
        revision=model.revision,
        plan=model.plan,
        prompt_ids=draft.prompt_ids,
        max_tokens=draft.max_tokens,
        n=request.n,
        sampling=_sampling(draft),
        salt=salt_of(arrival.tenant),
        affinity=affinity_of(draft.prompt_ids, model.revision, arrival.tenant),
        accepted=arrival.accepted,
        deadline=draft.deadline,
        created=birth(draft.id),
        body_hash=draft.body_hash,
        encoding=arrival.encoding,
        correlation_id=arrival.correlation_id,
        service_tier=request.service_tier,
        metadata=request.metadata,
        echoed=request.echoed,
        entered={"accepted": arrival.accepted, "ingress": draft.now, "ready": now},
    )


def seed_of(request_id: str) -> int:
    """The seed of a request that names none: a redelivery draws the same."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big")


def salt_of(tenant: str) -> str:
    """What keeps one tenant's cached blocks from another's prompts."""
    return hashlib.sha256(b"prefix-cache/" + tenant.encode()).hexdigest()[:32]


def affinity_of(prompt_ids: list[int], revision: str, tenant: str) -> str:
    """Equal for prompts that begin alike; empty for one too short to be worth it."""
    if len(prompt_ids) < AFFINITY_TOKENS:
        return ""
    begin = ",".join(map(str, prompt_ids[:AFFINITY_TOKENS]))
    return hashlib.sha256(f"{revision}/{tenant}/{begin}".encode()).hexdigest()[:16]


def _sampling(draft: Draft) -> SamplingParams:
    request = draft.request
    seed = seed_of(draft.id) if request.seed is None else request.seed & _SEED_MASK
    return SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=max(0, request.top_k),  # −1 is off too
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=[(int(id), bias) for id, bias in request.logit_bias.items()],
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        stop=request.stop,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos,
        seed=seed,
    )


def _deadline(what: str) -> Refusal:
    return Refusal("invalid_deadline", f"the deadline {what}", param="deadline")
