"""Metadata and cluster; topics created, extended, deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from pipeline.embedded.batch import LEADER_EPOCH
from pipeline.embedded.broker import NODE_ID, Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.handle_configs import described
from pipeline.embedded.protocol import Answer
from pipeline.embedded.topics import Topic, check_name

_REPLICAS = (NODE_ID,)
_DEFAULT = -1  # "the broker's default" for partitions and replicas, which are one each


async def metadata(broker: Broker, request: Any, call: Call) -> Answer:
    """Brokers and topics. A topic that is not there is not made."""
    asked = request.topics
    # version 0 has no null: there an empty list asks for all
    if asked is None or (call.version == 0 and not asked):
        topics = [_topic_metadata(topic) for topic in broker.catalog.topics.values()]
    else:
        topics = [_asked_metadata(broker, topic.name) for topic in asked]
    return {
        "brokers": [_node(broker, "node_id")],
        "cluster_id": broker.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
    }


def _node(broker: Broker, id_field: str) -> Answer:
    return {id_field: NODE_ID, "host": broker.host, "port": broker.port, "rack": None}


def _asked_metadata(broker: Broker, name: str) -> Answer:
    try:
        check_name(name)
        return _topic_metadata(broker.catalog.topic(name))
    except Refused as refused:
        return {"error_code": refused.code, "name": name, "is_internal": False, "partitions": ()}


def _topic_metadata(topic: Topic) -> Answer:
    return {
        "name": topic.name,
        "is_internal": False,
        "partitions": [
            {
                "partition_index": partition.number,
                "leader_id": NODE_ID,
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": _REPLICAS,
                "isr_nodes": _REPLICAS,
                "offline_replicas": (),
            }
            for partition in topic.partitions
        ],
    }


async def describe_cluster(broker: Broker, request: Any, call: Call) -> Answer:
    """The cluster is this broker."""
    return {
        "error_message": None,
        "endpoint_type": 1,
        "cluster_id": broker.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [_node(broker, "broker_id")],
    }


async def create_topics(broker: Broker, request: Any, call: Call) -> Answer:
    """Make topics, each with its own outcome."""
    names = [topic.name for topic in request.topics]
    return {
        "topics": [
            await _created(broker, topic, request.validate_only, twice=names.count(topic.name) > 1)
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    }


async def _created(broker: Broker, topic: Any, validate_only: bool, *, twice: bool) -> Answer:
    answer: Answer = {"name": topic.name, "error_message": None, "topic_config_error_code": 0}
    try:
        if twice:
            raise Refused(Code.invalid_request, "Duplicate topic name.")
        count = _partition_count(topic)
        config = await broker.catalog.create(
            topic.name,
            count,
            {config.name: config.value for config in topic.configs},
            validate_only=validate_only,
        )
    except Refused as refused:
        return answer | _failed(refused) | {"configs": None}
    except StorageError as error:
        return answer | _failed(Refused(Code.kafka_storage_error, str(error))) | {"configs": None}
    answer |= {"num_partitions": count, "replication_factor": 1}
    return answer | {"configs": described(config)}


def _partition_count(topic: Any) -> int:
    """How many partitions are asked for; raises `Refused` for replicas that cannot be."""
    if topic.assignments:
        if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
            raise Refused(
                Code.invalid_request,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        for assignment in topic.assignments:
            _check_assignment(assignment.broker_ids)
        return len(topic.assignments)
    if topic.replication_factor not in (1, _DEFAULT):
        raise Refused(
            Code.invalid_replication_factor,
            f"Unable to replicate the partition {topic.replication_factor} time(s): there is one"
            " broker. For replicas use Apache Kafka."
            if topic.replication_factor > 0
            else "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    return 1 if topic.num_partitions == _DEFAULT else int(topic.num_partitions)


def _check_assignment(brokers: Sequence[int]) -> None:
    if tuple(brokers) != _REPLICAS:
        raise Refused(Code.invalid_replica_assignment, f"the only broker is {NODE_ID}")


async def delete_topics(broker: Broker, request: Any, call: Call) -> Answer:
    """Drop topics, each with its own outcome."""
    return {
        "responses": [
            {"name": name} | await _outcome(broker.catalog.drop(name))
            for name in request.topic_names
        ]
    }


async def create_partitions(broker: Broker, request: Any, call: Call) -> Answer:
    """Extend topics, each with its own outcome."""
    return {
        "results": [
            {"name": topic.name}
            | await _outcome(_extended(broker, topic, validate_only=request.validate_only))
            for topic in request.topics
        ]
    }


async def _extended(broker: Broker, topic: Any, *, validate_only: bool) -> None:
    for assignment in topic.assignments or ():
        _check_assignment(assignment.broker_ids)
    await broker.catalog.extend(topic.name, topic.count, validate_only=validate_only)


async def _outcome(change: Awaitable[None]) -> Answer:
    try:
        await change
    except Refused as refused:
        return _failed(refused)
    except StorageError as error:
        return _failed(Refused(Code.kafka_storage_error, str(error)))
    return {"error_code": Code.none, "error_message": None}


def _failed(refused: Refused) -> Answer:
    return {"error_code": refused.code, "error_message": refused.message}
