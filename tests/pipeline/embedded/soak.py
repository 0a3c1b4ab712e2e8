"""Hours of load in minutes: the disk stays within the retention, memory and latency do not grow.

Run alone: `python -m tests.pipeline.embedded.soak --minutes 20`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.embedded.load import PARTITIONS, Written, now, produce, writing
from tests.pipeline.embedded.scene import create, fetch
from tests.pipeline.embedded.wire import Wire, batch

_PROBES = 50  # hops a sample
_RETENTION = 5_000_000  # bytes of each of the eight partitions
# what is kept, twice as much again for free pages and the write-ahead log, and the small topics
_DISK_MOST = 3 * PARTITIONS * _RETENTION + (96 << 20)
_MEMORY_GROWTH_MOST = 16 << 20  # bytes between the first and the last quarter
_LATENCY_GROWTH_MOST = 3.0  # times, since other processes share the machine


@dataclass(frozen=True)
class Sample:
    """The broker at one moment: resident and stored bytes, hop in ms."""

    memory: int
    disk: int
    hop: float


async def sample(broker: EmbeddedBroker, wire: Wire) -> Sample:
    assert broker.process is not None
    memory = int(psutil.Process(broker.process.pid).memory_info().rss)
    disk = sum(each.stat().st_size for each in broker.directory.iterdir())
    hops = []
    for _ in range(_PROBES):
        begun = time.perf_counter()
        offset = await produce(wire, "probe", 0, batch((None, bytes(200)), timestamp=now()))
        await fetch(wire, "probe", offset)
        hops.append((time.perf_counter() - begun) * 1000)
    return Sample(memory, disk, statistics.median(hops))


def judged(samples: list[Sample]) -> list[str]:
    """What grew that may not grow."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[:quarter], samples[-quarter:]
    grown = max(each.memory for each in late) - max(each.memory for each in early)
    slower = statistics.median(each.hop for each in late) / statistics.median(
        each.hop for each in early
    )
    largest = max(each.disk for each in samples)
    faults = []
    if grown > _MEMORY_GROWTH_MOST:
        faults.append(f"memory grew by {grown >> 20} MiB")
    if largest > _DISK_MOST:
        faults.append(f"the disk held {largest >> 20} MiB, wanted {_DISK_MOST >> 20} at most")
    if slower > _LATENCY_GROWTH_MOST:
        faults.append(f"a hop takes {slower:.1f} times as long as at the start")
    return faults


async def loaded(broker: EmbeddedBroker, minutes: float, chance: random.Random) -> list[Sample]:
    """Load the broker so long, and take samples."""
    written = Written()
    samples: list[Sample] = []
    retention = {"retention.bytes": str(_RETENTION)}
    async with (
        await Wire.connect(broker.bootstrap) as wire,
        writing(broker.bootstrap, chance, written, log=retention) as check_writers,
    ):
        await create(wire, "probe", retention_bytes="100000")
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            await asyncio.sleep(min(10.0, 60 * minutes / 8))
            written.log.clear()  # this is about the broker's memory, not about ours
            samples.append(one := await sample(broker, wire))
            print(
                f"{len(samples):4}: {one.memory >> 20} MiB resident, {one.disk >> 20} MiB on disk,"
                f" hop {one.hop:.1f} ms, {written.churned + written.committed:,} writes",
                flush=True,
            )
            check_writers()
    return samples


async def run(directory: Path, minutes: float, seed: int) -> list[str]:
    """Load the broker so long; prints samples, returns what grew that may not."""
    broker = EmbeddedBroker(directory)
    broker.start()
    try:
        samples = await loaded(broker, minutes, random.Random(seed))
    finally:
        broker.stop()
    return judged(samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as directory:
        faults = asyncio.run(run(Path(directory), arguments.minutes, arguments.seed))
    print("\n".join(faults) or "nothing grew")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
