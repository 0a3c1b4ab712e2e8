"""`headrace simulate --seeds A-B [--explain SEED]`."""

import sys
import time
from collections import Counter
from pathlib import Path

from .scenario import make_scenario
from .seed import Verdict, run_seed
from .shrink import shrink
from .timeline import explain, write_html


def parse_range(text: str) -> range | None:
    """`A-B`, both included, or one number; None: neither."""
    first, _, last = text.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        return None
    return range(int(first), int(last or first) + 1)


def simulate(seeds: range, *, explained: int | None, out: Path) -> int:
    if explained is not None:
        return _explain(explained, out)
    begun = time.perf_counter()
    total: Counter[str] = Counter()
    failed: list[Verdict] = []
    for number, seed in enumerate(seeds, 1):
        verdict = run_seed(make_scenario(seed))
        total += verdict.told
        if verdict.fault:
            failed.append(verdict)
            print(f"seed {seed}: {verdict.fault}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"\r{number} of {len(seeds)}, {len(failed)} failed", end="", file=sys.stderr)
    spent = time.perf_counter() - begun
    print(f"{len(seeds)} seeds, {len(failed)} failed, {len(seeds) / spent:.1f} seeds/s")
    for name, count in sorted(total.items()):
        print(f"  {name:<26}{count}")
    for verdict in failed[:3]:
        small = shrink(verdict.scenario, lambda s: bool(run_seed(s).fault))
        print(explain(run_seed(small, explain=True)))
    return 1 if failed else 0


def _explain(seed: int, out: Path) -> int:
    verdict = run_seed(make_scenario(seed), explain=True)
    print(explain(verdict))
    page = out / f"seed-{seed}.html"
    out.mkdir(parents=True, exist_ok=True)
    write_html(verdict, page)
    print(f"the diagram is in {page}", file=sys.stderr)
    return 1 if verdict.fault else 0
