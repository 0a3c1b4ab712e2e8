"""Who is next: deficit round robin over lanes with a floor for the low ones, tenants in turn within a
lane. Pure.

Source: M. Shreedhar, G. Varghese, "Efficient Fair Queuing Using Deficit Round Robin", 1995. `cost` is
in any one unit (tokens, requests). A lane's share is its weight over the weights of the lanes that have
work, but never below the floor.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
GONE_LIMIT = 256  # tenants remembered without items; only those ahead of the lane's level matter


@dataclass(slots=True)
class _Tenant(Generic[Item]):
    items: deque[tuple[float, Item]] = field(default_factory=deque)  # (cost, item)
    spent: float = 0.0  # virtual time: the cost it took, beginning at the lane's level


@dataclass(slots=True)
class _Lane(Generic[Item]):
    share: float  # of the whole, when every lane has work
    deficit: float = 0.0
    count: int = 0
    level: float = 0.0  # highest `spent` served so far: a new tenant begins here, not at 0
    tenants: OrderedDict[str, _Tenant[Item]] = field(default_factory=OrderedDict)
    gone: dict[str, float] = field(default_factory=dict)  # tenant without items → its `spent`

    def owner(self, tenant: str) -> _Tenant[Item]:
        known = self.tenants.get(tenant)
        if known is None:
            # who comes back one item at a time must not begin anew each time, or it is always next
            spent = max(self.level, self.gone.pop(tenant, 0.0))
            known = self.tenants[tenant] = _Tenant(spent=spent)
        return known

    def leave(self, tenant: str) -> None:
        self.gone[tenant] = self.tenants.pop(tenant).spent
        if len(self.gone) > GONE_LIMIT:
            self.gone = {name: spent for name, spent in self.gone.items() if spent > self.level}
        if len(self.gone) > GONE_LIMIT:
            del self.gone[next(iter(self.gone))]


def shares(weights: Mapping[str, int], floor: float) -> dict[str, float]:
    """Weights as shares of 1 with no share below `floor`. Raises ValueError when the floors leave
    nothing to weigh."""
    if not weights or any(weight <= 0 for weight in weights.values()):
        raise ValueError(f"every lane needs a weight above 0, not {dict(weights)}")
    if not 0 <= floor * len(weights) < 1:
        raise ValueError(f"a floor of {floor} for each of {len(weights)} lanes leaves nothing over")
    low: set[str] = set()
    while True:  # raise the lanes below the floor, weigh the rest, until none is below
        rest = sum(weight for lane, weight in weights.items() if lane not in low)
        free = 1 - floor * len(low)
        below = {
            lane
            for lane, weight in weights.items()
            if lane not in low and weight / rest * free < floor
        }
        if not below:
            break
        low |= below
    return {
        lane: floor if lane in low else weight / rest * free for lane, weight in weights.items()
    }


class LaneQueue(Generic[Item]):
    """What waits here, by lane and tenant; small, since the queue itself stays in Kafka."""

    def __init__(self, weights: Mapping[str, int], *, floor: float = 0.05) -> None:
        self._lanes: OrderedDict[str, _Lane[Item]] = OrderedDict(
            (lane, _Lane(share)) for lane, share in shares(weights, floor).items()
        )

    def __len__(self) -> int:
        return sum(lane.count for lane in self._lanes.values())

    def waiting(self, lane: str) -> int:
        """Items of a lane."""
        return self._lanes[lane].count

    def push(self, lane: str, tenant: str, item: Item, cost: float = 1.0) -> None:
        """Queue an item behind its tenant's others. Raises KeyError for an unknown lane, ValueError
        for a cost that is not above 0."""
        if not cost > 0:
            raise ValueError(f"a cost must be above 0, not {cost}")
        queue = self._lanes[lane]
        queue.owner(tenant).items.append((cost, item))
        queue.count += 1

    def pop(self, fits: Callable[[Item], bool] | None = None) -> Item | None:
        """The next item; None when nothing waits, or nothing that `fits` (asked of the first item of
        each tenant, in order: what does not fit keeps its place)."""
        ready = {name: taker for name, lane in self._lanes.items() if (taker := _next(lane, fits))}
        if not ready:
            return None
        name = self._turn({name: tenant.items[0][0] for name, (_, tenant) in ready.items()})
        return self._take(self._lanes[name], *ready[name])

    def items(self) -> Iterator[tuple[str, str, Item]]:
        """All that waits: (lane, tenant, item), each tenant's in order."""
        for name, lane in self._lanes.items():
            for tenant, owner in lane.tenants.items():
                for _, item in owner.items:
                    yield name, tenant, item

    def remove(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Take out everything that is `unwanted` (cancelled, expired, no longer ours)."""
        removed: list[Item] = []
        for lane in self._lanes.values():
            for tenant, owner in list(lane.tenants.items()):
                kept: deque[tuple[float, Item]] = deque()
                for cost, item in owner.items:
                    if unwanted(item):
                        removed.append(item)
                        lane.count -= 1
                    else:
                        kept.append((cost, item))
                owner.items = kept
                if not kept:
                    lane.leave(tenant)
        return removed

    def _turn(self, costs: Mapping[str, float]) -> str:
        """The lane that may pay for its next item first; all that wait earn by share until then."""
        for lane in self._lanes.values():
            if not lane.count:
                lane.deficit = 0.0  # an empty lane saves nothing up
        # rounds until each could pay, at its share a round; the smallest wins, the order breaks ties
        rounds = {
            name: (cost - self._lanes[name].deficit) / self._lanes[name].share
            for name, cost in costs.items()
        }
        winner = min(rounds, key=lambda name: rounds[name])
        earned = max(0.0, rounds[winner])
        for name, cost in costs.items():
            lane = self._lanes[name]
            # at most the next item's cost: a lane that could not be served owes nobody a burst
            lane.deficit = min(cost, lane.deficit + earned * lane.share)
        self._lanes[winner].deficit -= costs[winner]
        return winner

    def _take(self, lane: _Lane[Item], tenant: str, owner: _Tenant[Item]) -> Item:
        cost, item = owner.items.popleft()
        lane.level = max(lane.level, owner.spent)
        owner.spent += cost
        lane.count -= 1
        if not owner.items:
            lane.leave(tenant)
        return item


def _next(
    lane: _Lane[Item], fits: Callable[[Item], bool] | None
) -> tuple[str, _Tenant[Item]] | None:
    """The tenant of a lane that had the least so far and whose first item fits."""
    best: tuple[str, _Tenant[Item]] | None = None
    for tenant, owner in lane.tenants.items():
        if best is not None and owner.spent >= best[1].spent:
            continue
        if fits is None or fits(owner.items[0][1]):
            best = (tenant, owner)
    return best
