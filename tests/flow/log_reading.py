"""Reading topics from a test as an outsider would: confluent-kafka, nothing of ours."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.flow.installation import Installation


def records(
    bootstrap: str, topic: str, limit: float = 60, *, to_end: bool = False
) -> Iterator[Message]:
    """Every record of a topic from its beginning; then what comes, for `limit` seconds, or up to the
    end that it has now."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test-reader", "enable.auto.commit": False}
    )
    try:
        known = reader.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {}
        if to_end:
            ends = {p: reader.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in known}
        unread = {partition for partition, end in ends.items() if end}
        reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in known])
        deadline = time.monotonic() + limit
        while (unread or not to_end) and time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is None or message.error() is not None:
                continue
            if to_end and (message.offset() or 0) + 1 >= ends[message.partition()]:
                unread.discard(message.partition())
            yield message
        assert not unread, f"{topic}: not read to its end within {limit:.0f} s"
    finally:
        reader.close()


def decoded(message: Message) -> Any:
    """A record's value as plain data: JSON for who published JSON, MessagePack otherwise."""
    value = message.value() or b""
    return json.loads(value) if value[:1] in (b"{", b"[") else msgspec.msgpack.decode(value)


def header(message: Message, name: str) -> str | None:
    for key, value in message.headers() or []:
        if key == name and value is not None:
            return value.decode()
    return None


def first_result(headrace: Installation, correlation_id: str, limit: float = 60) -> dict[str, Any]:
    """The result of the request that was published with this correlation id."""
    for message in records(headrace.kafka, headrace.topic("results"), limit):
        if header(message, "correlation-id") == correlation_id:
            result: dict[str, Any] = decoded(message)
            return result
    raise TimeoutError(f"no result of {correlation_id} within {limit} s")


def publish(headrace: Installation, value: bytes | None, headers: dict[str, str]) -> None:
    """A record on hr.requests, as any Kafka client writes it."""
    producer = Producer({"bootstrap.servers": headrace.kafka, "acks": "all"})
    producer.produce(
        headrace.topic("requests"), value, headers=[(k, v.encode()) for k, v in headers.items()]
    )
    assert producer.flush(30) == 0
