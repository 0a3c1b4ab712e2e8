"""Scenes of a group's offsets, and of groups listed, deleted, found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.pipeline.embedded.scene import Answers, create, patiently
from tests.pipeline.embedded.scenes_groups import described, join, sync
from tests.pipeline.embedded.wire import Wire


async def commit(
    wire: Wire,
    group: str,
    topic: str,
    offset: int,
    *,
    version: int = 7,
    generation: int = -1,
    member: str = "",
    metadata: str | None = "m",
    partition: int = 0,
) -> Any:
    part = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    return await patiently(
        wire,
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=None,
        retention_time=timedelta(milliseconds=-1),
        topics=[{"name": topic, "partitions": [part]}],
    )


async def fetched(wire: Wire, group: str, topic: str | None, version: int = 7) -> Any:
    asked = None if topic is None else [{"name": topic, "partition_indexes": (0, 1, 9)}]
    groups = [{"group_id": group, "topics": asked}]
    return await patiently(
        wire,
        "offset_fetch",
        version,
        group_id=group,
        topics=asked,
        groups=groups,
        require_stable=False,
    )


async def committing(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, partitions=2)
    group = topic
    for version in range(2, 9):
        yield f"commit v{version}", await commit(wire, group, topic, 10 + version, version=version)
        yield f"fetch v{version}", await fetched(wire, group, topic, version)
    yield "fetch v1", await fetched(wire, group, topic, 1)
    yield "all", await fetched(wire, group, None)
    yield "no metadata", await commit(wire, group, topic, 5, metadata=None)
    yield "fetched", await fetched(wire, group, None)
    yield "longest metadata", await commit(wire, group, topic, 6, metadata="x" * 4096)
    yield "too long metadata", await commit(wire, group, topic, 7, metadata="x" * 4097)
    yield "unknown topic", await commit(wire, group, topic + "-not", 1)
    yield "unknown partition", await commit(wire, group, topic, 1, partition=5)
    yield "unknown group", await fetched(wire, group + "-not", topic)
    yield "no such member", await commit(wire, group, topic, 1, generation=1, member="nobody")
    yield "described", await described(wire, group)
    joined = await join(wire, group, version=3)
    yield (
        "before sync",
        await commit(
            wire, group, topic, 8, generation=joined.generation_id, member=joined.member_id
        ),
    )
    await sync(wire, group, joined, version=3)
    for label, generation, member in (
        ("as a member", joined.generation_id, joined.member_id),
        ("old generation", joined.generation_id - 1, joined.member_id),
        ("as nobody", -1, ""),
    ):
        yield label, await commit(wire, group, topic, 9, generation=generation, member=member)


def of_topic(answer: Any, topic: str) -> list[Any]:
    """The groups of this scene; a listing has no order."""
    groups = [each for each in answer.groups if each.group_id.startswith(topic)]
    return sorted(groups, key=lambda each: str(each.group_id))


async def listing(wire: Wire, topic: str) -> Answers:
    await create(wire, topic)
    await commit(wire, topic, topic, 1)
    joined = await join(wire, f"{topic}-live", version=3)
    await sync(wire, f"{topic}-live", joined, version=3)
    for version in range(5):
        answer = await wire.call("list_groups", version, states_filter=())
        yield f"v{version}", of_topic(answer, topic)
    answer = await wire.call("list_groups", 4, states_filter=("Stable",))
    yield "stable", of_topic(answer, topic)
    for version in range(3):
        answer = await wire.call(
            "delete_groups", version, groups_names=(f"{topic}-live", f"{topic}-not")
        )
        yield f"delete v{version}", sorted(answer.results, key=lambda each: str(each.group_id))
    yield "delete", await wire.call("delete_groups", 2, groups_names=(topic,))
    yield "gone", await described(wire, topic)
    yield "its offsets", await fetched(wire, topic, topic)


async def coordinators(wire: Wire, group: str) -> Answers:
    for version in range(4):
        yield (
            f"v{version}",
            await patiently(wire, "find_coordinator", version, key=group, key_type=0),
        )
    yield (
        "v4",
        await wire.call("find_coordinator", 4, key_type=0, coordinator_keys=(group, group + "-2")),
    )


SCENES = (committing, listing, coordinators)
