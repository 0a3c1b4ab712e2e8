"""What goes into an engine and what comes out of it.

An engine knows nothing of Kafka: the worker turns orders into jobs and emissions into records.
Two engines exist, `torch` (workers/engine.py) and `null` (workers/null.py), both behind `Engine`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn; ranges as in the HTTP interface, already validated."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, bias)
    logprobs: bool = False
    top_logprobs: int = 0
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int = 0  # 64 bits; choice i draws with its own stream of it


@dataclass(slots=True, frozen=True, kw_only=True)
class Prefix:
    """What an earlier attempt already said of one choice; the job goes on behind it."""

    ids: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()  # one per id, as they were written to the log
    finish: str | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Job:
    """One attempt at one request, as an engine sees it."""

    request_id: str
    attempt: int
    prompt_ids: Sequence[int]
    max_tokens: int
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    prefix: tuple[Prefix, ...] = ()  # by choice; empty: nothing was said yet
    salt: str = ""  # tenant salt of the prefix cache
    lane: int = 1  # 0 gold, 1 silver, 2 bronze
    deadline_ms: int = 0  # wall clock, 0 = none
    alone: bool = False  # a suspect of poison: no company until its first token


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenLogprob:
    """Raw log-softmax of the unmodified logits, OpenAI's meaning."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), best first


@dataclass(slots=True, frozen=True, kw_only=True)
class Emission:
    """New tokens of one choice from one step. k is the index of the first one in its choice.

    `pieces` has one string per id; a token that completes no character, or whose text is held back
    for a stop string, has an empty piece, and the piece that frees the text carries it.
    """

    request_id: str
    attempt: int
    choice: int
    k: int
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None  # "stop" | "length"; None: goes on
    cached_tokens: int = (
        0  # prompt tokens served from the prefix cache (set with the first emission)
    )


@dataclass(slots=True, frozen=True, kw_only=True)
class Failure:
    """A job that the engine gives up: its blocks are already free."""

    request_id: str
    attempt: int
    code: str  # "engine_error", "never_fits", "nan", "out_of_memory"
    message: str
    retryable: bool  # True: another attempt may succeed (the worker writes `released(fault)`)


@dataclass(slots=True, frozen=True, kw_only=True)
class Capacity:
    """Figures for status and metrics, sampled between steps."""

    running: int
    waiting: int
    slots: int  # jobs that may be admitted at once, at most
    blocks_total: int
    blocks_used: int
    blocks_cached: int
    batch_tokens: int  # tokens in the last step
    steps: int
    tokens: int  # generated so far
    preemptions: int = 0
    cache_hit_tokens: int = 0
    max_occupancy: int = 0  # most sequences in one step so far
    swaps: int = 0  # preemptions that kept the keys and values in host memory
    drafts: int = 0  # tokens guessed ahead
    accepted_drafts: int = 0  # of those, the ones that were right
    failures: int = 0  # jobs given up: NaN rows and faults in a step


class Engine(Protocol):
    """The step loop's owner calls these from one thread only."""

    device_type: str  # what must be equal for the same answer: `cpu-avx2`, `cuda-sm90`, `null`

    def add(self, job: Job) -> None:
        """Queue a job. Its result, even a refusal, comes out of `step`."""

    def cancel(self, request_id: str, attempt: int | None = None) -> bool:
        """Drop a job (every attempt <= `attempt`, None: all) and free its blocks at once."""

    def step(self) -> list[Emission | Failure]:
        """One step over everything admitted; [] when there is nothing to do."""

    def has_work(self) -> bool: ...

    def wait_ms(self) -> float:
        """With work in hand: how long `step` would have nothing to do (0: call it now)."""

    def capacity(self) -> Capacity: ...

    def token_text(self, token_id: int) -> bytes:
        """The bytes of one token, for logprobs in OpenAI's shape."""

    def close(self) -> None: ...
