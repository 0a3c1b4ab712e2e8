"""A batch that the client cannot open is stepped over and named; what lies around it is read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer, codec

from pipeline.kafka import KafkaLog, connect
from pipeline.log import Outgoing, TopicPartition
from pipeline.metrics import REGISTRY
from pipeline.settings import KafkaSettings
from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.contract.stand import LIMIT, WallClock, read, topic, write


@pytest.fixture
async def log(embedded_broker: EmbeddedBroker) -> AsyncIterator[KafkaLog]:
    settings = KafkaSettings(bootstrap=embedded_broker.bootstrap)
    log = await connect(settings, WallClock(), client_id="test")
    yield log
    await log.close()


async def write_packed(bootstrap: str, name: str, compression: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression)
    await producer.start()
    batch = producer.create_batch()
    for i in range(3):
        batch.append(key=None, value=b"packed %d" % i, timestamp=None)
    await asyncio.wait_for(await producer.send_batch(batch, name, partition=0), LIMIT)
    await producer.stop()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(
    log: KafkaLog, embedded_broker: EmbeddedBroker, compression: str
) -> None:
    name = await topic(log)
    await write_packed(embedded_broker.bootstrap, name, compression)
    reader = await log.reader({TopicPartition(name, 0): "start"})
    assert [each.value for each in await read(reader, 3)] == [b"packed 0", b"packed 1", b"packed 2"]


async def test_a_batch_without_its_codec_is_stepped_over(
    log: KafkaLog,
    embedded_broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = await topic(log, 2)
    await write(log, *(Outgoing(name, b"before %d" % i, partition=0) for i in range(2)))
    await write_packed(embedded_broker.bootstrap, name, "zstd")
    await write(log, Outgoing(name, b"after", partition=0), Outgoing(name, b"beside", partition=1))

    def fail(*_: object) -> bytes:
        raise RuntimeError("no such codec")

    monkeypatch.setattr(codec, "zstd_decode", fail)
    monkeypatch.setattr("aiokafka.record._crecords.default_records.zstd_decode", fail)
    reader = await log.reader({TopicPartition(name, p): "start" for p in (0, 1)})
    found = await read(reader, 4)
    values = [each.value for each in found if each.partition == 0]
    assert values == [b"before 0", b"before 1", b"after"]
    assert [each.value for each in found if each.partition == 1] == [b"beside"]
    assert f"{name}[0]: a batch cannot be opened, its offsets 2 to 4 are skipped" in caplog.text
    counted = REGISTRY.get_sample_value("headrace_unreadable_total", {"topic": name})
    assert counted == 3
