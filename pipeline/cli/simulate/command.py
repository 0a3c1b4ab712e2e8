"""`headrace simulate --seeds A-B [--explain SEED]`."""

import sys
from collections.abc import Callable
from pathlib import Path

from .scenario import make_scenario
from .seed import run_seed
from .shrink import shrink
from .sweep import Report, Told, quiet, sweep
from .timeline import explain, write_html

SHRUNK = 3  # failing seeds that are made small and told; one alone may take a minute


def parse_range(text: str) -> range | None:
    """`A-B`, both included, or one number; None: neither."""
    first, _, last = text.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        return None
    return range(int(first), int(last or first) + 1)


def simulate(seeds: range, jobs: int) -> int:
    """0: every promise held in every seed."""
    quiet()
    report = sweep(seeds, jobs, _progress(len(seeds)))
    for line in report.lines():
        print(line)
    for seed in sorted(report.failed)[:SHRUNK]:
        small = shrink(make_scenario(seed), lambda scenario: bool(run_seed(scenario).fault))
        print(explain(run_seed(small, explain=True)))
    return 1 if report.failed or report.missed() else 0


def explain_seed(seed: int, out: Path) -> int:
    """Tell one seed: text to standard output and a file, a diagram beside it."""
    quiet()
    verdict = run_seed(make_scenario(seed), explain=True)
    text = explain(verdict)
    print(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"seed-{seed}.txt").write_text(text + "\n")
    page = out / f"seed-{seed}.html"
    write_html(verdict, page)
    print(f"the diagram is in {page}", file=sys.stderr)
    return 1 if verdict.fault else 0


def _progress(of: int) -> Callable[[Report, Told], None]:
    def told(report: Report, one: Told) -> None:
        if one.fault:
            print(f"\rseed {one.seed}: {one.fault}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"\r{report.seeds} of {of}, {len(report.failed)} failed", end="", file=sys.stderr)

    return told
