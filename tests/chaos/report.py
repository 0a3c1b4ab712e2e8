"""The report: a table in Markdown, printed and kept in docs/reliability.md between two marks."""

from pathlib import Path

from benchmarks.machine import describe, quantile
from tests.chaos.load import Shape
from tests.chaos.verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
INTRO = """## Faults on real processes

`make chaos` starts everything as `headrace up` does, puts an open-loop load on it (arrivals by the clock,
whatever happens to those before them), and kills, pauses and restarts processes and brokers. It fails
when an accepted request has no outcome, two distinct ones or another one than `completed`; when two answers
to the same question differ; when a stream that a client read, cut and resumed as often as it was, differs in
a byte from the same stream read in one piece afterwards; when a client sees an error; and when a fault met
no work. *Silence* is the longest time that a stream in flight at a fault heard nothing: a worker that is
killed or pauses is declared dead after 8 s. *Tokens made in vain* are those that a device wrote and nobody
counts, over those that count; what a dead process had computed and not yet written (at most 30 ms or eight
tokens a stream) nobody can see.
"""
COLUMNS = (
    "fault",
    "hits",
    "in flight at a hit (streams + published)",
    "accepted",
    "lost",
    "two outcomes",
    "torn streams",
    "resumed",
    "attempts > 1",
    "outcomes",
    "longest silence of a stream in flight, p50 / p95 / max",
    "tokens made in vain",
)


def row(verdict: Verdict) -> list[str]:
    hits = verdict.hits
    streams = [hit.streams for hit in hits] or [0]
    published = [hit.published for hit in hits] or [0]
    silences = verdict.silences or [0.0]
    quiet = " / ".join(f"{quantile(silences, share):.1f}" for share in (0.5, 0.95, 1.0))
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(verdict.outcomes.items()))
    vain = verdict.said.wasted / max(1, verdict.said.counted)
    return [
        verdict.fault,
        str(len(hits)),
        f"{min(streams)}–{max(streams)} + {min(published)}–{max(published)}",
        str(verdict.accepted),
        str(verdict.lost),
        str(verdict.twice),
        f"{verdict.torn} of {verdict.compared}",
        str(verdict.resumed),
        str(verdict.attempts),
        outcomes,
        f"{quiet} s",
        f"{vain:.2%}",
    ]


def table(verdicts: list[Verdict]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(verdict)) + " |" for verdict in verdicts]
    return "\n".join(lines)


def section(title: str, shape: Shape, verdicts: list[Verdict]) -> str:
    load = (
        f"Load, open loop: {shape.streams} streams and {shape.publishes} published requests in flight, "
        f"{shape.tokens} tokens each, {shape.seconds:g} s where nothing happens; model `{shape.model}`."
    )
    found = [f"- {v.fault}: {each}" for v in verdicts for each in v.problems[:5]]
    wrong = "\n\nWrong:\n\n" + "\n".join(found) if found else ""
    return f"### {title}\n\n{load} {describe()}.\n\n{table(verdicts)}{wrong}\n"


def keep(title: str, text: str) -> None:
    """Put one section between the marks, in the place of its predecessor."""
    page = PAGE.read_text() if PAGE.exists() else "# Reliability\n"
    if BEGIN not in page:
        page = f"{page.rstrip()}\n\n{INTRO}\n{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    sections = [f"### {each}".rstrip() for each in inside.strip().split("### ") if each.strip()]
    kept = [each for each in sections if each.splitlines()[0] != f"### {title}"]
    body = "\n\n".join([*kept, text.rstrip()])
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
