"""What happens in one seed: pure data, so that a failing one can be shrunk and told."""

import random
from dataclasses import dataclass, replace

ROLES = {"edge": 2, "ingress": 2, "orchestration": 2, "worker": 3, "delivery": 2}
RATES = (6.0, 20.0, 60.0, 150.0)  # tokens/s: chunks of one token, of two, of five
LANES = ("priority", "default", "flex")
SPAN = 12.0  # s of virtual time in which requests come and faults strike
PROCESS_FAULTS = ("kill", "pause", "deaf", "cut_off", "drain", "slow")
LOG_FAULTS = ("lost_acks", "lost_writes", "late", "repeated", "unavailable")
ROLE_FAULTS = ("storm", "blackout")
GROUP_FAULTS = ("rebalance", "handover")
OTHER_FAULTS = ("store_lost", "poison", "future")
FAULTS = PROCESS_FAULTS + LOG_FAULTS + ROLE_FAULTS + GROUP_FAULTS + OTHER_FAULTS
FUTURE_TOPICS = ("requests", "ready", "ledger", "work")  # those that carry an obligation
BAD_TOPICS = ("requests", "ready", "ledger", "work", "tokens", "status", "control")


@dataclass(frozen=True, slots=True)
class Field:
    """Where faults strike: who, which topics, whose group."""

    roles: tuple[str, ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]


EVERYWHERE = Field(
    tuple(ROLES),
    ("tokens", "ledger", "results", "requests", "ready.silver", "status", "work"),
    ("ingress", "orchestration", "delivery"),
)
SIEGES = (  # faults that meet: one stage and the logs that it stands on
    Field(("orchestration",), ("ledger", "ledger", "work", "ready.silver"), ("orchestration",)),
    Field(("worker",), ("tokens", "tokens", "work", "ledger", "status"), ("orchestration",)),
    Field(("delivery",), ("ledger", "results", "tokens"), ("delivery",)),
    Field(("edge", "ingress"), ("requests", "tokens", "ready.silver"), ("ingress",)),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One client and its request."""

    number: int
    at: float  # s
    way: str  # stream | whole | native | publish | keyed
    tokens: int
    tier: str
    edge: int  # 1 or 2
    cut_after: int | None = None  # frames, then it goes on at the other edge
    leave_after: float | None = None  # s, then it is gone for good
    cancel_after: float | None = None  # s
    deadline: float | None = None  # s from its beginning


@dataclass(frozen=True, slots=True)
class Fault:
    at: float  # s
    kind: str
    target: str  # a member, a role, a group, a topic
    lasts: float  # s
    share: float = 0.3  # of the batches that it hits


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    skews: tuple[int, ...]  # ms that each process's clock is off
    vary: bool  # tokens depend on the attempt, or mixed streams would be invisible
    static: bool = True  # a restart keeps its partitions; else it moves them
    session: float = 45.0  # s of silence after which a group gives a member's partitions away
    rate: float = 20.0  # tokens/s of a stream: the faster, the more tokens a chunk carries
    parked: int = 256  # requests without a live worker in memory; beyond it they wait on a topic
    poison: int | None = None  # the ask that kills every worker that begins it
    inboxes: int = 4  # partitions of hr.work: with fewer than workers, some share one
    slots: int = 16  # of each worker: with few, orders wait for credit
    far: bool = False  # edges are far from the broker: much is said while they look back

    def without(self, asks: set[int] = frozenset(), faults: set[int] = frozenset()) -> "Scenario":  # type: ignore[assignment]
        """Less of it: `asks` by number, `faults` by index."""
        return replace(
            self,
            asks=tuple(a for a in self.asks if a.number not in asks),
            faults=tuple(f for i, f in enumerate(self.faults) if i not in faults),
        )


def make_scenario(seed: int, *, asks: int = 40, faults: int = 20) -> Scenario:
    chance = random.Random(f"scenario {seed}")
    field = EVERYWHERE if chance.random() < 0.5 else chance.choice(SIEGES)
    made = Scenario(
        seed=seed,
        asks=tuple(_ask(chance, number) for number in range(asks)),
        faults=tuple(sorted((_fault(chance, field) for _ in range(faults)), key=lambda f: f.at)),
        skews=tuple(chance.randint(-3000, 3000) for _ in range(sum(ROLES.values()))),
        vary=seed % 2 == 1,
        static=chance.random() < 0.5,
        session=chance.choice([6.0, 10.0, 45.0]),
        inboxes=chance.choice([1, 2, 4]),
        rate=chance.choice(RATES),
        parked=chance.choice([256, 256, 2]),
        poison=chance.randrange(asks) if asks and chance.random() < 0.25 else None,
        slots=chance.choice([16, 16, 16, 3]),
    )
    if chance.random() < 0.1:
        made = _stranded(made, chance)
    return replace(made, far=chance.random() < 0.2)


def _stranded(made: Scenario, chance: random.Random) -> Scenario:
    """No worker for so long that requests wait on a topic of their own; they are slow to land there,
    and who moved them dies meanwhile."""
    away = Fault(chance.uniform(0.2, 0.8), "blackout", "worker", 10.0)
    late = Fault(away.at, "late", "waiting.null", SPAN, 0.8)
    died = Fault(away.at + chance.uniform(5.0, 10.0), "blackout", "orchestration", 0.5)
    faults = tuple(sorted((*made.faults, away, late, died), key=lambda f: f.at))
    return replace(made, faults=faults, parked=2)


def _ask(chance: random.Random, number: int) -> Ask:
    way = chance.choice(
        ["stream", "stream", "stream", "whole", "native", "publish", "publish", "keyed"]
    )
    cut = chance.randint(1, 12) if way in ("stream", "native") and chance.random() < 0.4 else None
    return Ask(
        number=number,
        at=chance.uniform(0, SPAN * 0.8),
        way=way,
        tokens=min(chance.randint(4, 32), chance.randint(4, 32)),  # short ones more often
        tier=chance.choice(LANES),
        edge=chance.randint(1, 2),
        cut_after=cut,
        leave_after=chance.uniform(0.1, 2) if way == "stream" and chance.random() < 0.06 else None,
        cancel_after=chance.uniform(0.05, 2) if way != "whole" and chance.random() < 0.1 else None,
        deadline=chance.uniform(0.2, 4) if chance.random() < 0.06 else None,
    )


def _fault(chance: random.Random, field: Field) -> Fault:
    kind = chance.choice((*FAULTS, "kill", "kill", "pause", "late", *GROUP_FAULTS))
    if kind in PROCESS_FAULTS:
        role = chance.choice(field.roles)
        target = f"{role}-{chance.randint(1, ROLES[role])}"
    elif kind in ROLE_FAULTS:
        target = chance.choice(field.roles)
    elif kind in GROUP_FAULTS:
        target = chance.choice(field.groups)
    elif kind == "poison":
        target = chance.choice(BAD_TOPICS)
    elif kind == "future":
        target = chance.choice(FUTURE_TOPICS)
    else:
        target = chance.choice(field.topics)
    lasts = chance.choice([0.2, 1.0, 3.0, 10.0, 20.0]) * chance.uniform(0.5, 1.0)
    share = chance.uniform(0.1, 0.5) if field is EVERYWHERE else chance.uniform(0.3, 0.9)
    return Fault(chance.uniform(0.5, SPAN), kind, target, lasts, share)
