"""Kafka's own Java producer puts an id where `partition_of` says."""

import random

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.ids import mint, partition_of
from tests.flow.java_tools import kafka_tool
from tests.pipeline.brokers import ApacheKafka

PARTITIONS = 12


@pytest.mark.kafka
async def test_the_java_client_agrees_on_every_key(apache_kafka: ApacheKafka) -> None:
    topic, chance = "keys-of-requests", random.Random(4)
    keys = [mint(1_764_547_200_000 + i, chance) for i in range(200)] + ["a", "ключ", "x" * 100]
    admin = AIOKafkaAdminClient(bootstrap_servers=apache_kafka.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()
    kafka_tool(
        "console-producer",
        apache_kafka.bootstrap,
        *("--topic", topic, "--property", "parse.key=true", "--property", "key.separator=|"),
        given="".join(f"{key}|value\n" for key in keys),
    )
    assert await read_keys(apache_kafka.bootstrap, topic, len(keys)) == {
        key: partition_of(key, PARTITIONS) for key in keys
    }


async def read_keys(bootstrap: str, topic: str, count: int) -> dict[str, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    await consumer.start()
    found: dict[str, int] = {}
    try:
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=10_000)
            assert batches, f"{len(found)} of {count} keys came"
            found |= {r.key.decode(): at.partition for at, rs in batches.items() for r in rs}
    finally:
        await consumer.stop()
    return found
