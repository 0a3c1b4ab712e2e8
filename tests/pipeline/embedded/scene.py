"""What scenes share. A scene does things to one broker and gives (label, answer) pairs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from tests.pipeline.embedded.wire import Wire

Answers = AsyncIterator[tuple[str, Any]]
SECOND = timedelta(seconds=1)
ZERO = timedelta(0)
T0 = int(time.time()) * 1000 - 60_000  # young enough for retention
COORDINATOR_AWAY = (14, 15, 16)  # Kafka's first group waits for the topic of offsets


async def patiently(wire: Wire, name: str, version: int, **fields: Any) -> Any:
    """The answer once Kafka's coordinator is there."""
    for _ in range(200):
        answer = await wire.call(name, version, **fields)
        codes = [getattr(answer, "error_code", 0)]
        for topic in getattr(answer, "topics", ()):
            codes += [part.error_code for part in topic.partitions]
        for group in (*getattr(answer, "groups", ()), *getattr(answer, "results", ())):
            codes.append(getattr(group, "error_code", 0))
        if not any(code in COORDINATOR_AWAY for code in codes):
            return answer
        # looking for the coordinator is what makes Kafka set up the topic of offsets
        await wire.call("find_coordinator", 2, key="scenes", key_type=0)
        await asyncio.sleep(0.1)
    raise TimeoutError(name)


async def create(wire: Wire, name: str, partitions: int = 1, **configs: str) -> None:
    """A topic; config names are written with _ for the dots."""
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": settings,
    }
    answer = await wire.call(
        "create_topics", 4, topics=[topic], timeout=10 * SECOND, validate_only=False
    )
    assert answer.topics[0].error_code == 0, answer.topics[0].error_code
    for _ in range(100):  # Kafka answers before the partitions lead
        found = await wire.call(
            "metadata", 5, topics=[{"name": name}], allow_auto_topic_creation=False
        )
        if found.topics[0].error_code == 0 and len(found.topics[0].partitions) == partitions:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(name)


async def produce(
    wire: Wire,
    topic: str,
    records: bytes | None,
    *,
    version: int = 7,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> Any:
    part = {"index": partition, "records": records}
    return await wire.call(
        "produce",
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout=10 * SECOND,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )


async def fetch(
    wire: Wire,
    topic: str,
    offset: int,
    *,
    version: int = 11,
    partition_max: int = 1 << 20,
    most: int = 1 << 20,
    wait: timedelta = ZERO,
    least: int = 1,
    partition: int = 0,
    leader_epoch: int = -1,
    session: tuple[int, int] = (0, -1),
) -> Any:
    part = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": partition_max,
    }
    return await wire.call(
        "fetch",
        version,
        replica_id=-1,
        max_wait=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[{"topic": topic, "partitions": [part]}],
        forgotten_topics_data=(),
        rack_id="",
    )


def records_of(answer: Any) -> list[Any]:
    """What a fetch brought, record by record."""
    memory = MemoryRecords(answer.responses[0].partitions[0].records or b"")
    found = []
    while (each := memory.next_batch()) is not None:
        assert each.validate_crc()
        found += [
            (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in each
        ]
    return found


async def offsets(wire: Wire, topic: str, timestamp: int, version: int = 5) -> Any:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return await wire.call(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [part]}],
    )
