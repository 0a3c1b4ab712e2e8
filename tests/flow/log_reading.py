"""Reading topics from a test as an outsider would: confluent-kafka, nothing of ours."""

import json
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition


def records(bootstrap: str, topic: str, limit: float = 60) -> Iterator[Message]:
    """Every record of a topic from its beginning, then what comes, for `limit` seconds."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test-reader", "enable.auto.commit": False}
    )
    try:
        known = reader.list_topics(topic, timeout=20).topics[topic].partitions
        reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in known])
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                yield message
    finally:
        reader.close()


def header(message: Message, name: str) -> str | None:
    for key, value in message.headers() or []:
        if key == name and value is not None:
            return value.decode()
    return None


def first_result(bootstrap: str, correlation_id: str, limit: float = 60) -> dict[str, Any]:
    """The result of the request that was published with this correlation id, as JSON."""
    for message in records(bootstrap, "hr.results", limit):
        if header(message, "correlation-id") == correlation_id:
            result: dict[str, Any] = json.loads(message.value() or b"")
            return result
    raise TimeoutError(f"no result of {correlation_id} within {limit} s")
