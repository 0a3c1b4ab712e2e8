"""Whether a lane may hold one more request: by the time it would take to drain (pure)."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from schemas.errors import Refusal
from schemas.status import OrchestratorFigures, Status

MEMORY_LIMIT = 0.9  # share of device memory beyond which nothing more is accepted
UNKNOWN_RATE = 1 / 60  # requests/s of one slot before any was measured: an answer takes a minute
RETRY_LIMIT = 60  # s: nobody should be sent away for longer on the strength of an estimate
NO_WORKER_RETRY = 5  # s: about what a worker takes to come back
OWN_LIMIT = (
    100_000  # own admissions remembered; at 600 requests/s, minutes of samples that stand still
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the statuses say of one lane now."""

    queued: float  # accepted and not yet leased
    rate: float  # requests/s that leave the queue
    free: int  # slots of live workers without a sequence
    slots: int
    edges: int  # live edges share the headroom
    time: int  # ms, of the oldest of the orchestrators' samples
    memory: float  # share used on the emptiest device

    @property
    def drain(self) -> float:
        """Seconds until the queue would be empty."""
        waiting = max(0.0, self.queued - self.free)
        return waiting / max(self.rate, self.slots * UNKNOWN_RATE, 1e-6)


def sample(
    lane: str, workers: Sequence[Status], orchestrators: Sequence[Status], edges: int
) -> Sample:
    """From live members' statuses. Every orchestrator counts its own partitions; the lag of
    `hr.requests` is the whole topic's in each."""
    figures = [
        each.worker for each in workers if each.worker is not None and not each.worker.paused
    ]
    seen = [each.orchestrator for each in orchestrators if each.orchestrator is not None]
    slots = sum(one.slots for one in figures)
    return Sample(
        queued=sum(one.waiting.get(lane, 0) for one in seen)
        + max((one.requests_lag for one in seen), default=0),
        rate=_rate(lane, seen),
        free=max(0, slots - sum(len(one.running) for one in figures)),
        slots=slots,
        edges=max(1, edges),
        time=min((one.sampled for one in seen), default=0),
        memory=min((one.memory_used for one in figures), default=0.0),
    )


def _rate(lane: str, seen: Sequence[OrchestratorFigures]) -> float:
    return sum(one.rate.get(lane, 0.0) for one in seen)


@dataclass(slots=True)
class Admission:
    """`target`: seconds of queue that each lane may hold. Own admissions count until the samples know
    of them, so that a burst between two samples is not let in as a whole by every edge."""

    target: dict[str, float]
    chance: random.Random
    _own: dict[str, deque[int]] = field(default_factory=dict)  # lane → times of admissions, ms

    def check(self, lane: str, now: int, latest: Sample) -> None:
        """Admit one request into the lane, or raise Refusal."""
        if latest.slots == 0:
            raise Refusal(
                "no_live_worker",
                "no worker is alive; a request would only wait",
                retry_after=self._jittered(NO_WORKER_RETRY),
            )
        if latest.memory > MEMORY_LIMIT:
            raise Refusal(
                "no_live_worker",
                f"every device uses more than {MEMORY_LIMIT:.0%} of its memory",
                retry_after=self._jittered(NO_WORKER_RETRY),
            )
        own = self._own.setdefault(lane, deque(maxlen=OWN_LIMIT))
        while own and own[0] < latest.time:
            own.popleft()
        rate = max(latest.rate, latest.slots * UNKNOWN_RATE)
        headroom = latest.free + self.target[lane] * rate - latest.queued
        if len(own) >= headroom / latest.edges:
            over = (latest.queued + len(own) * latest.edges - latest.free) / rate
            wait = over - self.target[lane]
            raise Refusal(
                "lane_overloaded",
                f"lane {lane} holds {over:.1f} s of work; its limit is {self.target[lane]:g} s",
                retry_after=self._jittered(wait),
            )
        own.append(now)

    def _jittered(self, seconds: float) -> int:
        """Whole seconds, at least 1, spread by half so that those sent away do not return at once."""
        base = min(max(seconds, 1.0), RETRY_LIMIT)
        return ceil(base * (1 + self.chance.random() / 2))
