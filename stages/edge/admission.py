"""Whether a lane may hold one more request: by the time it would take to drain (pure)."""

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from pipeline.log import Placed
from schemas.errors import Refusal
from schemas.status import Status

MEMORY_LIMIT = 0.9  # share of device memory beyond which nothing more is accepted
UNKNOWN_RATE = 0.1  # requests/s that a slot is believed to do before it was kept busy
RETRY_LIMIT = 120  # s: nobody should be sent away for longer on the strength of an estimate
NO_WORKER_RETRY = 5  # s: about what a worker takes to come back
OWN_LIMIT = 100_000  # own admissions remembered; beyond it the oldest counts as known


@dataclass(frozen=True, slots=True)
class Sample:
    """What the statuses say of one lane now."""

    queued: float  # accepted and not yet leased
    rate: float  # requests/s that leave the queue
    free: int  # slots of live workers without a sequence
    slots: int
    edges: int  # live edges share the headroom
    reached: Sequence[
        int
    ]  # offset in each partition of hr.requests up to which all of them counted
    memory: float  # share used on the emptiest device
    due: float = 0.0  # requests/s that the lane gets at the least, however full the others are

    @property
    def waiting(self) -> float:
        """Requests that find no free slot."""
        return max(0.0, self.queued - self.free)

    @property
    def capacity(self) -> float:
        """Requests/s that the lane can do. What it did says so only while somebody waited: an idle
        lane is slow for want of work, and one that is refused more than its share is slow for that."""
        believed = self.slots * UNKNOWN_RATE
        if self.waiting and self.rate:
            return max(self.rate, self.due)
        return max(self.rate, self.due, believed)

    @property
    def drain(self) -> float:
        """Seconds until the queue would be empty."""
        return self.waiting / self.capacity


def sample(
    lane: str,
    workers: Sequence[Status],
    orchestrators: Sequence[Status],
    edges: int,
    share: float = 0.0,
) -> Sample:
    """From live members' statuses. Every orchestrator counts its own partitions; the lag of
    `hr.requests` is the whole topic's in each. `share`: of all that is done, the lane's by its weight."""
    figures = [
        each.worker for each in workers if each.worker is not None and not each.worker.paused
    ]
    seen = [each.orchestrator for each in orchestrators if each.orchestrator is not None]
    slots = sum(one.slots for one in figures)
    return Sample(
        queued=sum(one.waiting.get(lane, 0) for one in seen)
        + max((one.requests_lag for one in seen), default=0),
        rate=sum(one.rate.get(lane, 0.0) for one in seen),
        free=max(0, slots - sum(len(one.running) for one in figures)),
        slots=slots,
        edges=max(1, edges),
        reached=[min(ends) for ends in zip(*(one.requests_ends for one in seen), strict=False)],
        memory=min((one.memory_used for one in figures), default=0.0),
        due=share * sum(sum(one.rate.values()) for one in seen),
    )


@dataclass(slots=True)
class Admission:
    """`target`: seconds of queue that each lane may hold.

    Own admissions count until the samples know of them or they have ended, so that a burst between two
    samples is not let in as a whole by every edge.
    """

    target: dict[str, float]
    chance: random.Random
    shares: dict[str, float] = field(default_factory=dict)  # lane → of the fleet's work, by weight
    own: dict[str, OrderedDict[str, Placed | None]] = field(
        default_factory=dict
    )  # lane → id → where
    reached: dict[str, Sequence[int]] = field(default_factory=dict)  # lane → what own was swept by

    def check(self, lane: str, latest: Sample) -> None:
        """Raises Refusal when the lane may not hold one more."""
        if latest.slots == 0:
            raise self._nobody("no worker is alive; a request would only wait")
        if latest.memory > MEMORY_LIMIT:
            raise self._nobody(f"every device uses more than {MEMORY_LIMIT:.0%} of its memory")
        own = self._unknown_to(latest, lane)
        target, capacity = self.target[lane], latest.capacity
        headroom = latest.free + target * capacity - latest.queued
        if own >= headroom / latest.edges:
            held = (latest.queued + own * latest.edges - latest.free) / capacity
            raise Refusal(
                "lane_overloaded",
                f"lane {lane} holds {held:.1f} s of work; its limit is {target:g} s",
                retry_after=self._jittered(held - target),
            )

    def admitted(self, lane: str, request_id: str) -> None:
        own = self.own.setdefault(lane, OrderedDict())
        own[request_id] = None
        if len(own) > OWN_LIMIT:
            own.popitem(last=False)

    def placed(self, lane: str, request_id: str, place: Placed) -> None:
        """Its record lies there: a sample that reaches beyond knows of it."""
        own = self.own.get(lane)
        if own is not None and request_id in own:
            if _within(place, self.reached.get(lane, ())):
                del own[request_id]
            else:
                own[request_id] = place

    def ended(self, lane: str, request_id: str) -> None:
        """It waits no more."""
        if (own := self.own.get(lane)) is not None:
            own.pop(request_id, None)

    def _unknown_to(self, latest: Sample, lane: str) -> int:
        """Own admissions of which the sample cannot know yet."""
        own = self.own.get(lane)
        if own is None:
            return 0
        if latest.reached != self.reached.get(lane):
            self.reached[lane] = latest.reached
            known = [id for id, at in own.items() if at is not None and _within(at, latest.reached)]
            for request_id in known:
                del own[request_id]
        return len(own)

    def _nobody(self, message: str) -> Refusal:
        return Refusal("no_live_worker", message, retry_after=self._jittered(NO_WORKER_RETRY))

    def _jittered(self, seconds: float) -> int:
        """Whole seconds, at least 1, spread by half so that those sent away do not return at once."""
        base = min(max(seconds, 1.0), RETRY_LIMIT)
        return ceil(base * (1 + self.chance.random() / 2))


def _within(place: Placed, reached: Sequence[int]) -> bool:
    return place.partition < len(reached) and place.offset < reached[place.partition]
