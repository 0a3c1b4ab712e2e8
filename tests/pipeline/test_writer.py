"""A writer keeps order and loses nothing that it said was written, whatever becomes of its batches."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from pipeline.log import LogUnavailable, Outgoing, TopicPartition, TopicSpec
from pipeline.memory import Fate, MemoryCluster, MemoryLog
from pipeline.simulation import VirtualClock, run_virtual

AT = TopicPartition("t", 0)


def cluster(partitions: int = 1) -> MemoryCluster:
    made = MemoryCluster(VirtualClock(asyncio.get_running_loop()))
    made.create(TopicSpec("t", partitions))
    return made


def values(on: MemoryCluster, at: TopicPartition = AT) -> list[int]:
    return [int(record.value or b"") for record in on.partition(at).records]


def first_seen(found: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(found))


def fates(chance: random.Random) -> Fate:
    """Lost, late beyond the writer's patience, unacked, twice: one batch in two meets something."""
    return chance.choice(
        [
            Fate(),
            Fate(),
            Fate(),
            Fate(delay=chance.random()),
            Fate(lands=False),
            Fate(delay=12.0 + 20 * chance.random()),
            Fate(acked=False),
            Fate(again=30 * chance.random()),
        ]
    )


async def send_slowly(log: MemoryLog, count: int, chance: random.Random) -> None:
    writer = await log.writer()
    sent = []
    for i in range(count):
        sent.append(writer.send(Outgoing("t", b"%d" % i, partition=i % 3)))
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random())
    for i, placed in enumerate(await asyncio.gather(*sent)):
        record = log.cluster.partition(TopicPartition("t", i % 3)).records[placed.offset]
        assert record.value == b"%d" % i  # an ack names the place where the record is
    assert writer.pending == 0


@pytest.mark.parametrize("seed", range(60))
def test_order_holds_through_lost_late_unacked_and_repeated_batches(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        on = cluster(3)
        on.fate = lambda *_: fates(chance)
        await send_slowly(on.connect(), 90, chance)
        for partition in range(3):
            seen = first_seen(values(on, TopicPartition("t", partition)))
            assert seen == list(range(partition, 90, 3))

    run_virtual(main(), chance=random.Random(seed))


def test_a_batch_of_a_replaced_writer_lands_late() -> None:
    """The fault that epochs and counters are for is one that the simulation can make."""

    async def main() -> None:
        on = cluster()
        dying, heir = on.connect("old"), on.connect("new")
        on.fate = lambda name, *_: Fate(delay=5.0) if name == "old" else Fate()
        old = await dying.writer()
        lost = old.send(Outgoing("t", b"1"))
        await asyncio.sleep(1)
        dying.cut()
        writer = await heir.writer()
        await writer.send(Outgoing("t", b"2"))
        await asyncio.sleep(60)
        assert values(on) == [2, 1]
        assert not lost.done()  # a killed process hears nothing

    run_virtual(main())


def test_a_killed_process_writes_nothing_more() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect()
        writer = await log.writer()
        reader = await log.reader({AT: "start"})
        polling = asyncio.create_task(reader.poll(10, 1.0))
        await asyncio.sleep(0.1)
        log.cut()
        sent = writer.send(Outgoing("t", b"1"))
        await asyncio.sleep(120)
        assert values(on) == []
        assert sent.done() and isinstance(sent.exception(), LogUnavailable)
        assert not polling.done()

    run_virtual(main())


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect()
        writer = await log.writer()
        log.pause()
        sent = writer.send(Outgoing("t", b"1"))
        await asyncio.sleep(5)
        assert values(on) == []
        log.resume()
        assert (await sent).offset == 0

    run_virtual(main())


def test_a_partition_without_a_leader_holds_up_its_own_records_only() -> None:
    async def main() -> None:
        on = cluster(2)
        log = on.connect()
        on.set_available([AT], False)
        writer = await log.writer()
        held, free = (writer.send(Outgoing("t", b"1", partition=p)) for p in (0, 1))
        await free
        await asyncio.sleep(5)
        assert not held.done()
        with pytest.raises(LogUnavailable, match="1 records unacked"):
            await writer.flush(3.0)
        on.set_available([AT], True)
        assert (await held).offset == 0

    run_virtual(main())


def test_closing_fails_what_has_no_ack() -> None:
    async def main() -> None:
        on = cluster()
        on.fate = lambda *_: Fate(lands=False)
        writer = await on.connect().writer()
        sent = writer.send(Outgoing("t", b"1"))
        await writer.close()
        with pytest.raises(LogUnavailable):
            await sent

    run_virtual(main())


def test_room_waits_until_little_is_pending() -> None:
    async def main() -> None:
        on = cluster()
        on.fate = lambda *_: Fate(delay=1.0)
        writer = await on.connect().writer()
        for i in range(25_000):
            writer.send(Outgoing("t", b"%d" % i))
        await writer.room()
        assert 0 < writer.pending < 20_000
        assert writer.oldest is not None
        await writer.flush(60)
        assert writer.oldest is None
        assert values(on) == list(range(25_000))

    run_virtual(main())
