"""Kills, pauses, rebalances, lost acks, in any order: no record is lost, no commit runs ahead."""

import asyncio
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pipeline.log import Outgoing, Record, TopicPartition
from pipeline.member import Member
from pipeline.memory import Fate, MemoryCluster, MemoryLog
from pipeline.runner import Runner
from pipeline.stage import Context, Emit, Hold, Retry

from .stand import GROUP, IN, OUT, cluster, kill, member, virtual

PARTITIONS, RECORDS, FAULTS = 3, 120, 12
PLACES = [TopicPartition(IN, number) for number in range(PARTITIONS)]


class World:
    """Three members that one seed torments."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.on: MemoryCluster = cluster(PARTITIONS)
        self.lives = 0
        self.running: dict[int, tuple[Member, asyncio.Task[None]]] = {}
        self.static = seed % 2 == 0

    async def stage(self, record: Record, context: Context) -> AsyncIterator[Emit]:
        await asyncio.sleep(self.chance.random() * 2)
        if self.chance.random() < 0.1 and context.tries < 3:
            yield Retry("again")
            return
        name = f"{record.partition}/{record.offset}".encode()
        yield Outgoing(OUT, name, partition=record.partition)
        if self.chance.random() < 0.1:
            yield Hold()

    def start(self, number: int) -> None:
        self.lives += 1
        name = f"m{number}" if self.static else f"m{number}.{self.lives}"
        who = member(self.on, name, static=self.static)
        run = Runner(who, self.stage, topics=[IN], group=GROUP, concurrency=8)

        async def with_releases() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.release(run))
                await run.run()
                raise asyncio.CancelledError

        self.running[number] = (who, asyncio.create_task(with_releases()))

    async def release(self, run: Runner) -> None:
        """What is held is released, later."""
        while True:
            await asyncio.sleep(1)
            for at, tracker in list(run.committer.trackers.items()):
                run.release(at, tracker.watermark)

    async def produce(self) -> None:
        writer = await self.on.connect("producer").writer()
        for number in range(RECORDS):
            writer.send(Outgoing(IN, b"%d" % number, partition=number % PARTITIONS))
            await asyncio.sleep(self.chance.random() * 0.5)

    def fate(self, name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
        if self.chance.random() > 0.05:
            return Fate(delay=self.chance.random() * 0.02)
        return self.chance.choice(
            [Fate(acked=False), Fate(lands=False), Fate(delay=12.0), Fate(again=3.0)]
        )

    async def torment(self) -> None:
        for _ in range(FAULTS):
            await asyncio.sleep(self.chance.random() * 10)
            number = self.chance.randrange(3)
            who, task = self.running[number]
            assert isinstance(who.log, MemoryLog)
            fault = self.chance.choice(["kill", "pause", "rebalance", "drain", "away"])
            if fault == "kill":
                await kill(who, task)
                self.start(number)
            elif fault == "pause":
                who.log.pause()
                await asyncio.sleep(self.chance.choice([2, 60]))
                who.log.resume()
            elif fault == "drain":
                who.draining.set()
                await asyncio.wait([task])
                self.start(number)
            elif fault == "away":
                at = TopicPartition(
                    self.chance.choice([IN, OUT]), self.chance.randrange(PARTITIONS)
                )
                self.on.set_available([at], False)
                await asyncio.sleep(5)
                self.on.set_available([at], True)
            else:
                self.on.rebalance(GROUP)

    def outputs(self) -> set[str]:
        found: set[str] = set()
        for number in range(PARTITIONS):
            partition = self.on.partition(TopicPartition(OUT, number))
            records = partition.read(0, 1_000_000)
            found |= {(record.value or b"").decode() for record in records}
        return found

    def check(self) -> None:
        """No commit is beyond a record whose output is not in the log."""
        there = self.outputs()
        for at, commit in self.on.group(GROUP).offsets.items():
            below = {f"{at.partition}/{offset}" for offset in range(commit.offset)}
            assert below <= there, f"{at}: committed {commit.offset}, missing {below - there}"

    def all_committed(self) -> bool:
        offsets = self.on.group(GROUP).offsets
        return all(
            (commit := offsets.get(at)) is not None and commit.offset == self.on.partition(at).end
            for at in PLACES
        )

    async def run(self) -> None:
        for number in range(3):
            self.start(number)
        self.on.fate = self.fate
        work = asyncio.gather(self.produce(), self.torment())
        while not work.done():
            await asyncio.sleep(0.5)
            self.check()
        await work
        self.on.fate = None
        async with asyncio.timeout(600):
            while not self.all_committed():
                await asyncio.sleep(1)
                self.check()
        assert len(self.outputs()) == sum(self.on.partition(at).end for at in PLACES) >= RECORDS


@pytest.mark.parametrize("seed", range(30))
def test_every_record_gets_its_output_and_every_commit_is_true(seed: int) -> None:
    async def main() -> None:
        await World(seed).run()

    virtual(main, seed)


def history(seed: int) -> str:
    """All that one seed has left in the log, as a hash."""

    async def main() -> str:
        world = World(seed)
        await world.run()
        digest = hashlib.sha256()
        for at, partition in sorted(world.on.partitions.items()):
            for record in partition.read(0, 1_000_000):
                digest.update(repr((at, record)).encode())
        digest.update(repr(sorted(world.on.group(GROUP).offsets.items())).encode())
        digest.update(repr(asyncio.get_running_loop().time()).encode())
        return digest.hexdigest()

    return virtual(main, seed)


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_leaves_the_same_log_whatever_the_process(seed: int) -> None:
    code = f"from tests.pipeline.test_runner_faults import history; print(history({seed}))"
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == history(seed) + "\n"
