"""For tests of stages: a member on a memory log, and a stage run over what is there."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from .log import TopicPartition
from .member import Member, new_epoch
from .memory import MemoryCluster
from .runner import Runner
from .settings import Settings
from .stage import Stage
from .topics import Topics


def memory_member(
    cluster: MemoryCluster, role: str, *, id: str | None = None, settings: Settings | None = None
) -> Member:
    """A ready member of its own connection; its chance is the same for the same id."""
    name = id or f"{role}-1"
    settings = settings or Settings()
    chance = random.Random(name)
    return Member(
        id=name,
        role=role,
        epoch=new_epoch(chance),
        log=cluster.connect(name),
        clock=cluster.clock,
        chance=chance,
        settings=settings,
        topics=Topics.of(settings),
        missing={},
    )


async def run_until_idle(
    cluster: MemoryCluster,
    stage: Stage,
    *,
    topics: Sequence[str],
    kind: Any,
    name: str | None = None,
    limit: float = 3600.0,
    **options: Any,
) -> None:
    """Run `stage` until every record that is there has been completed and committed; then drain.

    Raises TimeoutError after `limit` seconds: some record never completes.
    """
    name = name or str(getattr(stage, "__name__", type(stage).__name__))
    member = memory_member(cluster, name)
    runner = Runner(member, stage, topics=topics, group=name, kind=kind, **options)
    at = [
        TopicPartition(topic, number) for topic in topics for number in range(cluster.count(topic))
    ]
    ends = {each: cluster.partition(each).end for each in at}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runner.run())
        async with asyncio.timeout(limit):
            while any(_committed(cluster, name, each) < ends[each] for each in at):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        member.draining.set()


def _committed(cluster: MemoryCluster, group: str, at: TopicPartition) -> int:
    commit = cluster.group(group).offsets.get(at)
    return 0 if commit is None else commit.offset
