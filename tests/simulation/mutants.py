"""Do the oracles bite? Each mutant breaks one rule of the real code; some seed has to notice.

`python -m tests.simulation.mutants [--jobs N] [NAME…]`. Every mutant runs in a copy of the tree; a rule that
nobody misses is a fault or an oracle that is missing here.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.rules import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "pipeline", "stages", "workers", "kernels", "tests")
SEEDS = 500  # within which each must be caught
LIMIT = 1800.0  # s for one mutant
FIND = """
from pipeline.cli.simulate.sweep import first_failing
told = first_failing(range({first}, {seeds}))
print("" if told is None else f"{{told.seed}} {{told.fault.splitlines()[-1]}}")
"""


@dataclass(frozen=True, slots=True)
class Caught:
    mutant: Mutant
    seed: int | None  # None: it survived; 0 where its test caught it
    why: str
    spent: float  # s


def mutate(source: str, mutant: Mutant) -> str:
    """Raises ValueError: the text that it replaces is not there exactly once."""
    if source.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.file} has its text {source.count(mutant.old)} times"
        )
    return source.replace(mutant.old, mutant.new)


def catch(mutant: Mutant, seeds: int = SEEDS) -> Caught:
    """Run it until a seed fails, or its test."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="headrace-mutant-") as folder:
        for package in PACKAGES:
            shutil.copytree(
                ROOT / package,
                Path(folder) / package,
                ignore=shutil.ignore_patterns("*.so", "build"),
            )
        shutil.copy(ROOT / "pyproject.toml", folder)
        path = Path(folder) / mutant.file
        path.write_text(mutate(path.read_text(), mutant))
        seed, why = _run_test(folder, mutant) if mutant.test else _run_seeds(folder, mutant, seeds)
    return Caught(mutant, seed, why, time.perf_counter() - begun)


def _run_seeds(folder: str, mutant: Mutant, seeds: int) -> tuple[int | None, str]:
    done = _run(folder, "-c", FIND.format(first=mutant.first, seeds=mutant.first + seeds))
    if done.returncode:
        raise RuntimeError(f"{mutant.name} does not run: {done.stderr[-2000:]}")
    seed, _, why = done.stdout.strip().partition(" ")
    return int(seed) if seed else None, why


def _run_test(folder: str, mutant: Mutant) -> tuple[int | None, str]:
    """1 is pytest's word for a test that failed; anything else decides nothing."""
    done = _run(folder, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test)
    if done.returncode > 1:
        raise RuntimeError(f"{mutant.name} does not run: {(done.stdout + done.stderr)[-2000:]}")
    return (0 if done.returncode else None), mutant.test


def _run(folder: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env={"PYTHONPATH": folder, "PYTHONHASHSEED": "0"},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def catch_all(mutants: Sequence[Mutant], jobs: int, seeds: int) -> list[Caught]:
    """All of them, `jobs` at a time; prints each as it is decided."""
    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for caught in pool.map(lambda mutant: catch(mutant, seeds), mutants):
            found.append(caught)
            by = "its test" if caught.mutant.test else f"seed {caught.seed}"
            said = "SURVIVED" if caught.seed is None else by
            line = f"{caught.mutant.name:<38}{said:<10}{caught.spent:>6.0f} s  {caught.why[:110]}"
            print(line, flush=True)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("names", nargs="*")
    given = options.parse_args()
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    found = catch_all(chosen, given.jobs, given.seeds)
    survived = [caught.mutant.name for caught in found if caught.seed is None]
    print(f"{len(found) - len(survived)} of {len(found)} mutants caught")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
