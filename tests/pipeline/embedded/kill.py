"""kill -9 in the middle of writes, many times, and after each what was acknowledged is there.

Run alone: `python -m tests.pipeline.embedded.kill --times 200`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.embedded.load import PARTITIONS, SECOND, Written, writing
from tests.pipeline.embedded.wire import Wire


async def read(wire: Wire, topic: str, partition: int, start: int = 0) -> dict[int, Any]:
    """The records of a partition by offset."""
    found: dict[int, Any] = {}
    start = max(start, await offset_of(wire, topic, partition, -2))
    end = await offset_of(wire, topic, partition, -1)
    while start < end:
        part = {"partition": partition, "fetch_offset": start, "partition_max_bytes": 1 << 20}
        answer = await wire.call(
            "fetch",
            4,
            replica_id=-1,
            max_wait=SECOND,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[{"topic": topic, "partitions": [part]}],
        )
        fetched = answer.responses[0].partitions[0]
        if fetched.error_code == 1:  # retention went past it
            start = await offset_of(wire, topic, partition, -2)
            continue
        assert fetched.error_code == 0, fetched.error_code
        records = MemoryRecords(fetched.records)
        while (each := records.next_batch()) is not None:
            assert each.validate_crc()
            found |= {record.offset: record for record in each}
            start = each.next_offset
    return found


async def offset_of(wire: Wire, topic: str, partition: int, timestamp: int) -> int:
    answer = await wire.call(
        "list_offsets",
        1,
        replica_id=-1,
        topics=[
            {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}
        ],
    )
    return int(answer.topics[0].partitions[0].offset)


class Checker:
    """Reads what was added since the last check; `Checker()` anew reads everything."""

    def __init__(self) -> None:
        self.ends = [0] * PARTITIONS
        self.seen: dict[tuple[int, bytes], int] = {}

    async def check(self, bootstrap: str, written: Written) -> None:
        """Everything that was acknowledged before this call is there."""
        acked, newest = dict(written.log), dict(written.newest)
        churned, committed = written.churned, written.committed
        async with await Wire.connect(bootstrap) as wire:
            logs = [await self._read(wire, number) for number in range(PARTITIONS)]
            for (partition, offset), value in acked.items():
                if offset >= self.ends[partition]:
                    found = logs[partition].get(offset)
                    assert found == value, f"{partition}/{offset}: {value!r} is lost: {found!r}"
            for partition, log in enumerate(logs):
                self.ends[partition] += len(log)
            table = {record.key: record for record in (await read(wire, "table", 0)).values()}
            for key, number in newest.items():
                newest_found = int(table[key].value) if key in table else -1
                assert newest_found >= number, f"key {key!r} went back"
            assert await offset_of(wire, "churn", 0, -1) >= churned
            answer = await wire.call(
                "offset_fetch", 5, group_id="g", topics=[{"name": "log", "partition_indexes": [0]}]
            )
            found = answer.topics[0].partitions[0].committed_offset
            assert found >= committed, f"the committed offset went back from {committed} to {found}"

    async def _read(self, wire: Wire, partition: int) -> dict[int, bytes]:
        start = self.ends[partition]
        log = {key: each.value for key, each in (await read(wire, "log", partition, start)).items()}
        assert list(log) == list(range(start, start + len(log))), f"{partition} has gaps"
        for value in log.values():
            self._check_order(partition, value)
        return log

    def _check_order(self, partition: int, value: bytes) -> None:
        """Each producer's records rise; an idempotent one's are there once."""
        name, text = value.split()
        number, before = int(text), self.seen.get((partition, name), -1)
        if name.startswith(b"once"):
            assert number > before, f"{value!r} is there twice"
        self.seen[partition, name] = max(before, number)


Strike = Callable[[EmbeddedBroker], Awaitable[None]]


def eager(directory: Path) -> EmbeddedBroker:
    """A broker whose upkeep never rests, so that kills hit it."""
    return EmbeddedBroker(directory, program="tests.pipeline.embedded.eager")


async def run(broker: EmbeddedBroker, times: int, seed: int, strike: Strike | None = None) -> str:
    """Kill the broker so often; returns what was written. Raises `AssertionError`.

    `strike` ends the broker's process; without it a kill comes at a moment that chance chooses.
    """
    chance = random.Random(seed)

    async def at_random(broker: EmbeddedBroker) -> None:
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        broker.kill()

    broker.start()
    written, checker = Written(), Checker()
    try:
        async with writing(broker.bootstrap, chance, written) as check_writers:
            for _ in range(times):
                await (strike or at_random)(broker)
                await asyncio.to_thread(broker.start)
                async with asyncio.timeout(60):
                    await checker.check(broker.bootstrap, written)
                check_writers()
        await Checker().check(broker.bootstrap, written)
    finally:
        broker.stop()
    with contextlib.closing(sqlite3.connect(broker.directory / "log.sqlite3")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return (
        f"{times} kills, {len(written.log)} records, {written.churned} with retention,"
        f" {written.committed + 1} commits: all there"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as directory:
        print(asyncio.run(run(eager(Path(directory)), arguments.times, arguments.seed)))


if __name__ == "__main__":
    main()
