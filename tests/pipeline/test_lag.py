"""The lag is what is still to be done: no more for records that ended out of order."""

import asyncio
from collections.abc import AsyncIterator

from pipeline.lag import behind, lag
from pipeline.log import Commit, Outgoing, Record, TopicPartition
from pipeline.runner import Runner
from pipeline.stage import Context, Emit
from pipeline.tracker import write_notes

from .stand import GROUP, IN, OUT, cluster, member, virtual, write

PLACES = [TopicPartition(IN, number) for number in range(2)]


def test_completed_records_above_the_commit_are_no_lag() -> None:
    assert behind(10, Commit(4, write_notes(4, [6, 7], None)), 0) == 4
    assert behind(10, Commit(4, "of another program"), 0) == 6


def test_a_group_that_never_committed_is_behind_by_what_there_is() -> None:
    assert behind(10, None, 7) == 3


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    assert behind(10, Commit(12), 0) == 0


def test_the_lag_of_a_running_stage_is_what_it_has_not_finished() -> None:
    async def main() -> None:
        on = cluster(2)
        await write(on, *[b"x"] * 10)
        await write(on, *[b"y"] * 5, partition=1)
        gate = asyncio.Event()

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if record.offset % 5 == 0:
                await gate.wait()
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        asker = on.connect("asks").admin
        assert await lag(asker, GROUP, PLACES) == {PLACES[0]: 10, PLACES[1]: 5}
        task = asyncio.create_task(Runner(who, stage, topics=[IN], group=GROUP).run())
        await asyncio.sleep(5)
        assert await lag(asker, GROUP, PLACES) == {PLACES[0]: 2, PLACES[1]: 1}
        gate.set()
        await asyncio.sleep(5)
        assert await lag(asker, GROUP, PLACES) == {PLACES[0]: 0, PLACES[1]: 0}
        who.draining.set()
        await asyncio.wait_for(task, 60)

    virtual(main)
