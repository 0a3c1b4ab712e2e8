"""Following a group's partitions in order: nothing skipped, nothing twice, active only when caught up."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.follow import Follow
from pipeline.log import Record, TopicPartition
from pipeline.member import Member
from pipeline.tracker import Tracker
from tests.pipeline.stand import GROUP, IN, cluster, committed, member, virtual, write


@dataclass(eq=False)
class Part:
    partition: int
    tracker: Tracker
    target: int | None = None
    active: bool = False
    offsets: list[int] = field(default_factory=list)


class Reading:
    """Everything is done as soon as it is read, but what `holds` says."""

    def __init__(self, me: Member, holds: frozenset[int] = frozenset()) -> None:
        self.holds = holds
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.early: list[int] = []  # read when their part was active, before its end
        self.follow: Follow[Part] = Follow(
            me, IN, GROUP, begin=self._begin, take=self._take, drop=self._drop
        )
        self.task = asyncio.create_task(self.follow.run())

    async def _begin(self, at: TopicPartition, tracker: Tracker) -> Part:
        self.begun.append(at.partition)
        return Part(at.partition, tracker)

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            part = self.follow.parts[record.partition]
            part.offsets.append(record.offset)
            if part.active and record.offset < (part.target or 0):
                self.early.append(record.offset)
            if record.offset not in self.holds:
                self.follow.done(part, record.offset)

    def _drop(self, part: Part) -> None:
        self.dropped.append(part.partition)


def test_each_partition_is_read_in_order_and_active_at_its_end() -> None:
    async def main() -> None:
        on = cluster(2)
        await write(on, *[b"x"] * 1200, partition=0)
        reading = Reading(member(on))
        await asyncio.sleep(5)
        parts = reading.follow.parts
        assert parts[0].offsets == list(range(1200))
        assert all(part.active for part in parts.values())
        assert parts[0].target == 1200
        assert not reading.early
        assert await reading.follow.reached(0, 1200)
        waiting = asyncio.create_task(reading.follow.reached(1, 1))
        await asyncio.sleep(1)
        assert not waiting.done()
        await write(on, b"y", partition=1)
        assert await asyncio.wait_for(waiting, 5)

    virtual(main)


def test_a_commit_stops_at_what_is_open_and_a_new_life_begins_there() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, *[b"x"] * 10)
        first = Reading(member(on, "one"), holds=frozenset({4}))
        await asyncio.sleep(3)
        assert await committed(on) == 4
        first.task.cancel()
        await asyncio.gather(first.task, return_exceptions=True)
        second = Reading(member(on, "two"))
        await asyncio.sleep(60)
        assert second.follow.parts[0].offsets == list(range(4, 10))
        assert await committed(on) == 10

    virtual(main)


def test_a_part_that_comes_back_is_kept_and_one_that_goes_is_dropped() -> None:
    async def main() -> None:
        on = cluster(2)
        await write(on, *[b"x"] * 5, partition=0)
        await write(on, *[b"x"] * 5, partition=1)
        first = Reading(member(on, "one"))
        await asyncio.sleep(3)
        on.rebalance(GROUP)
        await write(on, b"y", partition=0)
        await asyncio.sleep(3)
        assert sorted(first.begun) == [0, 1]
        assert first.follow.parts[0].offsets == list(range(6))
        second = Reading(member(on, "two"))
        await asyncio.sleep(10)
        assert len(first.dropped) == 1
        assert second.follow.parts.keys() == set(first.dropped)
        assert {*first.follow.parts, *second.follow.parts} == {0, 1}
        assert all(part.active for each in (first, second) for part in each.follow.parts.values())

    virtual(main)
