"""What every log promises. Each adapter's tests inherit this class and give it a `log`."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from pipeline.log import (
    Commit,
    GroupReader,
    Log,
    LogError,
    LogUnavailable,
    NotOwner,
    OffsetGone,
    Outgoing,
    Placed,
    Reader,
    Record,
    RecordTooLarge,
    TopicPartition,
    TopicSpec,
    UnknownTopic,
)
from schemas.ids import partition_of

LIMIT = 60.0  # s: what any wait of these tests may take on a busy machine
_names = (f"t{time.time_ns()}-{i}" for i in itertools.count())  # brokers are shared by many tests


class WallClock:
    def ms(self) -> int:
        return time.time_ns() // 1_000_000


async def topic(log: Log, partitions: int = 1, **configs: str) -> str:
    """A new topic; `_` in a config's name stands for a dot."""
    name = next(_names)
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await log.admin.create_topics([TopicSpec(name, partitions, 1, settings)])
    return name


async def write(log: Log, *records: Outgoing) -> list[Placed]:
    writer = await log.writer()
    placed = await asyncio.wait_for(asyncio.gather(*map(writer.send, records)), LIMIT)
    await writer.close()
    return placed


async def read(reader: Reader, count: int) -> list[Record]:
    """Exactly `count` records; LogUnavailable on the way is waited out."""
    found: list[Record] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < count:
            try:
                found += await reader.poll(count - len(found), 0.5)
            except LogUnavailable:
                await asyncio.sleep(0.1)
    return found


async def until(condition: Callable[[], bool], *readers: GroupReader) -> None:
    """Keeps members polling until something has happened."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.gather(*(reader.poll(100, 0.05) for reader in readers))


class Books:
    """A listener that writes down what it hears, and gives back the local positions it is told."""

    def __init__(self, local: Mapping[TopicPartition, int] | None = None) -> None:
        self.local = local or {}
        self.owned: set[TopicPartition] = set()
        self.assignments = 0
        self.revocations = 0
        self.before_revoked: Callable[[], Awaitable[None]] | None = None

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self.owned = set(partitions)
        self.assignments += 1
        return {at: offset for at, offset in self.local.items() if at in self.owned}

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self.before_revoked is not None:
            await self.before_revoked()
        self.owned = set()
        self.revocations += 1


class LogContract:
    # writing and reading

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

    # what is refused

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
        nowhere = next(_names)
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

    # questions

    async def test_the_first_offset_at_or_after_a_time(self, log: Log) -> None:
        name = await topic(log, 2)
        now = log.clock.ms()
        await write(
            log, *(Outgoing(name, b"v", None, 0, timestamp=now + ms) for ms in (0, 100, 200))
        )
        at, empty = TopicPartition(name, 0), TopicPartition(name, 1)
        ask = log.admin.offsets_for_time
        assert await ask({at: now - 1, empty: now}) == {at: 0, empty: None}
        assert await ask({at: now}) == {at: 0}
        assert await ask({at: now + 1}) == {at: 1}
        assert await ask({at: now + 200}) == {at: 2}
        assert await ask({at: now + 201}) == {at: None}

    async def test_start_and_end_offsets(self, log: Log) -> None:
        name = await topic(log, 2)
        await write(log, *(Outgoing(name, b"v", partition=0) for _ in range(3)))
        both = [TopicPartition(name, 0), TopicPartition(name, 1)]
        assert await log.admin.start_offsets(both) == {both[0]: 0, both[1]: 0}
        assert await log.admin.end_offsets(both) == {both[0]: 3, both[1]: 0}

    async def test_topics_are_described_as_they_were_made(self, log: Log) -> None:
        name = await topic(log, 3, retention_ms="3600000", cleanup_policy="compact")
        spec = (await log.admin.describe_topics([name, "nowhere"]))[name]
        assert (spec.name, spec.partitions, spec.replication) == (name, 3, 1)
        assert spec.configs["retention.ms"] == "3600000"
        assert spec.configs["cleanup.policy"] == "compact"

    async def test_making_a_topic_twice_changes_nothing(self, log: Log) -> None:
        name = await topic(log, 2)
        await write(log, Outgoing(name, b"v", partition=0))
        await log.admin.create_topics([TopicSpec(name, 9), TopicSpec(f"{name}-2", 1)])
        described = await log.admin.describe_topics([name, f"{name}-2"])
        assert {each: spec.partitions for each, spec in described.items()} == {
            name: 2,
            f"{name}-2": 1,
        }
        assert await log.admin.end_offsets([TopicPartition(name, 0)]) == {
            TopicPartition(name, 0): 1
        }

    async def test_offsets_of_a_group_without_members(self, log: Log) -> None:
        name, group = await topic(log, 2), next(_names)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        assert await log.admin.committed(group, [first]) == {first: None}
        await log.admin.commit(group, {first: Commit(5, "note")})
        await log.admin.commit(group, {first: Commit(3, "back"), second: Commit(1)})
        assert await log.admin.committed(group, [first, second]) == {
            first: Commit(3, "back"),
            second: Commit(1, ""),
        }

    # groups

    async def test_a_group_shares_the_partitions_and_hands_them_over(self, log: Log) -> None:
        name, group = await topic(log, 4), next(_names)
        everything = {TopicPartition(name, p) for p in range(4)}
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: books.owned == everything, one)
        assert one.assignment() == everything
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 2, one, two)
        assert books.owned | more.owned == everything
        assert books.revocations == 1
        await two.close()
        await until(lambda: books.owned == everything, one)

    async def test_a_group_begins_at_the_start_and_goes_on_where_it_committed(
        self, log: Log
    ) -> None:
        name, group = await topic(log), next(_names)
        at = TopicPartition(name, 0)
        await write(log, *(Outgoing(name, b"%d" % i) for i in range(5)))
        one = await log.group(group, [name])
        assert [each.offset for each in await read(one, 5)] == [0, 1, 2, 3, 4]
        await one.commit({at: Commit(3, "1:bits")})
        assert await log.admin.committed(group, [at]) == {at: Commit(3, "1:bits")}
        await one.close()
        two = await log.group(group, [name])
        assert [each.offset for each in await read(two, 2)] == [3, 4]

    async def test_a_note_beyond_4096_bytes_is_refused(self, log: Log) -> None:
        name, group = await topic(log), next(_names)
        at = TopicPartition(name, 0)
        books = Books()
        reader = await log.group(group, [name], listener=books)
        await until(lambda: bool(books.owned), reader)
        await reader.commit({at: Commit(0, "x" * 4096)})
        with pytest.raises(LogError) as caught:
            await reader.commit({at: Commit(0, "x" * 4097)})
        assert not isinstance(caught.value, LogUnavailable | NotOwner)
        assert await log.admin.committed(group, [at]) == {at: Commit(0, "x" * 4096)}

    async def test_a_local_position_is_kept_through_a_rebalance(self, log: Log) -> None:
        """Committed is 0, read is 4: after somebody else joined, the member goes on at 4."""
        name, group = await topic(log, 2), next(_names)
        await write(log, *(Outgoing(name, b"v", partition=i % 2) for i in range(8)))
        local = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 4}
        books, more = Books(), Books(local)
        one = await log.group(group, [name], listener=books)
        await read(one, 8)
        books.local = local
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        await write(log, *(Outgoing(name, b"new", partition=p) for p in range(2)))
        found = [*await read(one, 1), *await read(two, 1)]
        assert [(each.value, each.offset) for each in found] == [(b"new", 4)] * 2

    async def test_a_commit_in_the_revoke_callback_counts(self, log: Log) -> None:
        name, group = await topic(log, 2), next(_names)
        at = TopicPartition(name, 0)
        await write(log, *(Outgoing(name, b"v", partition=0) for _ in range(9)))
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: len(books.owned) == 2, one)

        async def commit() -> None:
            await one.commit({at: Commit(7, "last words")})

        books.before_revoked = commit
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(more.owned) == 1, one, two)
        assert await log.admin.committed(group, [at]) == {at: Commit(7, "last words")}

    async def test_a_former_owner_cannot_commit(self, log: Log) -> None:
        name, group = await topic(log, 2), next(_names)
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: len(books.owned) == 2, one)
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        (lost,) = more.owned
        with pytest.raises(NotOwner):
            await one.commit({lost: Commit(1)})
        await two.commit({lost: Commit(1)})

    async def test_range_gives_one_member_the_same_partitions_of_every_topic(
        self, log: Log
    ) -> None:
        first, second, group = await topic(log, 4), await topic(log, 4), next(_names)
        books, more = Books(), Books()
        one = await log.group(group, [first, second], listener=books, assignor="range")
        two = await log.group(group, [first, second], listener=more, assignor="range")
        await until(lambda: len(books.owned) == len(more.owned) == 4, one, two)
        for owned in (books.owned, more.owned):
            numbers = [{at.partition for at in owned if at.topic == t} for t in (first, second)]
            assert numbers[0] == numbers[1]

    async def test_a_static_member_that_comes_back_disturbs_nobody(self, log: Log) -> None:
        name, group = await topic(log, 2), next(_names)
        books, more, again = Books(), Books(), Books()
        one = await log.group(group, [name], listener=books, instance_id=f"{group}-1")
        two = await log.group(group, [name], listener=more, instance_id=f"{group}-2")
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        before, revocations = set(more.owned), books.revocations
        await two.close()
        back = await log.group(group, [name], listener=again, instance_id=f"{group}-2")
        await until(lambda: bool(again.owned), one, back)
        assert again.owned == before
        assert books.revocations == revocations

    async def test_a_fault_in_a_callback_is_raised_where_it_is_seen(self, log: Log) -> None:
        name, group = await topic(log), next(_names)

        class Faulty(Books):
            async def on_assigned(
                self, partitions: Sequence[TopicPartition]
            ) -> dict[TopicPartition, int]:
                raise ZeroDivisionError("of the listener")

        reader = await log.group(group, [name], listener=Faulty())
        with pytest.raises(Exception, match="of the listener"):
            await until(lambda: False, reader)
