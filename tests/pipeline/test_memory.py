"""The memory log keeps the contract, and does what a simulation asks of it."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from pipeline.log import (
    Commit,
    LogUnavailable,
    NotOwner,
    OffsetGone,
    Outgoing,
    Record,
    TopicPartition,
    TopicSpec,
)
from pipeline.memory import Fate, MemoryCluster, MemoryLog
from pipeline.simulation import VirtualClock, run_virtual
from tests.pipeline.contract.stand import Books, WallClock, read
from tests.pipeline.log_contract import LogContract

AT = TopicPartition("t", 0)


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    log = MemoryCluster(WallClock()).connect()
    yield log
    await log.close()


class TestMemory(LogContract):
    pass


def cluster(partitions: int = 1) -> MemoryCluster:
    made = MemoryCluster(VirtualClock(asyncio.get_running_loop()))
    made.create(TopicSpec("t", partitions))
    return made


async def keep_polling(log: MemoryLog, books: Books, **options: str) -> asyncio.Task[None]:
    reader = await log.group("g", ["t"], listener=books, **options)

    async def run() -> None:
        while True:
            await reader.poll()

    return asyncio.create_task(run())


def test_what_retention_took_is_gone() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect()
        writer = await log.writer()
        for i in range(5):
            await writer.send(Outgoing("t", b"%d" % i, b"k"))
        reader = await log.reader({AT: "start"})
        on.trim(AT, 3)
        with pytest.raises(OffsetGone, match="no offset 0: it holds 3–5"):
            await reader.poll()
        reader = await log.reader({AT: "start"})
        assert [each.offset for each in await read(reader, 2)] == [3, 4]

    run_virtual(main())


def test_compaction_leaves_holes_that_readers_pass() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect()
        writer = await log.writer()
        for key in (b"a", b"b", b"a", b"b"):
            await writer.send(Outgoing("t", key, key))
        on.compact("t")
        reader = await log.reader({AT: 0})
        assert [each.offset for each in await read(reader, 2)] == [2, 3]
        assert await reader.position(AT) == 4

    run_virtual(main())


def test_a_killed_member_is_forgotten_after_its_session() -> None:
    async def main() -> None:
        on = cluster(2)
        dying, living = on.connect("dying"), on.connect("living")
        lost, kept = Books(), Books()
        tasks = [await keep_polling(dying, lost), await keep_polling(living, kept)]
        await asyncio.sleep(1)
        assert len(lost.owned) == len(kept.owned) == 1
        dying.cut()
        await asyncio.sleep(40)
        assert len(kept.owned) == 1
        await asyncio.sleep(10)
        assert len(kept.owned) == 2
        assert lost.revocations == 1  # of the first rebalance: the dead hear nothing
        assert not any(task.done() for task in tasks)

    run_virtual(main())


def test_a_static_member_that_was_killed_comes_back_at_once() -> None:
    async def main() -> None:
        on = cluster(2)
        dying, living = on.connect("dying"), on.connect("living")
        before, kept, after = Books(), Books(), Books()
        await keep_polling(living, kept)
        await keep_polling(dying, before, instance_id="one")
        await asyncio.sleep(1)
        dying.cut()
        await keep_polling(on.connect("again"), after, instance_id="one")
        await asyncio.sleep(0.1)
        assert after.owned == before.owned
        await asyncio.sleep(100)
        assert (kept.revocations, kept.assignments) == (1, 2)

    run_virtual(main())


def test_a_static_member_gets_what_fell_to_it_while_it_was_away() -> None:
    """A broker keeps what the leader decided, whether the member has heard of it or not."""

    async def main() -> None:
        on = cluster(2)
        kept, before, after = Books(), Books(), Books()
        await keep_polling(on.connect("living"), kept)
        first = await on.connect("first").group("g", ["t"], listener=before, instance_id="one")
        await asyncio.sleep(1)
        await first.close()
        on.rebalance("g", move=True)
        await asyncio.sleep(1)
        await keep_polling(on.connect("again"), after, instance_id="one")
        await asyncio.sleep(1)
        assert kept.owned == before.owned
        assert len(after.owned) == 1
        assert not after.owned & kept.owned

    run_virtual(main())


def test_a_member_that_was_stopped_for_too_long_joins_again_and_cannot_commit_before() -> None:
    async def main() -> None:
        on = cluster(2)
        sleeper, other = on.connect("sleeper"), on.connect("other")
        books, kept = Books(), Books()
        reader = await sleeper.group("g", ["t"], listener=books)
        await keep_polling(other, kept)
        await asyncio.sleep(1)
        (own,) = books.owned
        sleeper.pause()
        commit = asyncio.create_task(reader.commit({own: Commit(1)}))
        await asyncio.sleep(50)
        assert len(kept.owned) == 2
        sleeper.resume()
        with pytest.raises(NotOwner):
            await commit
        await asyncio.sleep(1)
        assert len(kept.owned) == len(books.owned) == 1

    run_virtual(main())


def test_short_stops_are_not_noticed() -> None:
    async def main() -> None:
        on = cluster(2)
        sleeper = on.connect("sleeper")
        books = Books()
        await keep_polling(sleeper, books)
        await asyncio.sleep(1)
        for _ in range(5):
            sleeper.pause()
            await asyncio.sleep(20)
            sleeper.resume()
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert (books.assignments, books.revocations) == (1, 0)

    run_virtual(main())


def test_a_forced_rebalance_gives_everything_back_first() -> None:
    async def main() -> None:
        on = cluster(3)
        books = Books()
        await keep_polling(on.connect(), books)
        await asyncio.sleep(1)
        on.rebalance("g")
        await asyncio.sleep(1)
        assert (books.assignments, books.revocations, len(books.owned)) == (2, 1, 3)

    run_virtual(main())


def test_a_forced_rebalance_may_move_every_partition() -> None:
    async def main() -> None:
        on = cluster(2)
        first, second = Books(), Books()
        await keep_polling(on.connect("a"), first)
        await keep_polling(on.connect("b"), second)
        await asyncio.sleep(1)
        before = set(first.owned), set(second.owned)
        on.rebalance("g", move=True)
        await asyncio.sleep(1)
        assert (set(first.owned), set(second.owned)) == before[::-1]

    run_virtual(main())


def test_a_slow_connection_takes_its_time() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect()
        writer = await log.writer()
        await writer.send(Outgoing("t", b"v"))
        log.slow(2.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        reader = await log.reader({AT: "start"})
        assert len(await reader.poll()) == 1
        assert loop.time() - began == 4.0

    run_virtual(main())


def test_a_closed_reader_says_so() -> None:
    async def main() -> None:
        reader = await cluster().connect().reader({AT: "start"})
        polling = asyncio.create_task(reader.poll(10, 60.0))
        await asyncio.sleep(1)
        await reader.close()
        with pytest.raises(LogUnavailable):
            await polling

    run_virtual(main())


def test_the_same_seed_gives_the_same_log() -> None:
    async def main(chance: random.Random) -> list[Record]:
        on = cluster(3)
        on.fate = lambda *_: Fate(delay=chance.random(), acked=chance.random() < 0.9)
        books = Books()
        await keep_polling(on.connect("reader"), books)
        writers = [await on.connect(f"w{i}").writer() for i in range(4)]
        for i in range(200):
            writers[i % 4].send(Outgoing("t", b"%d" % i, b"%d" % (i % 7)))
            if i % 5 == 0:
                await asyncio.sleep(chance.random() / 10)
        for writer in writers:
            await writer.flush(600)
        return [record for each in on.partitions.values() for record in each.records]

    def once(seed: int) -> list[Record]:
        return run_virtual(main(random.Random(seed)), chance=random.Random(seed))

    assert once(1) == once(1)
    assert once(1) != once(2)
