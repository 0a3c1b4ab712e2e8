"""Scenes of topics: created, described, extended, deleted."""

from __future__ import annotations

from typing import Any

from tests.pipeline.embedded.scene import SECOND, Answers, create
from tests.pipeline.embedded.wire import Wire

SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
)


async def make(
    wire: Wire,
    name: str,
    *,
    version: int = 5,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Any = (),
    validate_only: bool = False,
    configs: dict[str, str | None] | None = None,
) -> Any:
    settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": assignments,
        "configs": settings,
    }
    answer = await wire.call(
        "create_topics", version, topics=[topic], timeout=10 * SECOND, validate_only=validate_only
    )
    made = answer.topics[0]
    configured = [
        (each.name, each.value, each.config_source, each.read_only)
        for each in getattr(made, "configs", None) or ()
        if each.name in SHOWN
    ]
    return [
        made.error_code,
        getattr(made, "num_partitions", None),
        getattr(made, "replication_factor", None),
        sorted(configured),
    ]


async def creating(wire: Wire, topic: str) -> Answers:
    for version in range(2, 7):
        yield f"v{version}", await make(wire, f"{topic}-{version}", version=version, partitions=3)
    yield "again", await make(wire, f"{topic}-5")
    yield "defaults", await make(wire, f"{topic}-d", partitions=-1, replicas=-1)
    yield (
        "configs",
        await make(
            wire,
            f"{topic}-c",
            configs={"cleanup.policy": "compact,delete", "retention.ms": "12345"},
        ),
    )
    yield "only validated", await make(wire, f"{topic}-v", validate_only=True)
    yield "not made", await made_metadata(wire, f"{topic}-v")
    yield (
        "assigned",
        await make(
            wire,
            f"{topic}-a",
            partitions=-1,
            replicas=-1,
            assignments=[{"partition_index": 0, "broker_ids": (1,)}],
        ),
    )


async def creating_refused(wire: Wire, topic: str) -> Answers:
    for name in ("", ".", "..", "with space", "ü", "x" * 250, "slash/"):
        yield f"name {name[:20]}", await make(wire, name)
    yield "no partitions", await make(wire, topic, partitions=0)
    yield "negative", await make(wire, topic, partitions=-2)
    yield "replicas", await make(wire, topic, replicas=3)
    yield "no replicas", await make(wire, topic, replicas=0)
    yield "unknown config", await make(wire, topic, configs={"no.such": "1"})
    yield "null config", await make(wire, topic, configs={"retention.ms": None})
    for key, value in (
        ("retention.ms", "abc"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "burn"),
        ("max.message.bytes", "-1"),
        ("min.cleanable.dirty.ratio", "2"),
        ("message.timestamp.type", "Never"),
        ("retention.bytes", "99999999999999999999"),
        ("preallocate", "maybe"),
        ("min.insync.replicas", "0"),
        ("segment.ms", "0"),
    ):
        yield f"{key}={value}", await make(wire, topic, configs={key: value})
    yield (
        "other broker",
        await make(
            wire,
            topic,
            partitions=-1,
            replicas=-1,
            assignments=[{"partition_index": 0, "broker_ids": (5,)}],
        ),
    )
    twice = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    yield (
        "twice in one request",
        await wire.call(
            "create_topics", 4, topics=[twice, twice], timeout=SECOND, validate_only=False
        ),
    )


async def made_metadata(wire: Wire, name: str, version: int = 5) -> Any:
    return await wire.call(
        "metadata",
        version,
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def describing(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, partitions=2)
    for version in range(9):
        yield f"metadata v{version}", await made_metadata(wire, topic, version)
    yield "unknown", await made_metadata(wire, topic + "-not")
    yield "bad name", await made_metadata(wire, "bad name")
    answer = await wire.call("metadata", 5, topics=None, allow_auto_topic_creation=False)
    yield "all", [each for each in answer.topics if each.name == topic]
    answer = await wire.call("metadata", 5, topics=(), allow_auto_topic_creation=False)
    yield "none", answer.topics
    for version in (0, 1):
        yield (
            f"cluster v{version}",
            await wire.call(
                "describe_cluster",
                version,
                include_cluster_authorized_operations=False,
                endpoint_type=1,
            ),
        )


async def extending(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, partitions=2)

    async def extend(
        name: str,
        count: int,
        version: int = 3,
        assignments: Any = None,
        validate_only: bool = False,
    ) -> Any:
        asked = {"name": name, "count": count, "assignments": assignments}
        return await wire.call(
            "create_partitions",
            version,
            topics=[asked],
            timeout=10 * SECOND,
            validate_only=validate_only,
        )

    yield "only validated", await extend(topic, 3, validate_only=True)
    for version, count in ((0, 3), (1, 4), (2, 5), (3, 6)):
        yield f"v{version}", await extend(topic, count, version)
    yield "the same", await extend(topic, 6)
    yield "fewer", await extend(topic, 1)
    yield "unknown topic", await extend(topic + "-not", 3)


async def dropping(wire: Wire, topic: str) -> Answers:
    for version in range(1, 6):
        await create(wire, f"{topic}-{version}")
        answer = await wire.call(
            "delete_topics", version, topic_names=(f"{topic}-{version}",), timeout=10 * SECOND
        )
        yield f"v{version}", answer
        yield (
            f"v{version} again",
            await wire.call(
                "delete_topics", version, topic_names=(f"{topic}-{version}",), timeout=10 * SECOND
            ),
        )


SCENES = (creating, creating_refused, describing, extending, dropping)
