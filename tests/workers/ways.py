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
    batches: tuple[int, ...] = (64,)  # how many jobs are handed in at once, in turn
    company: bool = False  # short jobs fill up every batch that would be smaller than it should
    blocks: int = 512
    runner: type[ModelRunner] = NoSwap
    twice: bool = False  # all jobs once more, in the same engine
    preempt: bool = False
    threads: int = 2
    needs: tuple[tuple[str, Need], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


_PREEMPTED = ("preemptions", lambda c: c.preemptions)
_HIT = ("cache hits", lambda c: c.cache_hit_tokens)
PLAIN = (("prefix_cache", False), ("speculate", False))
ALONE = Way("alone", batches=(1,), blocks=64, threads=1, options=PLAIN)
CONTINUED = Way("continued at token k")


def _at_least(size: int) -> Need:
    return lambda capacity: capacity.max_occupancy >= size


def ways(count: int) -> list[Way]:
    """All cells; `count` is how many prompts there are. Few of them are in one size of batch each."""
    sizes = (2, 4, 16, 64)
    company = [
        Way(
            f"batches of {', '.join(map(str, batches))}",
            batches=batches,
            company=True,
            needs=((f"occupancy of {batches[-1]}", _at_least(batches[-1])),),
            options=PLAIN,
        )
        for batches in ([(size,) for size in sizes] if count > sum(sizes) else [sizes])
    ]
    chunks = [
        Way(
            f"prompts in chunks of {size}",
            options=(*PLAIN, ("max_batch_tokens", size), ("slots", 8)),
        )
        for size in (16, 64, 256)
    ]
    return [
        Way("one thread", threads=1),  # all others have two, but the reference
        *company,
        *chunks,
        Way("prompts whole", options=(*PLAIN, ("max_batch_tokens", 4096))),
        Way(
            "prefix cache cold, then warm",
            blocks=128 + 12 * count,  # all of it stays
            twice=True,
            needs=(_HIT,),
            options=(("speculate", False),),
        ),
        Way("preempted and computed again", preempt=True, needs=(_PREEMPTED,), options=PLAIN),
        Way(
            "preempted, found in the prefix cache",
            preempt=True,
            needs=(_PREEMPTED, _HIT),
            options=(("speculate", False),),
        ),
        Way(
            "swapped out and in",
            preempt=True,
            runner=ForcedSwap,
            needs=(_PREEMPTED, ("swaps", lambda c: c.swaps)),
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
            batches=(8,),
            runner=EagerDrafts,
            needs=(("accepted drafts", lambda c: c.accepted_drafts),),
            options=(("prefix_cache", False),),
        ),
    ]
