"""A process that cannot go on ends; an outage, a pause or long idling never looks like that."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pipeline.follow import Follow
from pipeline.log import Outgoing, Record, TopicPartition
from pipeline.memory import Fate
from pipeline.runner import Runner
from pipeline.stage import Context, Emit
from pipeline.tracker import Tracker
from pipeline.watchdog import LoopStalled, PositionStuck, RecordStuck, SendStuck, Watchdog

from .stand import GROUP, IN, OUT, cluster, member, values, virtual, write


async def copy(record: Record, context: Context) -> AsyncIterator[Emit]:
    yield Outgoing(OUT, record.value, partition=0)


async def never(record: Record, context: Context) -> AsyncIterator[Emit]:
    await asyncio.sleep(1e6)
    yield Outgoing(OUT, record.value, partition=0)


def running(on: Any, stage: Any = copy, **options: Any) -> tuple[Any, Any, Any]:
    """A member, its runner and the task: the watchdog is the runner's own."""
    who = member(on)
    run = Runner(who, stage, topics=[IN], group=GROUP, **options)
    return who, run, asyncio.create_task(run.run())


async def end_of(task: Any, kind: type[Exception], match: str, limit: float = 600) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(task, limit)
    assert caught.group_contains(kind, match=match)


def test_an_idle_hour_is_no_fault_and_asks_the_broker_little() -> None:
    async def main() -> None:
        on = cluster(3)
        await write(on, b"a")
        who, _, task = running(on)
        asked = 0
        real = who.log.admin.end_offsets

        async def end_offsets(at: Any) -> Any:
            nonlocal asked
            asked += 1
            return await real(at)

        who.log.admin.end_offsets = end_offsets
        await asyncio.sleep(3600)
        assert not task.done()
        assert asked <= 3 * 3600 / 90

    virtual(main)


def test_a_reader_that_stands_still_before_records_ends_the_process() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        _, run, task = running(on)
        await asyncio.sleep(5)
        run.reader._take = lambda limit: []  # a client that lost its fetcher
        await write(on, b"b")
        await end_of(task, PositionStuck, r"in\[0\] stands at 1 of 2")

    virtual(main)


def test_an_outage_of_ten_minutes_ends_nobody() -> None:
    async def main() -> None:
        on = cluster()
        who, _, task = running(on)
        await asyncio.sleep(5)
        await write(on, b"a")
        who.log.pause()
        await asyncio.sleep(600)
        who.log.resume()
        await asyncio.sleep(60)
        assert not task.done()
        assert set(await values(on, OUT)) == {b"a"}

    virtual(main)


def test_a_record_in_hand_for_ever_ends_the_process_and_is_a_suspect_in_the_next_life() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        _, _, task = running(on, never)
        await end_of(task, RecordStuck, "stage test")
        _, run, _ = running(on, never)
        await asyncio.sleep(5)
        assert run.committer.careful

    virtual(main)


def test_a_process_that_ends_for_another_reason_makes_no_record_a_suspect() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        _, _, task = running(on, never)
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait([task])
        _, run, _ = running(on, never)
        await asyncio.sleep(5)
        assert not run.committer.careful

    virtual(main)


def test_many_records_at_once_are_no_record_for_ever() -> None:
    async def main() -> None:
        on = cluster()

        async def slow(record: Record, context: Context) -> AsyncIterator[Emit]:
            await asyncio.sleep(20)
            yield Outgoing(OUT, record.value, partition=0)

        await write(on, *[b"x"] * 64)
        _, _, task = running(on, slow, concurrency=2)
        await asyncio.sleep(700)
        assert not task.done()
        assert len(await values(on, OUT)) == 64

    virtual(main)


def test_a_send_without_ack_ends_the_process_only_while_the_broker_answers() -> None:
    async def main() -> None:
        on = cluster()
        who, _, task = running(on)
        await asyncio.sleep(5)
        on.fate = lambda name, at, batch: Fate(lands=name != who.log.name)
        await write(on, b"a")
        await end_of(task, SendStuck, "the broker answers")
        _, run, _ = running(on)
        await asyncio.sleep(5)
        assert not run.committer.careful  # no record is to blame

    virtual(main)


def test_one_long_stop_is_a_pause_and_stalls_in_a_row_are_a_fault() -> None:
    async def main() -> None:
        who = member(cluster())
        dog = Watchdog(who.log.admin)
        dog._loop_ran(3600.0)  # SIGSTOP, a debugger
        for late in (6.0, 6.0, 0.1, 6.0, 6.0):
            if late > 5:
                continue
            dog._loop_ran(late)
        dog._loop_ran(6.0)
        dog._loop_ran(6.0)
        with pytest.raises(LoopStalled, match="3 times in a row"):
            dog._loop_ran(6.0)

    virtual(main)


def test_a_marker_at_the_end_of_a_partition_is_nothing_to_read() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        _, run, task = running(on)
        await asyncio.sleep(5)
        partition = on.partition(TopicPartition(IN, 0))
        assert partition.end == 1
        # what a transaction leaves: an offset that is counted and never read
        position = run.reader.position

        async def beyond(at: TopicPartition) -> int:
            return max(2, int(await position(at)))

        async def ends(at: Any) -> Any:
            return dict.fromkeys(at, 2)

        run.reader.position = beyond
        run.member.log.admin.end_offsets = ends
        await asyncio.sleep(600)
        assert not task.done()

    virtual(main)


def test_a_fold_that_stands_still_ends_its_process_and_one_that_waits_for_room_does_not() -> None:
    class Part:
        def __init__(self, tracker: Tracker) -> None:
            self.tracker = tracker
            self.target: int | None = None
            self.active = False

    async def begin(at: TopicPartition, tracker: Tracker) -> Part:
        return Part(tracker)

    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        room = asyncio.Event()
        room.set()

        async def wait() -> None:
            await room.wait()

        follow: Any = Follow(member(on), IN, GROUP, begin=begin, take=lambda _: None, room=wait)
        task = asyncio.create_task(follow.run())
        await asyncio.sleep(5)
        room.clear()
        await write(on, b"b")
        await asyncio.sleep(600)
        assert not task.done()
        follow.committer.reader._take = lambda limit: []
        room.set()
        await end_of(task, PositionStuck, r"in\[0\] stands at 1 of 2")

    virtual(main)
