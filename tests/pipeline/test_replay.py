"""What was recorded comes back byte for byte: into a file, a topic, a stage."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log import Outgoing, Record, TopicPartition, TopicSpec
from pipeline.memory import MemoryCluster, MemoryLog
from pipeline.replay import Range, from_line, into_stage, into_topic, load, record, replay, to_line
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.stage import Context, Emit
from schemas.codec import encode

A, B = TopicPartition("a", 0), TopicPartition("a", 1)
WHOLE = {A: Range(), B: Range()}
RECORDS = st.builds(
    Record,
    st.text(),
    st.integers(0),
    st.integers(0),
    st.integers(),
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(), st.binary())).map(tuple),
)


class Greeting(msgspec.Struct, tag_field="type", tag="greeting/1"):
    text: str


async def stage(message: Greeting, context: Context) -> AsyncIterator[Emit]:
    yield Outgoing("loud", message.text.upper().encode(), context.record.key)


async def filled() -> MemoryLog:
    """Two partitions with interleaved times, a null value and a header."""
    log = MemoryCluster(VirtualClock(asyncio.get_running_loop())).connect()
    await log.admin.create_topics([TopicSpec("a", 2), TopicSpec("b", 2), TopicSpec("c", 5)])
    writer = await log.writer()
    for i in range(6):
        value = encode(Greeting(f"hello {i}")) if i != 5 else None
        headers = (("type", b"greeting/1"),)
        writer.send(Outgoing("a", value, b"%d" % i, i % 2, headers, 1_000 + 500 * i))
    await writer.flush()
    return log


@given(RECORDS)
def test_a_line_gives_its_record_back(each: Record) -> None:
    assert from_line(to_line(each)) == each


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"topic": 1}', "null"])
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match="line 1: not a recorded record"):
        list(load(path))


def test_a_recording_is_in_order_of_time_and_of_offsets(tmp_path: Path) -> None:
    async def main() -> None:
        log = await filled()
        assert await record(log, WHOLE, tmp_path / "all") == 6
        found = list(load(tmp_path / "all"))
        assert [(each.partition, each.offset) for each in found] == [
            (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2),
        ]  # fmt: skip
        assert found[5].value is None
        assert found[0] == log.cluster.partition(A).records[0]

    run_virtual(main())


def test_a_range_is_recorded_by_offset_or_by_time(tmp_path: Path) -> None:
    async def main() -> None:
        log = await filled()
        chosen = {A: Range(start=1, end=2), B: Range(since_ms=2_400)}
        await record(log, chosen, tmp_path / "some")
        found = [(each.partition, each.offset) for each in load(tmp_path / "some")]
        assert found == [(0, 1), (1, 1), (1, 2)]

    run_virtual(main())


def test_a_topic_gets_the_same_bytes_again() -> None:
    async def main() -> None:
        log = await filled()
        writer = await log.writer()
        await replay(log.cluster.partition(A).records, into_topic(writer, "b"))
        await writer.flush()
        copies = log.cluster.partition(TopicPartition("b", 0)).records
        originals = log.cluster.partition(A).records
        assert [(c.key, c.value, c.headers) for c in copies] == [
            (o.key, o.value, o.headers) for o in originals
        ]

    run_virtual(main())


def test_a_record_may_be_altered_or_dropped_on_its_way() -> None:
    async def main() -> None:
        log = await filled()
        writer = await log.writer()

        def change(outgoing: Outgoing) -> Outgoing | None:
            return None if outgoing.key == b"2" else outgoing._replace(value=b"other")

        player = into_topic(writer, "c", keep_partition=False, change=change)
        assert await replay(log.cluster.partition(A).records, player) == 3
        await writer.flush()
        everything = [
            r for at, p in log.cluster.partitions.items() if at.topic == "c" for r in p.records
        ]
        assert {(each.key, each.value) for each in everything} == {
            (b"0", b"other"),
            (b"4", b"other"),
        }

    run_virtual(main())


def test_a_stage_is_called_with_what_was_recorded() -> None:
    async def main() -> None:
        log = await filled()
        said: list[tuple[int, list[Emit]]] = []
        player = into_stage(
            stage,
            Greeting,
            lambda each, emitted: said.append((each.offset, emitted)),
            clock=log.clock,
            chance=random.Random(1),
        )
        await replay(log.cluster.partition(A).records, player)
        assert said[1] == (1, [Outgoing("loud", b"HELLO 2", b"2")])
        assert len(said) == 3

    run_virtual(main())


def test_the_pace_of_the_recording_is_kept() -> None:
    async def main() -> None:
        log = await filled()
        loop, times = asyncio.get_running_loop(), list[float]()

        async def player(_: Record) -> None:
            times.append(loop.time())

        began = loop.time()
        await replay(log.cluster.partition(A).records, player, pace=2.0)
        assert [round(time - began, 3) for time in times] == [0.0, 0.5, 1.0]

    run_virtual(main())
