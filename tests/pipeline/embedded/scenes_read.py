"""Scenes of reading: Fetch, long polls, offsets by time, DeleteRecords, requests nobody knows."""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta
from typing import Any

from tests.pipeline.embedded.scene import (
    SECOND,
    T0,
    Answers,
    create,
    fetch,
    offsets,
    produce,
    records_of,
)
from tests.pipeline.embedded.wire import Closed, Wire, batch


async def fetching(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    for number in range(6):
        await produce(wire, topic, batch((b"k%d" % number, b"v" * 1000), timestamp=T0))
    for version in range(4, 13):
        yield f"v{version}", await fetch(wire, topic, 2, version=version)
    yield "partition limit", records_of(await fetch(wire, topic, 0, partition_max=2500))
    yield "answer limit", records_of(await fetch(wire, topic, 0, most=2500))
    yield "first batch is larger", records_of(await fetch(wire, topic, 3, partition_max=10))
    yield "at the end", await fetch(wire, topic, 6)
    yield "past the end", await fetch(wire, topic, 7)
    yield "unknown partition", await fetch(wire, topic, 0, partition=5)
    yield "unknown topic", await fetch(wire, topic + "-not", 0)
    yield "leader epoch ahead", await fetch(wire, topic, 0, leader_epoch=9)
    yield "unknown session", await fetch(wire, topic, 0, session=(77, 3))


async def long_poll(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    await produce(wire, topic, batch((None, b"before"), timestamp=T0))
    await fetch(wire, topic, 0)
    host, port = wire.peer
    async with await Wire.connect(f"{host}:{port}") as other:
        waiting = asyncio.create_task(fetch(wire, topic, 1, wait=20 * SECOND))
        await asyncio.sleep(0.05)
        yield "nothing yet", waiting.done()
        await produce(other, topic, batch((None, b"v"), timestamp=T0))
        yield "woken", records_of(await asyncio.wait_for(waiting, 10))
        empty = await fetch(wire, topic, 2, wait=timedelta(milliseconds=50))
        yield "in vain", empty


async def searching(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    for shift in (0, 100, 50, 200):  # times need not rise
        pairs = [(None, b"v")] * 3
        await produce(wire, topic, batch(*pairs, timestamp=T0 + shift))
    for version in (1, 2, 3, 4, 5, 6, 7):
        yield f"end v{version}", await offsets(wire, topic, -1, version)
    yield "start", await offsets(wire, topic, -2)
    yield "newest", await offsets(wire, topic, -3, 7)
    for ahead in (-5, 0, 1, 2, 3, 52, 100, 101, 103, 201, 202, 203):
        yield f"T0+{ahead}", await offsets(wire, topic, T0 + ahead)
    yield "unknown topic", await offsets(wire, topic + "-not", -1)


async def deleting(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    for _ in range(4):
        await produce(wire, topic, batch((None, b"a"), (None, b"b"), timestamp=T0))

    async def delete(offset: int, partition: int = 0) -> Any:
        part = {"partition_index": partition, "offset": offset}
        return await wire.call(
            "delete_records",
            1,
            timeout=10 * SECOND,
            topics=[{"name": topic, "partitions": [part]}],
        )

    yield "inside a batch", await delete(3)
    yield "start", await offsets(wire, topic, -2)
    yield "below the start", await fetch(wire, topic, 2)
    yield "at the start", [each[0] for each in records_of(await fetch(wire, topic, 3))]
    yield "backwards", await delete(1)
    yield "past the end", await delete(99)
    yield "unknown partition", await delete(0, 7)
    yield "everything", await delete(-1)
    yield "end", await offsets(wire, topic, -1)
    yield "fetch at the end", await fetch(wire, topic, 8)
    yield "goes on", await produce(wire, topic, batch((None, b"v"), timestamp=T0))


async def unknown_requests(wire: Wire, topic: str) -> Answers:
    host, port = wire.peer
    for label, frame in (
        ("unknown API", struct.pack(">hhih", 999, 0, 7, -1)),
        ("unknown version", struct.pack(">hhih", 3, 99, 7, -1)),
        ("ApiVersions from the future", struct.pack(">hhihb", 18, 77, 7, -1, 0)),
        ("no bytes", b""),
        ("garbage", b"\xff" * 50),
    ):
        async with await Wire.connect(f"{host}:{port}") as other:
            await other.send_frame(frame)
            try:
                answer = await other.receive()
                yield label, struct.unpack_from(">ih", answer)
            except Closed:
                yield label, "closed"


SCENES = (fetching, long_poll, searching, deleting, unknown_requests)
