"""A compacted topic as a dict: the last readable value of every key."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pipeline.log import Outgoing, TopicPartition, TopicSpec
from pipeline.memory import MemoryCluster
from pipeline.simulation import VirtualClock
from pipeline.table import Table

from .stand import virtual

NAME = "table"


def number(value: bytes) -> int:
    return int(value)  # ValueError: unreadable


def on_a_table(main: Callable[[Any, Table[int], MemoryCluster], Awaitable[None]]) -> None:
    """Run `main` with a way to put, a table, and the cluster, in virtual time."""

    async def run() -> None:
        cluster = MemoryCluster(VirtualClock(asyncio.get_running_loop()))
        cluster.create(TopicSpec(NAME, 1, 1, {"cleanup.policy": "compact"}))
        log = cluster.connect("one")
        writer = await log.writer()

        async def put(key: str, value: bytes | None) -> None:
            await writer.send(Outgoing(NAME, value, key.encode(), partition=0))

        table = Table(log, NAME, number)
        task = asyncio.create_task(_later(table))
        await main(put, table, cluster)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await log.close()

    virtual(run)


async def _later(table: Table[int]) -> None:
    await asyncio.sleep(1)  # what is put in the first second was there before
    await table.run()


def test_an_empty_table_is_caught_up_at_once() -> None:
    async def main(put: Any, table: Table[int], cluster: MemoryCluster) -> None:
        assert not table.caught_up
        await table.until_caught_up()
        assert table.items == {}

    on_a_table(main)


def test_the_last_value_of_a_key_counts_and_a_tombstone_removes_it() -> None:
    async def main(put: Any, table: Table[int], cluster: MemoryCluster) -> None:
        await put("a", b"1")
        await put("b", b"2")
        await put("a", b"3")
        await put("b", None)
        await table.until_caught_up()
        assert table.items == {"a": 3}
        await put("c", b"4")
        await asyncio.sleep(5)
        assert table.items == {"a": 3, "c": 4}

    on_a_table(main)


def test_an_unreadable_value_is_counted_and_the_older_one_stays() -> None:
    async def main(put: Any, table: Table[int], cluster: MemoryCluster) -> None:
        await put("a", b"1")
        await put("a", b"one")
        await table.until_caught_up()
        assert table.items == {"a": 1}
        assert table.unreadable == 1

    on_a_table(main)


def test_a_compacted_end_is_an_end() -> None:
    async def main(put: Any, table: Table[int], cluster: MemoryCluster) -> None:
        for _ in range(5):
            await put("a", b"1")
        await put("b", None)
        cluster.compact(NAME)
        await table.until_caught_up()
        assert table.items == {"a": 1}

    on_a_table(main)


def test_an_outage_is_waited_out_and_empties_nothing() -> None:
    async def main(put: Any, table: Table[int], cluster: MemoryCluster) -> None:
        await put("a", b"1")
        await table.until_caught_up()
        cluster.set_available([TopicPartition(NAME, 0)], False)
        await asyncio.sleep(30)
        assert table.items == {"a": 1}
        cluster.set_available([TopicPartition(NAME, 0)], True)
        await put("a", b"2")
        await asyncio.sleep(30)
        assert table.items == {"a": 2}

    on_a_table(main)
