"""The live table of `headrace up` on a terminal."""

import asyncio
import urllib.request
from collections.abc import Callable
from typing import Any

REFRESH = 1.0  # s
FIGURES = {
    "headrace_requests_running": "running",
    "headrace_tokens_per_second": "tokens/s",
    "headrace_stage_lag": "lag",
}


async def show_until(state: Callable[[], dict[str, Any]]) -> None:
    """Redraw until cancelled."""
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        while True:
            now = state()
            figures = await asyncio.to_thread(_read_figures, now)
            live.update(_table(now, figures), refresh=True)
            await asyncio.sleep(REFRESH)


def _read_figures(state: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {role["id"]: read_metrics(role["metrics"]) for role in state["roles"] if role["metrics"]}


def read_metrics(url: str) -> dict[str, float]:
    """The figures of one process, summed over labels; {} while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=0.5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    figures: dict[str, float] = {}
    for line in lines:
        name = line.partition("{")[0].partition(" ")[0]
        if name in FIGURES:
            label = FIGURES[name]
            figures[label] = figures.get(label, 0.0) + float(line.rsplit(" ", 1)[-1])
    return figures


def _table(state: dict[str, Any], figures: dict[str, dict[str, float]]) -> Any:
    from rich.table import Table

    table = Table(title=state["doing"] or "Headrace", title_justify="left")
    for column in ("role", "state", "pid", "address", *FIGURES.values(), "waits for"):
        table.add_column(column)
    for role in state["roles"]:
        own = figures.get(role["id"], {})
        table.add_row(
            role["id"],
            role["state"],
            str(role["pid"] or ""),
            role["http"] or "",
            *(f"{own[name]:.0f}" if name in own else "" for name in FIGURES.values()),
            "; ".join(role["missing"].values()),
        )
    return table
