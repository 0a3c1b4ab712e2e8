"""What the Kafka adapter promises when a broker dies or hangs, whichever broker it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from pipeline.kafka import KafkaLog, connect, options
from pipeline.log import (
    Commit,
    LogError,
    LogUnavailable,
    Outgoing,
    Placed,
    TopicPartition,
    TopicSpec,
)
from pipeline.settings import KafkaSettings
from tests.pipeline.contract.stand import LIMIT, WallClock, read, topic, write
from tests.pipeline.log_contract import LogContract


class Broker(Protocol):
    bootstrap: str

    def start(self) -> None: ...
    def kill(self, broker: int = 1) -> None: ...
    def pause(self, broker: int = 1) -> None: ...
    def resume(self, broker: int = 1) -> None: ...


class BrokerContract(LogContract):
    """Inherit it, and give it a `broker`."""

    @pytest.fixture
    async def log(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaLog]:
        monkeypatch.setattr(options, "HEARTBEAT", 200)  # so that these many rebalances are quick
        settings = KafkaSettings(bootstrap=broker.bootstrap)
        log = await connect(settings, WallClock(), client_id="test")
        yield log
        await log.close()

    async def test_order_holds_and_nothing_is_lost_when_the_broker_is_killed(
        self, log: KafkaLog, broker: Broker
    ) -> None:
        name = await topic(log, 2)
        writer = await log.writer()
        sent = []
        for i in range(1_200):
            sent.append(writer.send(Outgoing(name, b"%d" % i, partition=i % 2)))
            if i == 400:
                await asyncio.to_thread(broker.kill)
            if i == 800:
                await asyncio.to_thread(broker.start)
            if i % 20 == 0:
                await asyncio.sleep(0.005)
        placed = await asyncio.wait_for(asyncio.gather(*sent), LIMIT)
        await in_order(log, name, 1_200, [each.offset for each in placed])

    async def test_order_holds_and_nothing_is_lost_when_the_broker_hangs(
        self, log: KafkaLog, broker: Broker
    ) -> None:
        name = await topic(log, 2)
        writer = await log.writer()
        sent = [writer.send(Outgoing(name, b"%d" % i, partition=i % 2)) for i in range(400)]
        broker.pause()
        sent += [writer.send(Outgoing(name, b"%d" % i, partition=i % 2)) for i in range(400, 800)]
        with pytest.raises(LogUnavailable):
            await writer.flush(0.5)
        broker.resume()
        placed = await asyncio.wait_for(asyncio.gather(*sent), LIMIT)
        await in_order(log, name, 800, [each.offset for each in placed])

    async def test_readers_go_on_after_the_broker_came_back(
        self, log: KafkaLog, broker: Broker
    ) -> None:
        name = await topic(log)
        at = TopicPartition(name, 0)
        await write(log, Outgoing(name, b"before"))
        reader = await log.reader({at: "start"})
        group = await log.group(f"g-{name}", [name])
        assert len(await read(reader, 1)) == len(await read(group, 1)) == 1
        await group.commit({at: Commit(1)})
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await write(log, Outgoing(name, b"after"))
        assert [each.value for each in await read(reader, 1)] == [b"after"]
        assert [each.value for each in await read(group, 1)] == [b"after"]

    async def test_a_topic_may_grow_under_a_writer(self, log: KafkaLog, broker: Broker) -> None:
        name = await topic(log)
        writer = await log.writer()
        await writer.send(Outgoing(name, b"v"))
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_partitions({name: NewPartitions(3)})
        await admin.close()
        placed = await asyncio.wait_for(writer.send(Outgoing(name, b"v", partition=2)), LIMIT)
        assert (placed.partition, placed.offset) == (2, 0)

    async def test_a_topic_that_cannot_be_made_is_refused_at_once_with_its_name(
        self, log: KafkaLog
    ) -> None:
        with pytest.raises(LogError, match="three-copies") as caught:
            await log.admin.create_topics([TopicSpec("three-copies", 1, 3)])
        assert not isinstance(caught.value, LogUnavailable)

    async def test_a_value_that_is_no_bytes_fails_alone(self, log: KafkaLog) -> None:
        name = await topic(log)
        writer = await log.writer()
        wrong: bytes = "text"  # type: ignore[assignment]
        sent = [writer.send(Outgoing(name, value)) for value in (b"1", wrong, b"2")]
        outcomes = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), LIMIT)
        assert [type(each) for each in outcomes] == [Placed, LogError, Placed]

    async def test_a_reader_says_that_no_broker_answers(
        self, log: KafkaLog, broker: Broker
    ) -> None:
        name = await topic(log)
        reader = await log.reader({TopicPartition(name, 0): "start"})
        assert await reader.poll(10, 0.2) == []
        broker.pause()
        try:
            with pytest.raises(LogUnavailable, match="no fetch was answered"):
                async with asyncio.timeout(LIMIT):
                    while True:
                        assert await reader.poll(10, 0.5) == []
        finally:
            broker.resume()
        await write(log, Outgoing(name, b"v"))
        assert len(await read(reader, 1)) == 1

    async def test_who_cannot_reach_a_broker_is_told_so(self) -> None:
        settings = KafkaSettings(bootstrap="127.0.0.1:1")
        with pytest.raises(LogUnavailable, match=r"no broker at 127\.0\.0\.1:1"):
            await connect(settings, WallClock(), client_id="test", wait=0.5)


async def in_order(log: KafkaLog, name: str, count: int, offsets: list[int]) -> None:
    """First occurrences in order, each acked record where its ack said it is."""
    for partition in (0, 1):
        at = TopicPartition(name, partition)
        end = (await log.admin.end_offsets([at]))[at]
        reader = await log.reader({at: "start"})
        records = await read(reader, end)
        seen = list(dict.fromkeys(int(record.value or b"") for record in records))
        assert seen == list(range(partition, count, 2))
        for i in range(partition, count, 2):
            assert records[offsets[i]].value == b"%d" % i
