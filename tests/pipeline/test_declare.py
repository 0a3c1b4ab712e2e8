"""Topics are made once, and a start on topics of another shape is refused with the difference."""

import pytest

from pipeline.declare import TopicMismatch, declare
from pipeline.log import TopicPartition
from pipeline.memory import MemoryCluster
from pipeline.topics import Topics
from tests.pipeline.contract.stand import WallClock


async def test_every_topic_is_made_and_a_second_start_finds_them() -> None:
    log, topics = MemoryCluster(WallClock()).connect(), Topics()
    await declare(log, topics)
    await declare(log, topics)
    described = await log.admin.describe_topics()
    assert described == {spec.name: spec for spec in topics.all()}
    assert await log.admin.end_offsets([TopicPartition("hr.tokens", 31)])


async def test_each_difference_is_named_with_its_topic() -> None:
    log = MemoryCluster(WallClock()).connect()
    await declare(log, Topics())
    with pytest.raises(TopicMismatch) as caught:
        await declare(log, Topics(tokens_partitions=16, requests_retention_ms=1))
    text = str(caught.value)
    assert "hr.tokens has 32 partitions, declared 16" in text
    assert "hr.requests has retention.ms=604800000, declared 1" in text
    assert "hr.status" not in text


async def test_another_prefix_is_another_system() -> None:
    log = MemoryCluster(WallClock()).connect()
    await declare(log, Topics())
    await declare(log, Topics(prefix="two", tokens_partitions=16))
    assert len(await log.admin.describe_topics()) == 2 * len(Topics().all())
