"""Many seeds, over processes: what failed, and what they met, added up."""

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from .scenario import make_scenario
from .seed import run_seed

CHUNK = 10  # seeds that a process takes at a time
ENOUGH = 50  # seeds from which on every one of MUST must have happened
MUST = ("attempts above 1", "resumed streams", "tokens of superseded attempts", "void leases")


@dataclass(frozen=True, slots=True)
class Told:
    """One seed, as its process tells it."""

    seed: int
    fault: str
    digest: str
    counts: Counter[str]
    histories: frozenset[str]


@dataclass(slots=True)
class Report:
    seeds: int = 0
    spent: float = 0.0  # s
    failed: dict[int, str] = field(default_factory=dict)  # seed → what was wrong
    counts: Counter[str] = field(default_factory=Counter)
    histories: set[str] = field(
        default_factory=set
    )  # ways in which requests went through the ledger

    def add(self, told: Told) -> None:
        self.seeds += 1
        self.counts.update(told.counts)
        self.histories |= told.histories
        if told.fault:
            self.failed[told.seed] = told.fault

    def missed(self) -> list[str]:
        """What a sweep of this size must have met and has not: its faults hit nothing."""
        return [name for name in MUST if self.seeds >= ENOUGH and not self.counts[name]]

    def lines(self) -> Iterator[str]:
        rate = self.seeds / self.spent if self.spent else 0.0
        yield f"{self.seeds} seeds, {len(self.failed)} failed, {rate:.1f} seeds/s"
        for name, count in sorted(self.counts.items()):
            yield f"  {name:<32}{count:>12,}"
        yield f"  {'states: ways through the ledger':<32}{len(self.histories):>12,}"
        yield from (f"  nothing of the kind: {name}" for name in self.missed())


def sweep(seeds: Sequence[int], jobs: int, told: Callable[[Report, Told], None]) -> Report:
    """Run `seeds` in `jobs` processes; `told` hears of each as it ends."""
    begun, report = time.perf_counter(), Report()
    for one in _run_all(seeds, jobs):
        report.add(one)
        report.spent = time.perf_counter() - begun
        told(report, one)
    return report


def _run_all(seeds: Sequence[int], jobs: int) -> Iterator[Told]:
    if jobs == 1:
        yield from map(run_one, seeds)
        return
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    # spawned, so that every process begins alike, whatever this one has loaded
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=quiet) as pool:
        for future in as_completed([pool.submit(run_chunk, chunk) for chunk in chunks]):
            yield from future.result()


def quiet() -> None:
    """What simulated processes log is no news; a failing seed is told by its records."""
    gc.freeze()  # modules are no garbage: a tenth of a seed's time went into looking at them
    logging.disable(logging.CRITICAL)


def run_chunk(seeds: Sequence[int]) -> list[Told]:
    return [run_one(seed) for seed in seeds]


def first_failing(seeds: Iterable[int]) -> Told | None:
    """None: every promise held in all of them."""
    quiet()
    return next((told for told in map(run_one, seeds) if told.fault), None)


def run_one(seed: int) -> Told:
    verdict = run_seed(make_scenario(seed))
    return Told(seed, verdict.fault, verdict.digest, verdict.told, frozenset(verdict.histories))
