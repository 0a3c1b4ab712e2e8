"""Records come as they were sent, in order, from where they are asked for."""

import asyncio

import pytest

from pipeline.log import (
    Log,
    LogUnavailable,
    Outgoing,
    Placed,
    Record,
    TopicPartition,
)
from schemas.ids import partition_of
from tests.pipeline.contract.stand import (
    LIMIT,
    read,
    topic,
    write,
)


class Records:
    async def test_records_come_in_the_order_they_were_sent(self, log: Log) -> None:
        name = await topic(log)
        records = [Outgoing(name, b"%d" % i) for i in range(2_500)]  # more than one batch
        placed = await write(log, *records)
        assert [each.offset for each in placed] == list(range(2_500))
        reader = await log.reader({TopicPartition(name, 0): "start"})
        assert [each.value for each in await read(reader, 2_500)] == [r.value for r in records]

    async def test_key_value_headers_and_time_arrive_as_they_were_sent(self, log: Log) -> None:
        name = await topic(log)
        headers = (("type", b"chunk/1"), ("type", b"again"), ("empty", b""))
        ms = log.clock.ms() - 60_000  # younger than retention
        placed = await write(log, Outgoing(name, b"v", b"k", 0, headers, ms))
        reader = await log.reader({TopicPartition(name, 0): "start"})
        (record,) = await read(reader, 1)
        assert record == Record(name, 0, 0, ms, b"k", b"v", headers)
        assert placed == [Placed(name, 0, 0, ms)]
        assert record.at == TopicPartition(name, 0)

    async def test_null_is_not_empty(self, log: Log) -> None:
        name = await topic(log)
        records = [Outgoing(name, None, b"k"), Outgoing(name, b"", b""), Outgoing(name, b"v", None)]
        await write(log, *records, Outgoing(name, None, None))
        reader = await log.reader({TopicPartition(name, 0): "start"})
        found = [(each.key, each.value) for each in await read(reader, 4)]
        assert found == [(b"k", None), (b"", b""), (None, b"v"), (None, None)]

    async def test_a_key_decides_the_partition_as_kafkas_murmur2_does(self, log: Log) -> None:
        name = await topic(log, 5)
        keys = [b"%d" % i for i in range(40)]
        placed = await write(log, *(Outgoing(name, b"v", key) for key in keys))
        assert [each.partition for each in placed] == [partition_of(key, 5) for key in keys]

    async def test_records_without_a_key_spread(self, log: Log) -> None:
        name = await topic(log, 4)
        placed = await write(log, *(Outgoing(name, b"v") for _ in range(16)))
        assert {each.partition for each in placed} == {0, 1, 2, 3}

    async def test_the_broker_stamps_where_the_topic_says_so(self, log: Log) -> None:
        name = await topic(log, message_timestamp_type="LogAppendTime")
        before = log.clock.ms()
        (placed,) = await write(log, Outgoing(name, b"v", timestamp=before - 60_000))
        reader = await log.reader({TopicPartition(name, 0): "start"})
        (record,) = await read(reader, 1)
        assert placed.timestamp == record.timestamp
        assert before - 1_000 <= record.timestamp <= log.clock.ms() + 1_000

    async def test_a_position_is_known_before_the_reader_is_returned(self, log: Log) -> None:
        """What is written after `reader` returned is read, though nobody has polled yet."""
        name = await topic(log)
        await write(log, Outgoing(name, b"before"))
        at = TopicPartition(name, 0)
        reader = await log.reader({at: "end"})
        assert await reader.position(at) == 1
        await write(log, Outgoing(name, b"after"))
        assert [each.value for each in await read(reader, 1)] == [b"after"]
        assert await reader.position(at) == 2

    async def test_a_reader_reads_from_the_offset_it_is_given(self, log: Log) -> None:
        name = await topic(log, 2)
        await write(log, *(Outgoing(name, b"%d" % i, partition=i % 2) for i in range(10)))
        reader = await log.reader({TopicPartition(name, 0): 3, TopicPartition(name, 1): "start"})
        found = await read(reader, 7)
        assert [r.value for r in found if r.partition == 0] == [b"6", b"8"]
        assert [r.value for r in found if r.partition == 1] == [b"1", b"3", b"5", b"7", b"9"]

    async def test_seek_goes_back_and_forth(self, log: Log) -> None:
        name = await topic(log)
        at = TopicPartition(name, 0)
        await write(log, *(Outgoing(name, b"%d" % i) for i in range(6)))
        reader = await log.reader({at: "end"})
        reader.seek(at, 1)
        assert [each.offset for each in await read(reader, 2)] == [1, 2]
        reader.seek(at, 5)
        assert [each.offset for each in await read(reader, 1)] == [5]
        assert reader.end_seen(at) == 6

    async def test_poll_gives_no_more_than_it_is_asked_for(self, log: Log) -> None:
        name = await topic(log, 3)
        await write(log, *(Outgoing(name, b"v", partition=i % 3) for i in range(30)))
        reader = await log.reader({TopicPartition(name, p): "start" for p in range(3)})
        found: list[Record] = []
        async with asyncio.timeout(LIMIT):
            while len(found) < 30:
                some = await reader.poll(7, 0.5)
                assert len(some) <= 7
                found += some
        assert len({(each.partition, each.offset) for each in found}) == 30

    async def test_an_empty_poll_waits_and_returns_nothing(self, log: Log) -> None:
        name = await topic(log)
        reader = await log.reader({TopicPartition(name, 0): "end"})
        assert await reader.poll(10, 0.05) == []
        assert await reader.poll(10, 0.0) == []

    async def test_a_cancelled_poll_loses_nothing(self, log: Log) -> None:
        name = await topic(log)
        reader = await log.reader({TopicPartition(name, 0): "start"})
        poll = asyncio.create_task(reader.poll(10, LIMIT))
        await asyncio.sleep(0)
        poll.cancel()
        await asyncio.wait([poll])
        await write(log, Outgoing(name, b"v"))
        assert [each.value for each in await read(reader, 1)] == [b"v"]

    async def test_closing_a_reader_ends_its_poll(self, log: Log) -> None:
        name = await topic(log)
        reader = await log.reader({TopicPartition(name, 0): "end"})
        polls = [asyncio.create_task(reader.poll(10, LIMIT))]
        await asyncio.sleep(0.05)
        await reader.close()
        (outcome,) = await asyncio.wait_for(
            asyncio.gather(*polls, return_exceptions=True), LIMIT / 2
        )
        assert outcome == [] or isinstance(outcome, LogUnavailable)
        with pytest.raises(LogUnavailable):
            await reader.poll(10, 0.1)

    async def test_a_poll_for_nothing_is_a_mistake(self, log: Log) -> None:
        name = await topic(log)
        reader = await log.reader({TopicPartition(name, 0): "start"})
        with pytest.raises(ValueError, match="0 records"):
            await reader.poll(0)
