"""ListOffsets and DeleteRecords."""

from __future__ import annotations

from typing import Any

from pipeline.embedded.batch import LEADER_EPOCH
from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.partition import Partition
from pipeline.embedded.protocol import Answer

_END, _START, _LATEST_RECORD = -1, -2, -3  # ListOffsets' special timestamps


async def list_offsets(broker: Broker, request: Any, call: Call) -> Answer:
    """Offsets by time; the end, the start and the newest record by special times."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_listed(broker, topic.name, part) for part in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _listed(broker: Broker, topic: str, part: Any) -> Answer:
    answer: Answer = {"partition_index": part.partition_index, "leader_epoch": -1}
    try:
        partition = broker.catalog.partition(topic, part.partition_index)
        partition.check_leader_epoch(getattr(part, "current_leader_epoch", -1))
    except Refused as refused:
        return answer | {"error_code": refused.code}
    found: tuple[int, int] | None
    if part.timestamp == _END:
        found = partition.end, -1
    elif part.timestamp == _START:
        found = partition.start, -1
    elif part.timestamp == _LATEST_RECORD:
        found = partition.latest_record(broker.store.db)
    else:
        found = partition.offset_at(broker.store.db, part.timestamp)
    if found is None:
        return answer
    return answer | {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}


async def delete_records(broker: Broker, request: Any, call: Call) -> Answer:
    """Move the start of partitions; -1 is their end."""
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            result: Answer = {"partition_index": part.partition_index, "low_watermark": -1}
            try:
                partition = broker.catalog.partition(topic.name, part.partition_index)
                result["low_watermark"] = await _delete_records(broker, partition, part.offset)
            except Refused as refused:
                result["error_code"] = refused.code
            except StorageError:
                result["error_code"] = Code.kafka_storage_error
            results.append(result)
        topics.append({"name": topic.name, "partitions": results})
    return {"topics": topics}


async def _delete_records(broker: Broker, partition: Partition, offset: int) -> int:
    if not partition.config.delete:
        raise Refused(Code.policy_violation, "the topic is compacted, not deleted")
    offset = partition.end if offset == -1 else offset
    if not 0 <= offset <= partition.end:
        raise Refused(Code.offset_out_of_range, f"the partition ends at {partition.end}")
    await partition.move_start(broker.store, offset)
    return partition.start
