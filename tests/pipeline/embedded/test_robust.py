"""Whatever a client or the disk does, the others go on and nothing is half written."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from datetime import timedelta

import psutil
import pytest

from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.embedded.conftest import Inside
from tests.pipeline.embedded.scene import SECOND, T0, create, fetch, offsets, produce, records_of
from tests.pipeline.embedded.wire import KEYS, Closed, Wire, batch


def memory(broker: EmbeddedBroker) -> int:
    """Resident bytes of the broker's process."""
    assert broker.process is not None
    return int(psutil.Process(broker.process.pid).memory_info().rss)


async def works(bootstrap: str, topic: str) -> None:
    """A client that behaves gets its record back."""
    async with asyncio.timeout(30), await Wire.connect(bootstrap) as wire:
        await create(wire, topic)
        await produce(wire, topic, batch((b"k", b"v")))
        assert [each[4] for each in records_of(await fetch(wire, topic, 0))] == [b"v"]


async def test_random_bytes_end_only_their_own_connection(embedded_broker: EmbeddedBroker) -> None:
    chance = random.Random(1)
    await works(embedded_broker.bootstrap, "before-noise")
    before = memory(embedded_broker)
    for number in range(300):
        async with await Wire.connect(embedded_broker.bootstrap) as wire:
            noise = chance.randbytes(chance.randint(0, 300))
            if number % 2:  # a request header that is right, and noise after it
                key = chance.choice([*KEYS.values()])
                noise = struct.pack(">hhihb", key, chance.randint(0, 12), 7, -1, 0) + noise
            try:
                await wire.send_frame(noise)
            except ConnectionError:
                continue
            if number % 10 == 0:
                await wire.send_bytes(chance.randbytes(50))
    await works(embedded_broker.bootstrap, "after-noise")
    assert memory(embedded_broker) - before < 30 << 20


async def test_half_requests_hold_up_nobody_and_cost_what_was_sent(
    embedded_broker: EmbeddedBroker,
) -> None:
    before = memory(embedded_broker)
    halves = [await Wire.connect(embedded_broker.bootstrap) for _ in range(50)]
    produce_of_90_mib = struct.pack(">ihhih", 90 << 20, KEYS["produce"], 7, 1, -1)
    for wire in halves:
        await wire.send_bytes(produce_of_90_mib + bytes(1000))
    await works(embedded_broker.bootstrap, "beside-halves")
    assert memory(embedded_broker) - before < 20 << 20
    for wire in halves:
        wire.close()


async def test_a_request_that_comes_byte_by_byte_is_answered(
    embedded_broker: EmbeddedBroker,
) -> None:
    asked = struct.pack(">hhih", KEYS["api_versions"], 0, 77, -1)
    async with await Wire.connect(embedded_broker.bootstrap) as wire:
        for byte in struct.pack(">i", len(asked)) + asked:
            await wire.send_bytes(bytes((byte,)))
        assert struct.unpack_from(">i", await wire.receive()) == (77,)


async def test_a_huge_length_is_refused_and_costs_no_memory(
    embedded_broker: EmbeddedBroker,
) -> None:
    before = memory(embedded_broker)
    for size in (-1, 2**31 - 1, 200 << 20):
        async with await Wire.connect(embedded_broker.bootstrap) as wire:
            await wire.send_bytes(struct.pack(">i", size))
            with pytest.raises(Closed):
                await wire.receive()
    halves = [await Wire.connect(embedded_broker.bootstrap) for _ in range(50)]
    for wire in halves:
        await wire.send_bytes(struct.pack(">i", 90 << 20) + b"half a request")
    await works(embedded_broker.bootstrap, "after-lengths")
    assert memory(embedded_broker) - before < 30 << 20
    for wire in halves:
        wire.close()


async def test_counts_that_promise_more_than_the_bytes_hold_are_refused(
    embedded_broker: EmbeddedBroker,
) -> None:
    """An array of two billion topics in a request of a few bytes."""
    before = memory(embedded_broker)
    for key, version in ((KEYS["metadata"], 5), (KEYS["fetch"], 4), (KEYS["produce"], 3)):
        for count in (2**31 - 1, -2, 1 << 20):
            async with await Wire.connect(embedded_broker.bootstrap) as wire:
                head = struct.pack(">hhih", key, version, 7, -1)
                await wire.send_frame(head + struct.pack(">i", count) * 8)
                with pytest.raises(Closed):
                    await wire.receive()
    assert memory(embedded_broker) - before < 30 << 20


async def test_a_thousand_idle_connections_and_a_storm_hurt_nobody(
    embedded_broker: EmbeddedBroker,
) -> None:
    await works(embedded_broker.bootstrap, "before-storm")
    before = memory(embedded_broker)
    host, port = embedded_broker.bootstrap.split(":")
    idle = []
    for _ in range(10):
        idle += await asyncio.gather(
            *(asyncio.open_connection(host, int(port)) for _ in range(100))
        )
    await works(embedded_broker.bootstrap, "among-idle")
    assert memory(embedded_broker) - before < 30 << 20
    for _, writer in idle:
        writer.close()
    for _ in range(500):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
    await works(embedded_broker.bootstrap, "after-storm")


async def test_a_reader_that_never_reads_costs_at_most_its_answer(
    embedded_broker: EmbeddedBroker,
) -> None:
    async with await Wire.connect(embedded_broker.bootstrap) as wire:
        await create(wire, "unread")
        for _ in range(20):
            await produce(wire, "unread", batch((None, os.urandom(1_000_000))))
    before = memory(embedded_broker)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100 << 20}
    lazy = await Wire.connect(embedded_broker.bootstrap)
    for _ in range(50):
        await lazy.send(
            "fetch",
            4,
            replica_id=-1,
            max_wait=SECOND,
            min_bytes=1,
            max_bytes=100 << 20,
            isolation_level=0,
            topics=[{"topic": "unread", "partitions": [part]}],
        )
    await works(embedded_broker.bootstrap, "beside-unread")
    assert memory(embedded_broker) - before < 40 << 20
    lazy.close()


async def test_a_client_that_goes_away_in_a_long_poll_leaves_nothing_behind(
    inside: Inside,
) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "left")
        for _ in range(20):
            other = await Wire.connect(inside.bootstrap)
            asking = asyncio.create_task(fetch(other, "left", 0, wait=timedelta(hours=1)))
            await asyncio.sleep(0.01)
            other.close()
            asking.cancel()
        await produce(wire, "left", batch((None, b"v")))
        assert len(records_of(await fetch(wire, "left", 0))) == 1


async def test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "full", partitions=2)
        await produce(wire, "full", batch((None, b"first"), timestamp=T0))
        inside.room(60)
        codes = set()
        acked = 1
        for _ in range(60):
            answer = await produce(wire, "full", batch((None, os.urandom(10_000)), timestamp=T0))
            code = answer.responses[0].partition_responses[0].error_code
            codes.add(code.name)
            acked += code == 0
        assert codes == {"none", "kafka_storage_error"}
        assert (await offsets(wire, "full", -1)).topics[0].partitions[0].offset == acked
        assert len(records_of(await fetch(wire, "full", 0, most=4 << 20, partition_max=4 << 20)))
        inside.room(1_000_000)
        answer = await produce(wire, "full", batch((None, b"room again"), timestamp=T0))
        assert answer.responses[0].partition_responses[0].base_offset == acked


async def test_when_old_records_are_deleted_a_full_disk_has_room_again(inside: Inside) -> None:
    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "full")
        inside.room(100)
        big = batch((None, os.urandom(10_000)), timestamp=T0)
        while (await produce(wire, "full", big)).responses[0].partition_responses[
            0
        ].error_code == 0:
            pass
        inside.room(102)  # the change itself needs a page or two
        part = {"partition_index": 0, "offset": -1}
        answer = await wire.call(
            "delete_records", 1, timeout=SECOND, topics=[{"name": "full", "partitions": [part]}]
        )
        assert answer.topics[0].partitions[0].error_code == 0
        async with asyncio.timeout(30):
            while True:
                answer = await produce(wire, "full", big)
                if answer.responses[0].partition_responses[0].error_code == 0:
                    break
                await asyncio.sleep(0.05)
