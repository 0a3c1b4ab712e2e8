"""The ways in which a prompt may be run, all of which must give the same bits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workers.capacity import Policy
from workers.job import Capacity
from workers.model_runner import ModelRunner

Need = Callable[[Capacity], int]


class ForcedSwap(ModelRunner):
    """Swaps always, or never, whichever would be cheaper."""

    swaps = True

    def swap_pays(self, blocks: int, tokens: int) -> bool:
        return self.swaps


class NoSwap(ForcedSwap):
    swaps = False


class EagerDrafts(NoSwap):
    """Drafts whether they pay or not."""

    @property
    def draft_cost(self) -> float:
        return 0.05

    @draft_cost.setter
    def draft_cost(self, measured: float) -> None:
        pass  # what was measured says how fast the machine is, not whether drafts are exact


@dataclass
class Way:
    """A way to run jobs, and what it must have done to count."""

    name: str
    group: int = 64  # jobs that are handed in at once
    blocks: int = 512
    runner: type[ModelRunner] = NoSwap
    warm: bool = False
    preempt: bool = False
    threads: int = 0
    needs: tuple[tuple[str, Need], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


_PREEMPTED = ("preemptions", lambda c: c.preemptions)
PLAIN = (("prefix_cache", False), ("speculate", False))


def _at_least(size: int) -> Need:
    return lambda capacity: capacity.max_occupancy >= size


def ways(count: int) -> list[Way]:
    """All cells; `count` is how many prompts there are."""
    company = [
        Way(
            f"batch of {size}",
            group=size,
            needs=(("occupancy", _at_least(min(size, count))),),
            options=PLAIN,
        )
        for size in (2, 4, 16, 64)
    ]
    chunks = [
        Way(
            f"prompts in chunks of {size}",
            options=(*PLAIN, ("max_batch_tokens", size), ("slots", 8)),
        )
        for size in (16, 64, 256)
    ]
    return [
        *company,
        *chunks,
        Way("prompts whole", options=(*PLAIN, ("max_batch_tokens", 4096))),
        Way("prefix cache cold", options=(("speculate", False),)),
        Way(
            "prefix cache warm",
            blocks=2048,
            warm=True,
            needs=(("cache hits", lambda c: c.cache_hit_tokens),),
            options=(("speculate", False),),
        ),
        Way("preempted and computed again", preempt=True, needs=(_PREEMPTED,), options=PLAIN),
        Way(
            "preempted, found in the prefix cache",
            preempt=True,
            needs=(_PREEMPTED, ("cache hits", lambda c: c.cache_hit_tokens)),
            options=(("speculate", False),),
        ),
        Way(
            "swapped out and in",
            preempt=True,
            runner=ForcedSwap,
            needs=(("swaps", lambda c: c.swaps),),
            options=PLAIN,
        ),
        Way(
            "too few blocks",
            blocks=96,
            needs=(_PREEMPTED,),
            options=(("policy", Policy(first_guess=1, margin=0)), ("speculate", False)),
        ),
        Way(
            "speculation",
            group=2,
            runner=EagerDrafts,
            needs=(("accepted drafts", lambda c: c.accepted_drafts),),
            options=(("prefix_cache", False),),
        ),
        Way("one thread", threads=1, group=8),
        Way("two threads", threads=2, group=8),
    ]
