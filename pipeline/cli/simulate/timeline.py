"""A seed told: who wrote what, where, in the order of its landing, between the faults."""

import html
from pathlib import Path

from pipeline.log import Record
from pipeline.simulation.loop import BASE_MS
from schemas.codec import text_header

from .oracles import records
from .seed import Verdict
from .world import World

WITH_LOG = ("requests", "ledger", "work", "tokens", "results", "control")
LANES = ("client", "edge", "ingress", "orchestration", "worker", "delivery")
WRITER = {  # who writes a record of this tag
    "request": "edge", "admitted": "ingress", "ready": "ingress", "lease": "orchestration",
    "order": "orchestration", "open": "worker", "chunk": "worker", "output": "worker",
    "released": "worker", "result": "delivery", "end": "delivery", "cancel": "edge",
    "attach": "edge", "detach": "edge", "wake": "orchestration",
}  # fmt: skip


def log_lines(world: World) -> list[str]:
    """Every record of the path, in time."""
    found: list[tuple[float, str]] = list(world.timeline)
    topics = [f"hr.{name}" for name in WITH_LOG]
    topics += [world.topics.ready(lane) for lane in ("gold", "silver", "bronze")]
    topics += [name for name in world.cluster.topics if name.startswith(world.topics.waiting(""))]
    for topic in topics:
        for record in records(world, topic):
            time = (record.timestamp - BASE_MS) / 1000
            found.append((time, _line(record)))
    return [f"{time:8.3f}  {line}" for time, line in sorted(found, key=lambda each: each[0])]


def _line(record: Record) -> str:
    kind = text_header(record.headers, "type") or "?"
    attempt = text_header(record.headers, "attempt")
    key = (record.key or b"").decode("utf-8", "replace")[-8:]
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    return f"{place:<24} {key:<8} {kind}{'' if attempt is None else f' attempt {attempt}'}"


def explain(verdict: Verdict) -> str:
    """As text."""
    scenario = verdict.scenario
    lines = [f"seed {scenario.seed}: {verdict.fault or 'every promise held'}", ""]
    lines += [f"  {ask}" for ask in scenario.asks]
    lines += [f"  {fault}" for fault in scenario.faults]
    lines += ["", *verdict.lines, "", f"log {verdict.digest}"]
    return "\n".join(lines)


def write_html(verdict: Verdict, path: Path) -> None:
    """As a sequence diagram: a column a role, a row a record."""
    rows = []
    for line in verdict.lines:
        time, _, rest = line.strip().partition("  ")
        words = rest.split()
        kind = next((word.partition("/")[0] for word in words if "/" in word), "")
        who = WRITER.get(kind, "")
        fault = "fault" in rest or "dies" in rest or "starts" in rest
        cells = "".join(f"<td>{'●' if role == who else ''}</td>" for role in LANES)
        rows.append(
            f"<tr class={'fault' if fault else 'row'}><td>{time}</td>{cells}"
            f"<td>{html.escape(rest)}</td></tr>"
        )
    heads = "".join(f"<th>{role}</th>" for role in LANES)
    style = (
        "td,th{padding:1px 8px;font:12px monospace}.fault{background:#fdd}tr:hover{background:#eef}"
    )
    title = html.escape(f"seed {verdict.scenario.seed}: {verdict.fault or 'every promise held'}")
    path.write_text(
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style>"
        f"<h1>{title}</h1><table><tr><th>s</th>{heads}<th>record</th></tr>{''.join(rows)}</table>"
    )
