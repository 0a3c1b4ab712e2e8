"""`python -m tests.chaos`: kill, pause and restart everything under load, and count what was lost."""

import argparse
import asyncio
import os
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.load import Shape
from tests.chaos.report import keep, line, row, table
from tests.chaos.stage import BROKERS, fleet, play
from tests.chaos.verdict import Verdict
from tests.flow.installation import MODEL

TITLES = {
    "embedded": "The embedded broker",
    "apache": "Apache Kafka, one broker",
    "apache3": "Apache Kafka, three brokers, replication 3",
}
SHORT = ("kill -9 worker", "kill -9 edge, resume at the other", "kill -9 broker")
WITH_MODEL = ("kill -9 worker", "SIGSTOP worker 30 s", "kill -9 at random every 2 s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--broker", default="embedded,apache,apache3", help="which, with commas")
    parser.add_argument(
        "--engine", default="null,torch", help="null and the real model, with commas"
    )
    parser.add_argument(
        "--faults", default="", help=f"parts of names, with commas: {', '.join(FAULTS)}"
    )
    parser.add_argument("--short", action="store_true", help="three faults, few requests")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--publishes", type=int, default=200)
    parser.add_argument("--count", type=int, default=2, help="processes of each role")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long random kills go on")
    parser.add_argument("--no-report", action="store_true", help="leave docs/reliability.md alone")
    return parser.parse_args()


def shape_of(engine: str, options: argparse.Namespace) -> Shape:
    streams = 12 if options.short else options.streams
    publishes = 24 if options.short else options.publishes
    if engine == "null":
        return Shape(streams, publishes, tokens=80, seconds=8.0)
    # a CPU shared with everything else: few at once, so that they last and do not pile up
    return Shape(min(8, streams), min(8, publishes), tokens=48, seconds=12.0, model=MODEL)


def chosen(broker: str, engine: str, options: argparse.Namespace) -> list[str]:
    names = SHORT if options.short else WITH_MODEL if engine == "torch" else tuple(FAULTS)
    parts = [part.strip() for part in options.faults.split(",") if part.strip()]
    found = [name for name in names if not parts or any(part in name for part in parts)]
    found = [name for name in found if broker == "embedded" or not FAULTS[name].disk]
    return sorted(found, key=setting)


def setting(name: str) -> tuple[int, int]:
    """Faults that want the same installation come one after the other."""
    return FAULTS[name].disk, -FAULTS[name].workers


def series(broker: str, engine: str, options: argparse.Namespace) -> list[Verdict]:
    """All chosen faults on one kind of broker; one installation for those that want the same."""
    shape, verdicts = shape_of(engine, options), []
    seconds = 20.0 if options.short else 60 * options.minutes
    title = TITLES[broker] + (", the real model" if engine == "torch" else "")
    for (disk, less), names in groupby(chosen(broker, engine, options), setting):
        with (
            tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder,
            fleet(Path(folder), broker, shape, -less, options.count, disk) as made,
        ):
            for name in names:
                verdict = asyncio.run(play(made, name, FAULTS[name], shape, seconds))
                verdicts.append(verdict)
                print(line(row(verdict, shape)), flush=True)
                for each in verdict.problems[:20]:
                    print(f"  wrong: {each}", flush=True)
                if verdict.problems:
                    log = Path(tempfile.gettempdir()) / f"chaos-{broker}-{len(verdicts)}.log"
                    log.write_text(made.words(400))
                    print(f"  what the processes said: {log}", flush=True)
                if not options.no_report:
                    keep(title, verdict, shape, list(FAULTS))
    rows = [line(row(verdict, shape)) for verdict in verdicts]
    print(f"{title}\n\n{table(rows)}\n", flush=True)
    return verdicts


def main() -> int:
    options = arguments()
    bad = 0
    for engine in options.engine.split(","):
        for broker in options.broker.split(","):
            if broker not in BROKERS:
                sys.exit(f"no broker {broker!r}: {', '.join(BROKERS)}")
            if BROKERS[broker] and not os.environ.get("KAFKA_HOME"):
                sys.exit("KAFKA_HOME is not set: name Apache Kafka's folder, or --broker embedded")
            if engine == "torch" and broker != "apache":
                continue  # the engine does not know which broker there is
            bad += sum(bool(verdict.problems) for verdict in series(broker, engine, options))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
