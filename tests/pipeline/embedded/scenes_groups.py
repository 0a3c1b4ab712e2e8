"""Scenes of consumer groups: members join, share, come back, leave."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from tests.pipeline.embedded.scene import SECOND, Answers, patiently
from tests.pipeline.embedded.wire import Wire


async def join(
    wire: Wire,
    group: str,
    member: str = "",
    instance: str | None = None,
    *,
    version: int = 9,
    session: int = 10_000,
    protocols: tuple[str, ...] = ("range",),
    kind: str = "consumer",
) -> Any:
    return await patiently(
        wire,
        "join_group",
        version,
        group_id=group,
        session_timeout=timedelta(milliseconds=session),
        rebalance_timeout=5 * SECOND,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[{"name": name, "metadata": b"m"} for name in protocols],
        reason=None,
    )


async def sync(
    wire: Wire,
    group: str,
    joined: Any,
    *,
    version: int = 5,
    leader: bool = True,
    instance: str | None = None,
    generation: int | None = None,
) -> Any:
    given = [{"member_id": each.member_id, "assignment": b"a"} for each in joined.members]
    return await patiently(
        wire,
        "sync_group",
        version,
        group_id=group,
        generation_id=joined.generation_id if generation is None else generation,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=given if leader else (),
    )


async def beat(
    wire: Wire,
    group: str,
    generation: int,
    member: str,
    instance: str | None = None,
    version: int = 4,
) -> Any:
    return await patiently(
        wire,
        "heartbeat",
        version,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
    )


async def leave(wire: Wire, group: str, *members: tuple[str, str | None]) -> Any:
    leaving = [
        {"member_id": id, "group_instance_id": instance, "reason": None} for id, instance in members
    ]
    return await patiently(wire, "leave_group", 5, group_id=group, members=leaving)


async def described(wire: Wire, group: str, version: int = 5) -> Any:
    return await patiently(
        wire, "describe_groups", version, groups=(group,), include_authorized_operations=False
    )


async def joining(wire: Wire, group: str) -> Answers:
    yield "needs an id", (first := await join(wire, group))
    yield "first", (joined := await join(wire, group, first.member_id))
    yield "before sync", await beat(wire, group, joined.generation_id, joined.member_id)
    yield "described while completing", await described(wire, group)
    yield "sync", await sync(wire, group, joined)
    yield "beat", await beat(wire, group, joined.generation_id, joined.member_id)
    yield "described", await described(wire, group)
    yield "sync again", await sync(wire, group, joined, leader=False)
    yield "other generation", await beat(wire, group, joined.generation_id + 1, joined.member_id)
    yield "sync of another generation", await sync(wire, group, joined, generation=77)
    yield "unknown member", await beat(wire, group, joined.generation_id, "nobody")
    yield "unknown group", await beat(wire, group + "-not", 1, "nobody")
    yield "other assignor", await join(wire, group, protocols=("sticky",), version=3)
    yield "other type", await join(wire, group, kind="connect", version=3)
    yield "leave", await leave(wire, group, (joined.member_id, None), ("nobody", None))
    yield "empty", await described(wire, group)
    yield "after leaving", await beat(wire, group, joined.generation_id, joined.member_id)


async def join_versions(wire: Wire, group: str) -> Answers:
    for version in range(2, 10):
        name = f"{group}-{version}"
        joined = await join(wire, name, version=version)
        if joined.error_code != 0:
            yield f"v{version} id", joined
            joined = await join(wire, name, joined.member_id, version=version)
        yield f"v{version}", joined
        yield f"sync v{version}", await sync(wire, name, joined, version=min(version, 5))
        yield f"described v{version}", await described(wire, name, min(version, 5))
        yield (
            f"beat v{version}",
            await beat(wire, name, joined.generation_id, joined.member_id, version=min(version, 4)),
        )


async def joining_refused(wire: Wire, group: str) -> Answers:
    yield "no group", await join(wire, "")
    yield "unknown member", await join(wire, group, "nobody")
    yield "short session", await join(wire, group, session=10)
    yield "long session", await join(wire, group, session=10_000_000)
    yield "no protocols", await join(wire, group, protocols=(), version=3)


async def static_members(wire: Wire, group: str) -> Answers:
    first = await join(wire, group, "", "i1")
    yield "joined", first
    yield "synced", await sync(wire, group, first, instance="i1")
    back = await join(wire, group, "", "i1")
    yield "back", back
    yield "back, its share", await sync(wire, group, back, leader=False, instance="i1")
    yield "older client back", await join(wire, group, "", "i1", version=5)
    yield "fenced", await beat(wire, group, first.generation_id, first.member_id, "i1")
    yield "described", await described(wire, group)
    yield "removed", await leave(wire, group, ("", "i1"), ("", "i2"))
    yield "empty", await described(wire, group)


async def two_members(wire: Wire, group: str) -> Answers:
    host, port = wire.peer
    async with await Wire.connect(f"{host}:{port}") as other:
        one = await join(wire, group, version=3)
        yield "one", one
        await sync(wire, group, one, version=3)
        task = asyncio.create_task(join(other, group, version=3))
        while (await beat(wire, group, one.generation_id, one.member_id)).error_code == 0:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.01)
        yield "beat while preparing", await beat(wire, group, one.generation_id, one.member_id)
        again = await join(wire, group, one.member_id, version=3)
        two = await asyncio.wait_for(task, 10)
        yield "again", [again.generation_id, len(again.members), again.leader == again.member_id]
        yield "two", [two.generation_id, len(two.members), two.leader == again.member_id]
        waits = asyncio.create_task(sync(other, group, two, version=3))
        yield "shares", await sync(wire, group, again, version=3)
        yield "share of the other", await asyncio.wait_for(waits, 10)


async def session_expiry(wire: Wire, group: str) -> Answers:
    joined = await join(wire, group, version=3, session=6000)  # ms: the least that Kafka takes
    await sync(wire, group, joined, version=3)
    yield "there", await described(wire, group)
    async with asyncio.timeout(30):
        while (last := await described(wire, group)).groups[0].members:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.1)
    yield "silent for too long", last
    yield "beat", await beat(wire, group, joined.generation_id, joined.member_id)


SCENES = (joining, join_versions, joining_refused, static_members, two_members, session_expiry)
