"""The runner over real brokers: members come and go, processes are killed, and every record is done."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pipeline.clock import WallClock
from pipeline.kafka import KafkaLog, connect, options
from pipeline.lag import lag
from pipeline.log import Outgoing, Record, TopicPartition
from pipeline.member import Member, new_epoch
from pipeline.runner import Runner
from pipeline.settings import KafkaSettings, RunnerSettings, Settings
from pipeline.stage import Context, DeadLetter, Emit
from pipeline.topics import Topics

from .contract.stand import topic, write

PARTITIONS = 4
LIMIT = 90.0  # s that any wait may take on a busy machine, rebalances included


class RunnerOnBroker:
    """Inherit it, and give it a `broker`."""

    @pytest.fixture
    async def logs(self, broker: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
        """Connections, as many as the test asks for; all closed at its end."""
        monkeypatch.setattr(options, "HEARTBEAT", 200)  # so that a rebalance is quick
        opened: list[KafkaLog] = []

        async def open_log(name: str = "test") -> KafkaLog:
            settings = KafkaSettings(bootstrap=broker.bootstrap)
            opened.append(await connect(settings, WallClock(), client_id=name))
            return opened[-1]

        yield open_log
        for each in opened:
            await each.close()

    async def test_members_come_and_go_and_every_record_is_done(self, logs: Any) -> None:
        log = await logs()
        source, target = await topic(log, PARTITIONS), await topic(log, 1)
        seen: list[bytes] = []

        async def copy(record: Record, context: Context) -> AsyncIterator[Emit]:
            assert record.value is not None
            seen.append(record.value)
            await asyncio.sleep(0.01)
            yield Outgoing(target, record.value, partition=0)

        async def publish(first: int, last: int) -> None:
            numbers = range(first, last)
            await write(
                log, *(Outgoing(source, b"%d" % n, partition=n % PARTITIONS) for n in numbers)
            )

        one = member(await logs("one"), "one")
        running = {"one": (one, asyncio.create_task(run(one, copy, source)))}
        await publish(0, 200)
        await reached(log, target, 50)
        two = member(await logs("two"), "two")
        running["two"] = (two, asyncio.create_task(run(two, copy, source)))
        await publish(200, 400)
        await reached(log, target, 300)
        one.draining.set()
        await asyncio.wait_for(running["one"][1], LIMIT)
        await publish(400, 500)
        await done(log, source)
        two.draining.set()
        await asyncio.wait_for(running["two"][1], LIMIT)
        assert set(seen) == {b"%d" % n for n in range(500)}
        # a partition that moves may repeat what was in hand, and no more
        assert len(seen) - 500 <= 2 * 32

    async def test_bad_records_reach_their_topic_whole_and_the_good_ones_are_done(
        self, logs: Any
    ) -> None:
        log = await logs()
        source, target = await topic(log, 1), await topic(log, 1)
        name = f"s-{source}"
        await log.admin.create_topics([Topics().dead_spec(name)])
        big = random.Random(1).randbytes(900_000)
        headers = (("a", b"1"), ("a", b"\xff"))

        async def pick(record: Record, context: Context) -> AsyncIterator[Emit]:
            if record.value == b"good":
                yield Outgoing(target, record.value, partition=0)
            else:
                yield DeadLetter("bad")

        who = member(await logs("one"), "one")
        task = asyncio.create_task(run(who, pick, source, name=name))
        await write(
            log,
            Outgoing(source, b"good"),
            Outgoing(source, big, key=b"k", headers=headers),
            Outgoing(source, None, headers=headers),
            Outgoing(source, b"good"),
        )
        await done(log, source)
        who.draining.set()
        await asyncio.wait_for(task, LIMIT)
        reader = await log.reader({TopicPartition(Topics().dead(name), 0): "start"})
        letters: list[Record] = []
        async with asyncio.timeout(LIMIT):
            while len(letters) < 2:
                letters += await reader.poll()
        by_offset = {dict(each.headers)["__dlq.errors.offset"]: each for each in letters}
        assert (by_offset[b"1"].value, by_offset[b"1"].key) == (big, b"k")
        assert (by_offset[b"2"].value, by_offset[b"2"].key) == (None, None)
        assert all(each.headers[:2] == headers for each in letters)


def member(log: KafkaLog, name: str) -> Member:
    return Member(
        id=name,
        role="test",
        epoch=new_epoch(random.Random(name)),
        log=log,
        clock=log.clock,
        chance=random.Random(name),
        settings=Settings(
            kafka=KafkaSettings(static_members=False), runner=RunnerSettings(commit_interval=0.1)
        ),
        topics=Topics(),
        missing={},
    )


async def run(who: Member, stage: Any, source: str, name: str | None = None) -> None:
    await Runner(who, stage, topics=[source], group=f"g-{source}", name=name).run()


async def reached(log: Any, target: str, count: int) -> None:
    at = TopicPartition(target, 0)
    reader = await log.reader({at: "start"})
    async with asyncio.timeout(LIMIT):
        while await reader.position(at) < count:
            await reader.poll()
    await reader.close()


async def done(log: Any, source: str) -> None:
    """Until the group has committed everything."""
    at = [
        TopicPartition(source, number)
        for number in range((await log.admin.describe_topics([source]))[source].partitions)
    ]
    async with asyncio.timeout(LIMIT):
        while sum((await lag(log.admin, f"g-{source}", at)).values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


class TestOnTheEmbeddedBroker(RunnerOnBroker):
    @pytest.fixture
    def broker(self, embedded_broker: Any) -> Any:
        return embedded_broker


@pytest.mark.kafka
class TestOnApacheKafka(RunnerOnBroker):
    @pytest.fixture
    def broker(self, apache_kafka: Any) -> Any:
        return apache_kafka
