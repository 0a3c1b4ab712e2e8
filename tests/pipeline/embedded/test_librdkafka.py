"""librdkafka, through confluent-kafka, finds in this broker what it finds in Apache Kafka."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.pipeline.brokers import ApacheKafka, EmbeddedBroker

PATIENCE = 30.0  # s
api: Any = confluent_kafka.admin  # its own types say less than it exports and takes


def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """A topic; config names are written with _ for the dots."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin: Any = api.AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [api.NewTopic(name, partitions, 1, config=settings)]
    ).values():
        future.result(PATIENCE)


def outcome(future: Any) -> Any:
    """A result, or the code of the error."""
    try:
        return future.result(PATIENCE)
    except KafkaException as error:
        return error.args[0].code()


def outcomes(futures: dict[Any, Any]) -> list[Any]:
    return [outcome(future) for future in futures.values()]


def administered(bootstrap: str) -> list[Any]:
    """Everything the admin client can ask."""
    admin: Any = api.AdminClient({"bootstrap.servers": bootstrap})
    said: list[Any] = [
        outcomes(admin.create_topics([api.NewTopic("adm", 2, 1)])),
        outcomes(admin.create_topics([api.NewTopic("adm", 2, 1)])),
        outcomes(admin.create_topics([api.NewTopic("adm-r", 1, 3)])),
        outcomes(admin.create_partitions([api.NewPartitions("adm", 3)])),
        outcomes(admin.create_partitions([api.NewPartitions("adm", 3)])),
    ]
    entry = api.ConfigEntry("retention.ms", "777", incremental_operation=api.AlterConfigOpType.SET)
    resource = api.ConfigResource(api.ResourceType.TOPIC, "adm", incremental_configs=[entry])
    said.append(outcomes(admin.incremental_alter_configs([resource])))
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:  # Kafka answers before a change is in effect
        described = outcomes(
            admin.describe_configs([api.ConfigResource(api.ResourceType.TOPIC, "adm")])
        )
        if described[0]["retention.ms"].value == "777":
            break
    said.append(described[0]["retention.ms"].value)
    found = admin.list_topics("adm", timeout=PATIENCE).topics["adm"]
    said.append(sorted((each.id, each.leader, each.isrs) for each in found.partitions.values()))
    said.append(len(outcome(admin.describe_cluster()).nodes))
    said.append(outcomes(admin.delete_topics(["adm", "adm-not"])))
    return said


def produced(bootstrap: str) -> list[Any]:
    """Every compression and kind of record, idempotent and not, and back again."""
    create(bootstrap, "prod", 2)
    delivered: list[Any] = []
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": number % 2 == 0,
                "linger.ms": 5,
            }
        )
        kinds: Any = (
            (b"k", b"v" * 300, {"h": b"1", "n": None}),
            (None, b"v", {}),
            (b"k", None, {}),
        )
        for key, value, headers in kinds:
            producer.produce(
                "prod",
                value,
                key,
                partition=number % 2,
                headers=headers,
                on_delivery=lambda error, record: delivered.append((error, record.offset())),
            )
        producer.flush(PATIENCE)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": 5_000_000,
            "topic.metadata.propagation.max.ms": 1000,  # until an unknown topic is given up
        }
    )
    for topic, size in (("prod", 2_000_000), ("prod-not", 10)):
        producer.produce(
            topic,
            bytes(size),
            on_delivery=lambda error, record: delivered.append((error and error.code(), -1)),
        )
        producer.flush(PATIENCE)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "check.crcs": True})
    consumer.assign([TopicPartition("prod", number, 0) for number in range(2)])
    records = [
        (each.partition(), each.offset(), each.key(), each.value(), each.headers())
        for each in consume(consumer, 15)
    ]
    consumer.close()
    return [delivered, sorted(records, key=lambda each: each[:2])]


def consume(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.consume(count - len(records), timeout=0.5)
    return records


def member(bootstrap: str, group: str, assignor: str) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,  # how soon a member hears of a rebalance
            "partition.assignment.strategy": assignor,
        }
    )
    consumer.subscribe(["shared"])
    return consumer


def shared(bootstrap: str) -> list[Any]:
    """Groups of 2, 3 and 1 members, eager and cooperative; offsets; what the admin sees."""
    create(bootstrap, "shared", 6)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce("shared", b"%d" % number, partition=number % 6)
    producer.flush(PATIENCE)
    admin: Any = api.AdminClient({"bootstrap.servers": bootstrap})
    said: list[Any] = []
    for assignor in ("range", "cooperative-sticky"):
        group = f"shared-{assignor}"
        members = [member(bootstrap, group, assignor) for _ in range(2)]
        said.append(settled(members, 3))
        members.append(member(bootstrap, group, assignor))
        said.append(settled(members, 2))
        described = outcomes(admin.describe_consumer_groups([group]))[0]
        said.append((described.state.name, len(described.members), described.partition_assignor))
        members.pop().close()
        members.pop().close()
        said.append(settled(members, 6))
        members[0].commit(
            offsets=[TopicPartition("shared", 2, 7, metadata="m")], asynchronous=False
        )
        places = [TopicPartition("shared", number) for number in (2, 3)]
        said.append([each.offset for each in members[0].committed(places, timeout=PATIENCE)])
        said.append(outcomes(admin.delete_consumer_groups([group])))
        members.pop().close()
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition("shared", 2, 3)])
        said.append(len(outcomes(admin.alter_consumer_group_offsets([asked]))))
        listed = outcomes(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        said.append([(each.partition, each.offset) for each in listed[0].topic_partitions])
        said.append(outcomes(admin.delete_consumer_groups([group, "no-such"])))
    for spec in (
        api.OffsetSpec.latest(),
        api.OffsetSpec.earliest(),
        api.OffsetSpec.for_timestamp(1),
    ):
        found = outcomes(admin.list_offsets({TopicPartition("shared", 0): spec}))
        said.append(found[0].offset)
    said.append(
        [
            each.low_watermark
            for each in outcomes(admin.delete_records([TopicPartition("shared", 0, 4)]))
        ]
    )
    return said


def settled(members: list[Any], share: int) -> list[int]:
    """Poll all until each has its share."""
    deadline = time.monotonic() + PATIENCE
    sizes: list[int] = []
    while time.monotonic() < deadline:
        for each in members:
            each.poll(0.05)
        sizes = [len(each.assignment()) for each in members]
        if sizes == [share] * len(members):
            break
    return sizes


@pytest.mark.kafka
@pytest.mark.parametrize("play", [administered, produced, shared], ids=lambda each: each.__name__)
def test_librdkafka_finds_the_same(
    play: Any, embedded_broker: EmbeddedBroker, apache_kafka: ApacheKafka
) -> None:
    with ThreadPoolExecutor() as both:
        ours, theirs = both.map(play, (embedded_broker.bootstrap, apache_kafka.bootstrap))
    assert ours == theirs


def test_a_transaction_ends_in_a_clear_error(embedded_broker: EmbeddedBroker) -> None:
    """And not in a client that asks for ever."""
    producer = Producer({"bootstrap.servers": embedded_broker.bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as error:
        producer.init_transactions(PATIENCE)
    assert error.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
