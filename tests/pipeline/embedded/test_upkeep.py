"""What is old goes, of every key the newest stays, and the disk gets its space back."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tests.pipeline.embedded.conftest import Inside
from tests.pipeline.embedded.scene import SECOND, T0, create, fetch, offsets, produce, records_of
from tests.pipeline.embedded.wire import Wire, batch

DAY_MS = 86_400_000


async def create_table(wire: Wire, delete_retention_ms: str = "0") -> None:
    """A compacted topic that is compacted at once."""
    await create(
        wire,
        "table",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms=delete_retention_ms,
    )


async def start_of(wire: Wire, topic: str) -> int:
    return int((await offsets(wire, topic, -2)).topics[0].partitions[0].offset)


async def end_of(wire: Wire, topic: str) -> int:
    return int((await offsets(wire, topic, -1)).topics[0].partitions[0].offset)


async def start_reaches(wire: Wire, topic: str, offset: int) -> None:
    """Wait until the upkeep has moved the start of the log there."""
    async with asyncio.timeout(30):
        while await start_of(wire, topic) < offset:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.01)


async def contents(wire: Wire, topic: str) -> list[tuple[int, Any, Any]]:
    """(offset, key, value) of every record."""
    found: list[tuple[int, Any, Any]] = []
    at, end = await start_of(wire, topic), await end_of(wire, topic)
    while at < end:
        records = records_of(await fetch(wire, topic, at))
        found += [(each[0], each[3], each[4]) for each in records if each[0] >= at]
        at = records[-1][0] + 1
    return found


async def test_records_older_than_the_retention_go_and_younger_ones_stay(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "aged", retention_ms=str(DAY_MS))
        await produce(wire, "aged", batch((None, b"old"), timestamp=T0 - 2 * DAY_MS))
        await produce(wire, "aged", batch((None, b"young"), timestamp=T0))
        await start_reaches(wire, "aged", 1)
        assert await contents(wire, "aged") == [(1, None, b"young")]


async def test_offsets_go_on_where_they_were_after_everything_is_gone(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "aged", retention_ms=str(DAY_MS))
        await produce(wire, "aged", batch(*[(None, b"old")] * 5, timestamp=T0 - 2 * DAY_MS))
        await start_reaches(wire, "aged", 5)
        answer = await produce(wire, "aged", batch((None, b"new"), timestamp=T0))
        assert answer.responses[0].partition_responses[0].base_offset == 5


async def test_a_topic_keeps_at_least_the_bytes_it_may_have_and_hardly_more(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "sized", retention_bytes="50000")
        for _ in range(20):
            await produce(wire, "sized", batch((None, bytes(10_000)), timestamp=T0))
        await start_reaches(wire, "sized", 15)
        kept = await contents(wire, "sized")
        assert [each[0] for each in kept] == list(range(kept[0][0], 20))
        assert kept[0][0] == 15


async def test_unlimited_retention_keeps_everything(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "kept", retention_ms="-1")
        await create(wire, "aged", retention_ms="1000")
        for topic in ("kept", "aged"):
            await produce(wire, topic, batch((None, b"ancient"), timestamp=1000))
        await start_reaches(wire, "aged", 1)  # so the upkeep has been here
        assert await contents(wire, "kept") == [(0, None, b"ancient")]


async def test_the_disk_gets_back_what_was_deleted(inside: Inside) -> None:
    file = inside.directory / "log.sqlite3"
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "big", retention_ms="-1")
        for _ in range(20):
            await produce(wire, "big", batch((None, os.urandom(900_000)), timestamp=T0))
        async with asyncio.timeout(30):
            while file.stat().st_size < 10 << 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await wire.call("delete_topics", 1, topic_names=("big",), timeout=SECOND)
        async with asyncio.timeout(30):
            while file.stat().st_size > 5 << 20:
                await produce(wire, "none", batch((None, b"")))
                await create(wire, f"t{os.urandom(4).hex()}")  # the file shrinks at a checkpoint
                await asyncio.sleep(0.05)


async def test_of_every_key_the_newest_record_stays_at_its_offset(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create_table(wire)
        for number in range(30):
            pairs = [(b"k%d" % key, b"%d" % number) for key in range(3)]
            compression = number % 4  # none, gzip, snappy, lz4
            await produce(wire, "table", batch(*pairs, timestamp=T0, compression=compression))
        newest = {b"k0": 87, b"k1": 88, b"k2": 89}
        async with asyncio.timeout(30):
            while len(found := await contents(wire, "table")) > 6:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        table = {key: (offset, value) for offset, key, value in found}
        assert table == {key: (offset, b"29") for key, offset in newest.items()}
        assert await end_of(wire, "table") == 90


async def test_a_tombstone_deletes_its_key_and_goes_itself_when_it_is_old(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create_table(wire, delete_retention_ms=str(DAY_MS))
        await produce(wire, "table", batch((b"old", b"1"), (b"new", b"1"), timestamp=T0))
        await produce(wire, "table", batch((b"old", None), timestamp=T0 - 2 * DAY_MS))
        await produce(wire, "table", batch((b"new", None), timestamp=T0))
        for number in range(10):
            await produce(wire, "table", batch((b"other", b"%d" % number), timestamp=T0))
        async with asyncio.timeout(30):
            while len(found := await contents(wire, "table")) > 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        keys = {key: value for _, key, value in found}
        assert keys == {b"new": None, b"other": b"9"}


async def test_reading_by_time_works_after_a_compaction(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create_table(wire)
        for number in range(40):
            await produce(wire, "table", batch((b"k", b"%d" % number), timestamp=T0 + number))
        async with asyncio.timeout(30):
            while len(found := await contents(wire, "table")) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        answer = await offsets(wire, "table", T0)
        assert answer.topics[0].partitions[0].offset == found[0][0]
        assert answer.topics[0].partitions[0].timestamp == T0 + found[0][0]


async def test_deleted_records_and_topics_leave_no_offsets_behind(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "gone")
        part = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        await wire.call(
            "offset_commit",
            2,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=SECOND,
            topics=[{"name": "gone", "partitions": [part]}],
        )
        await wire.call("delete_topics", 1, topic_names=("gone",), timeout=SECOND)
        await create(wire, "gone")
        answer = await wire.call("offset_fetch", 2, group_id="g", topics=None)
        assert answer.topics == ()
        assert await end_of(wire, "gone") == 0
