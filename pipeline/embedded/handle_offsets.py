"""Offsets of consumer groups: committed, fetched."""

from __future__ import annotations

from typing import Any

from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.groups import Committed, check_metadata
from pipeline.embedded.protocol import Answer


async def offset_commit(broker: Broker, request: Any, call: Call) -> Answer:
    """Keep offsets; answered when they are on disk."""
    refused_all = await _check_commit(broker, request)
    offsets: list[Committed] = []
    codes: dict[tuple[str, int], Code] = {}
    for topic in request.topics:
        for part in topic.partitions:
            try:
                if refused_all is not None:
                    raise refused_all
                offsets.append(_committed(broker, topic.name, part))
            except Refused as refused:
                codes[topic.name, part.partition_index] = refused.code
    if offsets:
        try:
            await broker.groups.commit(request.group_id, offsets)
        except StorageError:  # Kafka's word for it here, which clients repeat the commit after
            codes |= {(each.topic, each.partition): Code.not_coordinator for each in offsets}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": codes.get((topic.name, part.partition_index), Code.none),
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


async def _check_commit(broker: Broker, request: Any) -> Refused | None:
    try:
        broker.groups.check_commit(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            getattr(request, "group_instance_id", None),
        )
    except Refused as refused:
        return refused
    return None


def _committed(broker: Broker, topic: str, part: Any) -> Committed:
    metadata = part.committed_metadata or ""
    check_metadata(metadata)
    broker.catalog.partition(topic, part.partition_index)
    epoch = getattr(part, "committed_leader_epoch", -1)
    return Committed(topic, part.partition_index, part.committed_offset, epoch, metadata)


async def offset_fetch(broker: Broker, request: Any, call: Call) -> Answer:
    """Committed offsets with their metadata; -1 where there is none."""
    if call.version >= 8:
        groups = [_fetched(broker, group.group_id, group.topics) for group in request.groups]
        return {"groups": groups}
    return _fetched(broker, request.group_id, request.topics)


def _fetched(broker: Broker, group_id: str, asked: Any) -> Answer:
    committed = broker.groups.committed(group_id)
    if asked is None:
        wanted = list(committed)
    else:
        wanted = [(topic.name, number) for topic in asked for number in topic.partition_indexes]
    topics: dict[str, list[Answer]] = {}
    for name, number in wanted:
        found = committed.get((name, number), Committed(name, number, -1, -1, ""))
        topics.setdefault(name, []).append(
            {
                "partition_index": number,
                "committed_offset": found.offset,
                "committed_leader_epoch": found.leader_epoch,
                "metadata": found.metadata,
            }
        )
    answers = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"group_id": group_id, "topics": answers}
