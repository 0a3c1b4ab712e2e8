"""What cannot be done is said, with its place and its limit, and stops nothing else."""

import asyncio

import pytest

from pipeline.log import (
    Log,
    LogUnavailable,
    OffsetGone,
    Outgoing,
    Placed,
    RecordTooLarge,
    TopicPartition,
    UnknownTopic,
)
from tests.pipeline.contract.stand import (
    LIMIT,
    new_name,
    read,
    topic,
    write,
)


class Refusals:
    async def test_an_offset_beyond_the_end_is_gone_and_says_what_is_there(self, log: Log) -> None:
        name = await topic(log)
        await write(log, Outgoing(name, b"v"))
        at = TopicPartition(name, 0)
        reader = await log.reader({at: 7})
        with pytest.raises(OffsetGone) as caught:
            await read(reader, 1)
        gone = caught.value
        assert (gone.at, gone.offset, gone.start, gone.end) == (at, 7, 0, 1)
        reader.seek(at, 0)  # it can go on elsewhere
        assert len(await read(reader, 1)) == 1

    async def test_a_topic_that_does_not_exist_is_an_error_and_stays_away(self, log: Log) -> None:
        nowhere = new_name()
        at = TopicPartition(nowhere, 0)
        with pytest.raises(UnknownTopic, match=nowhere):
            await log.reader({at: "start"})
        with pytest.raises(UnknownTopic, match=nowhere):
            await log.group("g", [nowhere])
        with pytest.raises(UnknownTopic, match=nowhere):
            await log.admin.end_offsets([at])
        with pytest.raises(UnknownTopic, match=nowhere):
            await write(log, Outgoing(nowhere, b"v"))
        assert nowhere not in await log.admin.describe_topics()

    async def test_a_partition_that_does_not_exist_is_an_error(self, log: Log) -> None:
        name = await topic(log, 2)
        with pytest.raises(UnknownTopic, match=name):
            await log.reader({TopicPartition(name, 2): "start"})
        with pytest.raises(UnknownTopic, match=name):
            await write(log, Outgoing(name, b"v", partition=2))

    async def test_a_record_beyond_the_writers_limit_fails_alone(self, log: Log) -> None:
        name = await topic(log)
        writer = await log.writer(max_request_size=10_000)
        sent = [writer.send(Outgoing(name, b"x" * size)) for size in (10, 20_000, 10)]
        first, large, last = await asyncio.wait_for(
            asyncio.gather(*sent, return_exceptions=True), LIMIT
        )
        assert isinstance(large, RecordTooLarge)
        assert isinstance(first, Placed) and isinstance(last, Placed)
        assert (first.offset, last.offset) == (0, 1)
        assert writer.pending == 0

    async def test_a_record_beyond_the_topics_limit_fails_alone(self, log: Log) -> None:
        name = await topic(log, max_message_bytes="5000")
        writer = await log.writer()
        sent = [writer.send(Outgoing(name, b"x" * size)) for size in (10, 20_000, 10, 4_000)]
        outcomes = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), LIMIT)
        assert [type(each) for each in outcomes] == [Placed, RecordTooLarge, Placed, Placed]
        assert [each.offset for each in outcomes if isinstance(each, Placed)] == [0, 1, 2]

    async def test_a_closed_writer_takes_nothing(self, log: Log) -> None:
        name = await topic(log)
        writer = await log.writer()
        await writer.close()
        with pytest.raises(LogUnavailable):
            await writer.send(Outgoing(name, b"v"))

    async def test_a_record_just_below_a_megabyte_goes_through(self, log: Log) -> None:
        name = await topic(log)
        value = bytes(1_040_000)
        await write(log, Outgoing(name, value))
        reader = await log.reader({TopicPartition(name, 0): "start"})
        (record,) = await read(reader, 1)
        assert record.value == value

    async def test_a_topic_may_take_larger_records(self, log: Log) -> None:
        """As dead-letter topics do: a full record and its reason."""
        name = await topic(log, max_message_bytes="2097152")
        writer = await log.writer(max_request_size=2_000_000)
        value = bytes(1_500_000)
        await asyncio.wait_for(writer.send(Outgoing(name, value)), LIMIT)
        reader = await log.reader({TopicPartition(name, 0): "start"})
        assert [each.value for each in await read(reader, 1)] == [value]

    async def test_flush_waits_for_what_was_sent(self, log: Log) -> None:
        name = await topic(log, 3)
        writer = await log.writer()
        sent = [writer.send(Outgoing(name, b"v")) for _ in range(100)]
        assert writer.pending == 100
        await writer.room()
        await writer.flush(LIMIT)
        assert all(each.done() for each in sent)
        assert writer.pending == 0
