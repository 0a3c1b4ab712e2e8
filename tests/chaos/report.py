"""The report: a table in Markdown, printed and kept in docs/reliability.md between two marks."""

from pathlib import Path

from benchmarks.machine import commit, machine, quantile
from tests.chaos.load import Shape
from tests.chaos.verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
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
    "load, open loop",
    "commit",
)


def row(verdict: Verdict, shape: Shape) -> list[str]:
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
        f"{shape.streams} + {shape.publishes} × {shape.tokens} tokens in {shape.seconds:g} s",
        commit(),
    ]


def line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(rows: list[str]) -> str:
    return "\n".join([line(COLUMNS), "|" + "---|" * len(COLUMNS), *rows])


def keep(title: str, verdict: Verdict, shape: Shape, order: list[str]) -> None:
    """Put one row into its broker's table on the page, in the place of its predecessor; `order`: the
    faults as they are to stand."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    sections = dict(part.split("\n", 1) for part in f"\n{inside}".split("\n### ")[1:])
    sections[title] = merged(sections.get(title, ""), verdict, shape, order)
    body = "\n\n".join(f"### {name}\n\n{text.strip()}" for name, text in sections.items())
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")


def merged(section: str, verdict: Verdict, shape: Shape, order: list[str]) -> str:
    """A section with this fault's row, and what was wrong with it, in the place of the old ones."""
    rows: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    for each in section.splitlines():
        if each.startswith("| ") and not each.startswith(f"| {COLUMNS[0]} |"):
            rows[each.split(" | ")[0].removeprefix("| ")] = each
        elif each.startswith("- "):
            wrong.setdefault(each.removeprefix("- ").partition(": ")[0], []).append(each)
    rows[verdict.fault] = line(row(verdict, shape))
    wrong[verdict.fault] = [f"- {verdict.fault}: {each}" for each in verdict.problems[:5]]
    known = [name for name in order if name in rows]
    said = [each for name in known for each in wrong.get(name, [])]
    parts = [f"{machine()}; model `{shape.model}`.", table([rows[name] for name in known])]
    if said:
        parts += ["Wrong:", "\n".join(said)]
    return "\n\n".join(parts)
