"""Scenes of Produce: versions, compressions, refusals, idempotent producers."""

from __future__ import annotations

import struct
import time

from crc32c import crc32c

from tests.pipeline.embedded.scene import (
    SECOND,
    T0,
    Answers,
    create,
    fetch,
    offsets,
    patiently,
    produce,
    records_of,
)
from tests.pipeline.embedded.wire import Wire, batch

RAW_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


async def produce_versions_and_codecs(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    for version in range(3, 10):
        yield (
            f"v{version}",
            await produce(wire, topic, batch((b"k", b"v"), timestamp=T0), version=version),
        )
    for name, codec in RAW_CODECS.items():
        records = batch((b"k", b"v" * 100), (None, None), compression=codec, timestamp=T0)
        yield name, await produce(wire, topic, records)
    yield (
        "zstd before v7",
        await produce(wire, topic, batch((None, b"v"), compression=4, timestamp=T0), version=6),
    )
    yield "records", records_of(await fetch(wire, topic, 0))


async def produce_acks(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    for acks in (1, -1, 2):
        yield (
            f"acks {acks}",
            await produce(wire, topic, batch((None, b"v"), timestamp=T0), acks=acks),
        )
    part = {"index": 0, "records": batch((None, b"unheard"), timestamp=T0)}
    await wire.send(
        "produce",
        7,
        transactional_id=None,
        acks=0,
        timeout=SECOND,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )
    yield "end after acks 0", await offsets(wire, topic, -1)


async def produce_refused(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, max_message_bytes="2000")
    yield "unknown topic", await produce(wire, topic + "-not", batch((None, b"v"), timestamp=T0))
    yield (
        "unknown partition",
        await produce(wire, topic, batch((None, b"v"), timestamp=T0), partition=9),
    )
    yield "too large", await produce(wire, topic, batch((None, b"v" * 3000), timestamp=T0))
    yield (
        "ahead of time",
        await produce(
            wire, topic, batch((None, b"v"), timestamp=int(time.time() * 1000) + 7_200_000)
        ),
    )
    good = batch((None, b"a"), (None, b"b"), timestamp=T0)
    yield "two batches", await produce(wire, topic, good + good)
    yield "bad crc", await produce(wire, topic, good[:-1] + b"x")
    for label, place, value in (
        ("wrong count", 57, struct.pack(">i", 3)),
        ("wrong last delta", 23, struct.pack(">i", 5)),
        ("garbage", 61, bytes(range(100, 100 + len(good) - 61))),
    ):
        data = bytearray(good)
        data[place : place + len(value)] = value
        sealed = bytes(data[:17]) + struct.pack(">I", crc32c(bytes(data[21:]))) + bytes(data[21:])
        yield label, await produce(wire, topic, sealed)
    yield "end", await offsets(wire, topic, -1)


async def produce_without_key_to_compacted(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, cleanup_policy="compact")
    yield "no key", await produce(wire, topic, batch((None, b"v"), timestamp=T0))
    yield "key", await produce(wire, topic, batch((b"k", b"v"), timestamp=T0))
    yield "tombstone", await produce(wire, topic, batch((b"k", None), timestamp=T0))


async def idempotent(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    got = await patiently(
        wire, "init_producer_id", 1, transactional_id=None, transaction_timeout=SECOND
    )
    yield "init", got
    id = got.producer_id
    for label, epoch, sequence in (
        ("first", 0, 0),
        ("second", 0, 1),
        ("third", 0, 2),
        ("repeat of second", 0, 1),
        ("gap", 0, 9),
        ("new epoch in the middle", 1, 4),
        ("new epoch", 1, 0),
        ("old epoch", 0, 3),
    ):
        records = batch((None, b"v"), producer=(id, epoch, sequence), timestamp=T0)
        yield label, await produce(wire, topic, records)
    yield (
        "unknown producer",
        await produce(
            wire, topic, batch((None, b"v"), producer=(id + 500_000, 0, 77), timestamp=T0)
        ),
    )
    yield "records", records_of(await fetch(wire, topic, 0))


async def append_time(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = await produce(wire, topic, batch((b"k", b"a"), (b"k", b"b"), timestamp=T0))
    appended = answer.responses[0].partition_responses[0].log_append_time
    got = records_of(await fetch(wire, topic, 0))
    yield (
        "times",
        [
            appended is not None,
            all(before <= each[1] <= int(time.time() * 1000) for each in got),
            [each[2] for each in got],
        ],
    )


SCENES = (
    produce_versions_and_codecs,
    produce_acks,
    produce_refused,
    produce_without_key_to_compacted,
    idempotent,
    append_time,
)
