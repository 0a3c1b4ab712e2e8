"""Topics and offsets are told as they are."""

from pipeline.log import (
    Commit,
    Log,
    Outgoing,
    TopicPartition,
    TopicSpec,
)
from tests.pipeline.contract.stand import new_name, topic, write


class Questions:
    async def test_the_first_offset_at_or_after_a_time(self, log: Log) -> None:
        name = await topic(log, 2)
        now = log.clock.ms()
        await write(
            log, *(Outgoing(name, b"v", None, 0, timestamp=now + ms) for ms in (0, 100, 200))
        )
        at, empty = TopicPartition(name, 0), TopicPartition(name, 1)
        ask = log.admin.offsets_for_time
        assert await ask({at: now - 1, empty: now}) == {at: 0, empty: None}
        assert await ask({at: now}) == {at: 0}
        assert await ask({at: now + 1}) == {at: 1}
        assert await ask({at: now + 200}) == {at: 2}
        assert await ask({at: now + 201}) == {at: None}

    async def test_start_and_end_offsets(self, log: Log) -> None:
        name = await topic(log, 2)
        await write(log, *(Outgoing(name, b"v", partition=0) for _ in range(3)))
        both = [TopicPartition(name, 0), TopicPartition(name, 1)]
        assert await log.admin.start_offsets(both) == {both[0]: 0, both[1]: 0}
        assert await log.admin.end_offsets(both) == {both[0]: 3, both[1]: 0}

    async def test_topics_are_described_as_they_were_made(self, log: Log) -> None:
        name = await topic(log, 3, retention_ms="3600000", cleanup_policy="compact")
        spec = (await log.admin.describe_topics([name, "nowhere"]))[name]
        assert (spec.name, spec.partitions, spec.replication) == (name, 3, 1)
        assert spec.configs["retention.ms"] == "3600000"
        assert spec.configs["cleanup.policy"] == "compact"

    async def test_making_a_topic_twice_changes_nothing(self, log: Log) -> None:
        name = await topic(log, 2)
        await write(log, Outgoing(name, b"v", partition=0))
        await log.admin.create_topics([TopicSpec(name, 9), TopicSpec(f"{name}-2", 1)])
        described = await log.admin.describe_topics([name, f"{name}-2"])
        assert {each: spec.partitions for each, spec in described.items()} == {
            name: 2,
            f"{name}-2": 1,
        }
        assert await log.admin.end_offsets([TopicPartition(name, 0)]) == {
            TopicPartition(name, 0): 1
        }

    async def test_offsets_of_a_group_without_members(self, log: Log) -> None:
        name, group = await topic(log, 2), new_name()
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        assert await log.admin.committed(group, [first]) == {first: None}
        await log.admin.commit(group, {first: Commit(5, "note")})
        await log.admin.commit(group, {first: Commit(3, "back"), second: Commit(1)})
        assert await log.admin.committed(group, [first, second]) == {
            first: Commit(3, "back"),
            second: Commit(1, ""),
        }
