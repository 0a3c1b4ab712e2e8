"""Twice as much as it can do: what is admitted, how long that waits, who is refused, and what it costs.

    python -m benchmarks.overload [--minutes 3] [--edges 2] [--broker embedded|apache]

Open loop: requests arrive by the clock, whatever became of those before them. The null engine's slots and
rate are chosen, so that the capacity is known and no CPU is short: what is measured is the queue.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.machine import describe, quantile, table
from tests.chaos.topics import ends, since
from tests.flow.installation import Installation, installation
from tests.flow.log_reading import decoded
from tests.pipeline.brokers import apache_kafka

SLOTS, RATE, TOKENS = 16, 20.0, 20  # 16 requests of a second each at once
CAPACITY = SLOTS * RATE / TOKENS  # requests/s
OVER = 2.0  # arrivals over capacity
SHARES = {"priority": 0.1, "default": 0.7, "flex": 0.2}  # of the arrivals
LANES = {"priority": "gold", "default": "silver", "flex": "bronze"}
TARGETS = {"gold": 5.0, "silver": 30.0, "bronze": 600.0}  # s, the edge's defaults
FLOOR = 0.05  # of what the fleet does, for the lowest lane
WARM = 20.0  # s until the rates are known and the queue stands
UNLOADED = 60.0  # s of gold alone


@dataclass
class Phase:
    """What was sent in one stretch of time, and what became of it."""

    begun: float = 0.0  # wall time
    lane_of: dict[str, str] = field(default_factory=dict)  # accepted id → lane
    refused: Counter[tuple[str, int | str]] = field(
        default_factory=Counter
    )  # (lane, status or error)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, lane: str) -> list[dict[str, Any]]:
        """Results of a lane's requests that were accepted after the warm-up."""
        after = (self.begun + WARM) * 1000
        found = (self.results[i] for i, named in self.lane_of.items() if named == lane)
        return [each for each in found if each["created"] >= after]


async def arrivals(urls: list[str], seconds: float, tiers: dict[str, float]) -> Phase:
    """`tiers`: service tier → requests/s, evenly spread; every edge in turn."""
    phase, loop = Phase(time.time()), asyncio.get_running_loop()
    begun, tasks = loop.time(), set[asyncio.Task[None]]()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)

    async with httpx.AsyncClient(timeout=30, limits=limits) as http:

        async def ask(number: int, tier: str) -> None:
            body = {
                "model": "null",
                "prompt": "Count",
                "max_tokens": TOKENS,
                "seed": number,
                "service_tier": tier,
            }
            try:
                answer = await http.post(f"{urls[number % len(urls)]}/v1/requests", json=body)
            except httpx.HTTPError as error:
                phase.refused[LANES[tier], type(error).__name__] += 1
                return
            if answer.status_code == 202:
                phase.lane_of[answer.json()["id"]] = LANES[tier]
            else:
                phase.refused[LANES[tier], answer.status_code] += 1

        sent = dict.fromkeys(tiers, 0)
        while (now := loop.time() - begun) < seconds:
            for tier, rate in tiers.items():
                while sent[tier] < now * rate:
                    tasks.add(task := asyncio.create_task(ask(sent[tier], tier)))
                    task.add_done_callback(tasks.discard)
                    sent[tier] += 1
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)
    return phase


def collect(made: Installation, phase: Phase, marks: dict[int, int], limit: float) -> None:
    """The results of everything that was accepted; raises TimeoutError."""
    topic, deadline = made.topic("results"), time.monotonic() + limit
    while phase.lane_of.keys() - phase.results.keys():
        reached = ends(made.kafka, topic)
        for message in since(made.kafka, topic, marks):
            result = decoded(message)
            phase.results.setdefault(result["id"], result)
        marks = reached
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(phase.lane_of) - len(phase.results)} without an outcome")
        time.sleep(1)


def resident(made: Installation) -> dict[str, int]:
    """Bytes by process."""
    roles = made.state()["roles"]
    return {r["id"]: psutil.Process(r["pid"]).memory_info().rss for r in roles if r["pid"]}


async def overloaded(
    made: Installation, urls: list[str], seconds: float
) -> tuple[Phase, dict[str, list[int]]]:
    """The load, and the memory of every process a third of the way and at the end."""
    memory: dict[str, list[int]] = defaultdict(list)

    async def watch() -> None:
        for share in (1 / 3, 1.0):
            await asyncio.sleep(begun + seconds * share - 1 - loop.time())
            for name, size in resident(made).items():
                memory[name].append(size)

    loop = asyncio.get_running_loop()
    begun = loop.time()
    watching = asyncio.create_task(watch())
    tiers = {tier: share * OVER * CAPACITY for tier, share in SHARES.items()}
    phase = await arrivals(urls, seconds, tiers)
    await watching
    return phase, memory


def waited(result: dict[str, Any]) -> float:
    """Seconds from acceptance until a worker was chosen."""
    took = result["timings"]
    return ((took["ingress"] or 0) + (took["queue"] or 0)) / 1000


def whole(result: dict[str, Any]) -> float:
    """Seconds from acceptance to the end."""
    return float(result["finished"] - result["created"]) / 1000


def report(phase: Phase, unloaded: Phase, seconds: float) -> str:
    first, last = (phase.begun + WARM) * 1000, (phase.begun + seconds) * 1000
    done = [r for r in phase.results.values() if first <= r["finished"] < last]
    done = [r for r in done if r["outcome"] == "completed"]
    goodput = len(done) / (seconds - WARM)
    rows = []
    for lane, target in TARGETS.items():
        mine, share = phase.of(lane), sum(r["lane"] == lane for r in done) / max(1, len(done))
        waits, turned = [waited(r) for r in mine] or [0.0], phase.refused[lane, 429]
        rows.append(
            [
                lane,
                str(len(mine)),
                str(turned),
                f"{quantile(waits, 0.5):.1f} / {quantile(waits, 0.95):.1f} / {max(waits):.1f} s",
                f"{target:g} s",
                f"{share:.1%}",
            ]
        )
    alone, loaded = ([whole(r) for r in each.of("gold")] for each in (unloaded, phase))
    before, after = quantile(alone, 0.95), quantile(loaded, 0.95)
    other = {f"{lane} {status}": n for (lane, status), n in phase.refused.items() if status != 429}
    columns = [
        "lane",
        "admitted",
        "429",
        "queue wait p50 / p95 / max",
        "target",
        "share of goodput",
    ]
    lines = [
        table("By lane, after the warm-up", columns, rows),
        "",
        f"goodput {goodput:.2f}/s of {CAPACITY:.2f}/s: {goodput / CAPACITY:.1%}",
        f"gold's p95, acceptance to end: {after:.2f} s, unloaded {before:.2f} s: "
        f"{after / before - 1:+.1%}",
        f"outcomes {dict(Counter(r['outcome'] for r in phase.results.values()))}, "
        f"other refusals {other}; bronze's floor is {FLOOR:.0%}",
    ]
    return "\n".join(lines)


@contextmanager
def running(broker: str, edges: int) -> Iterator[Installation]:
    environment = {
        "HEADRACE_WORKER_ENGINE": "null",
        "HEADRACE_NULL_RATE": str(RATE),
        "HEADRACE_WORKER_SLOTS": str(SLOTS),
        "HEADRACE_UP_EDGES": str(edges),
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-")))
        kafka = None
        if broker == "apache":
            kafka = stack.enter_context(apache_kafka(folder / "kafka"))
        yield stack.enter_context(installation(folder / "home", broker, kafka, **environment))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--edges", type=int, default=2)
    parser.add_argument("--broker", default="embedded")
    chosen = parser.parse_args()
    seconds = 60 * chosen.minutes
    print(describe(), flush=True)
    with running(chosen.broker, chosen.edges) as made:
        urls = [made.url(i + 1) for i in range(chosen.edges)]
        marks = ends(made.kafka, made.topic("results"))
        gold = {"priority": SHARES["priority"] * OVER * CAPACITY}
        unloaded = asyncio.run(arrivals(urls, UNLOADED, gold))
        collect(made, unloaded, marks, 60)
        marks = ends(made.kafka, made.topic("results"))
        phase, memory = asyncio.run(overloaded(made, urls, seconds))
        collect(made, phase, marks, TARGETS["bronze"])
    print(report(phase, unloaded, seconds))
    columns = ["process", "after a third", "at the end"]
    rows = [[n, *(f"{size / (1 << 20):.1f} MiB" for size in sizes)] for n, sizes in memory.items()]
    print(table("Resident memory", columns, rows))


if __name__ == "__main__":
    main()
