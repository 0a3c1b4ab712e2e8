"""What an open request needs next, from what its ledger says and from who is alive. Pure."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

from schemas.ledger import Lease

from .books import Case
from .slots import Spoken

LATE = 2_000  # ms past the deadline until a holder that should have ended it is reminded
FAULTS = 2  # attempts in a row that an engine gave back as faults: no accident looks like that
DEATHS = (
    3  # in a row in a calm fleet: two may be an accident that met a request twice before a token
)
DEATHS_LIMIT = 8  # in a row, whatever else dies
HARMLESS = ("full", "drain", "wrong_model", "lost", "superseded")  # say nothing of the request


Life = tuple[str, str]  # a worker's id and epoch


@dataclass(frozen=True, slots=True)
class Strikes:
    """Attempts in a row, up to the last, that ended with their worker, or at a fault, and added no token."""

    lives: frozenset[Life] = field(default_factory=frozenset)  # that ended with the attempt
    faults: int = 0  # given back by a worker that lives on

    @property
    def count(self) -> int:
        return len(self.lives) + self.faults

    def poison(self, deaths: Collection[Life]) -> bool:
        """Whether the request kills its workers; `deaths`: worker lives that ended lately.

        A poison kills every worker that takes it; an accident hits whoever is about to say its first token,
        and in a fleet whose workers die again and again somebody always is. So each death in which it
        had no part asks for one more in which it had.
        """
        others = sum(life not in self.lives for life in set(deaths))
        return self.faults >= FAULTS or self.count >= min(DEATHS + others, DEATHS_LIMIT)


class Holder(Enum):
    """Who has the current attempt."""

    NOBODY = "nobody"  # given back, or the lease cannot be read
    ALIVE = "alive"
    DEAD = "dead"
    ENDING = "ending"  # ourselves, at work on it
    ORCHESTRATOR = "orchestrator"  # another one, or a former life: it does not own the partition


class Step(Enum):
    NOTHING = "nothing"
    END = "end"  # nobody can do it but us: cancelled, expired
    CONTINUE = "continue"  # the next attempt, or poison
    WAKE_CANCELLED = "cancelled"
    WAKE_EXPIRED = "expired"


def next_step(case: Case, holder: Holder, deadline: int, now: int) -> Step:
    """Level-triggered: the same question may be asked at any moment."""
    fold = case.fold
    if fold.ended or case.doubtful or holder is Holder.ENDING:
        return Step.NOTHING
    if fold.n == 0:
        return Step.END if fold.cancelled else Step.NOTHING
    if holder is Holder.ALIVE:
        if fold.cancelled:
            return Step.WAKE_CANCELLED
        return Step.WAKE_EXPIRED if now > deadline + LATE else Step.NOTHING
    return Step.END if fold.cancelled or now > deadline else Step.CONTINUE


def for_itself(lease: Lease) -> bool:
    """The lease of an orchestrator that only ends the request."""
    return lease.worker == lease.orchestrator


def needs_slot(case: Case) -> bool:
    """Whether the last attempt of a worker may count as a strike."""
    return case.given_back.get(case.fold.n) not in HARMLESS


def strikes(case: Case, spoken: Spoken, gone: Callable[[str, str], bool]) -> Strikes:
    """What speaks against a request.

    Neither for nor against: attempts of an orchestrator, those given back for other reasons, those that
    wrote no `open` (unless their worker could not read them), and those whose worker was only silent:
    it lives now (`gone` says not), or took a later attempt, for a process dies once.
    """
    faults = 0
    lives: set[Life] = set()
    later: set[Life] = set()  # took an attempt further on
    for attempt in range(case.fold.n, 0, -1):
        lease = case.holders.get(attempt)
        why = case.given_back.get(attempt)
        if why in HARMLESS or (lease is not None and for_itself(lease)):
            continue
        if spoken.added.get(attempt, 0) > 0:
            break
        opened = attempt in spoken.opened
        if why is not None:
            faults += opened or why == "unreadable"
        elif lease is not None:
            life = (lease.worker, lease.epoch)
            if opened and life not in later and gone(*life):
                lives.add(life)
            later.add(life)
    return Strikes(frozenset(lives), faults)
