"""A failing seed made small: fewer requests, fewer faults, the same failure."""

from collections.abc import Callable

from .scenario import Scenario

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails, *, tries: int = 60) -> Scenario:
    """Delta debugging (Zeller 1999) on faults, then on requests; at most `tries` runs."""
    left = [tries]

    def still(candidate: Scenario) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(candidate)

    scenario = _reduce(
        scenario, len(scenario.faults), lambda s, some: s.without(faults=some), still
    )
    numbers = [ask.number for ask in scenario.asks]
    return _reduce(
        scenario,
        len(numbers),
        lambda s, some: s.without(asks={numbers[i] for i in some}),
        still,
    )


def _reduce(
    scenario: Scenario, count: int, drop: Callable[[Scenario, set[int]], Scenario], still: Fails
) -> Scenario:
    """Drop halves, then quarters, down to single ones, while it still fails."""
    dropped: set[int] = set()
    size = max(1, count // 2)
    while True:
        for begin in range(0, count, size):
            some = set(range(begin, min(begin + size, count))) - dropped
            if some and still(drop(scenario, dropped | some)):
                dropped |= some
        if size == 1:
            return drop(scenario, dropped)
        size = max(1, size // 2)
