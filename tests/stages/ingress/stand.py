"""One ingress process on a memory log in virtual time, with a publisher."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from pipeline.log import Outgoing, Placed, Record, TopicPartition
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster
from pipeline.settings import Settings
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.topics import LANES, Topics
from schemas.codec import decode, encode
from schemas.ids import mint
from schemas.ledger import Output
from schemas.models import Model
from schemas.tokens import Admitted, decode_event
from schemas.work import Ready
from stages.ingress.role import run

T = TypeVar("T")
TOPICS = Topics(requests_partitions=2, ledger_partitions=2, tokens_partitions=2)
MODEL = Model(
    name="words", revision="r1", format="null", context=1000, engine="null", bytes_per_token=1024
)
HELLO: dict[str, Any] = {"model": "words", "messages": [{"role": "user", "content": "hello there"}]}


def virtual(main: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    return run_virtual(main(), chance=None if seed is None else random.Random(seed), limit=36_000)


class Stand:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.cluster = MemoryCluster(self.clock)
        for spec in TOPICS.all():
            self.cluster.create(spec)
        self.chance = random.Random(1)
        self.log = self.cluster.connect("publisher")
        self.settings = Settings()
        self.lives = 0

    async def begin(self) -> None:
        self.writer = await self.log.writer()
        await self.register(MODEL)

    async def register(self, model: Model) -> None:
        await self.writer.send(Outgoing(TOPICS.models, encode(model), model.name.encode(), 0))

    def mint(self, off_ms: int = 0) -> str:
        return mint(self.clock.ms() + off_ms, self.chance)

    async def publish(
        self, body: dict[str, Any] | bytes | None, *, partition: int = 0, **record: Any
    ) -> Placed:
        value = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = tuple((name, text) for name, text in record.pop("headers", {}).items())
        return await self.writer.send(
            Outgoing(TOPICS.requests, value, partition=partition, headers=headers, **record)
        )

    def everything(self, topic: str) -> list[Record]:
        parts = [
            self.cluster.partition(TopicPartition(topic, p)).records
            for p in range(self.cluster.count(topic))
        ]
        return [record for part in parts for record in part]

    def ready(self) -> list[Ready]:
        return [
            decode(r.value, Ready) for lane in LANES for r in self.everything(TOPICS.ready(lane))
        ]

    def outputs(self) -> list[Output]:
        return [decode(record.value, Output) for record in self.everything(TOPICS.ledger)]

    def admitted(self) -> list[Admitted]:
        events = [decode_event(record.value) for record in self.everything(TOPICS.tokens)]
        return [event for event in events if isinstance(event, Admitted)]

    def letters(self) -> list[Record]:
        return self.everything(TOPICS.dead("ingress"))

    async def settle(self) -> None:
        """Virtual time for everything published so far to be decided, tries included."""
        await asyncio.sleep(10)

    @contextlib.asynccontextmanager
    async def ingress(self) -> AsyncIterator[Member]:
        self.lives += 1
        chance = random.Random(self.lives)
        member = Member(
            id="ingress-1",
            role="ingress",
            epoch=new_epoch(chance),
            log=self.cluster.connect(f"ingress-1/{self.lives}"),
            clock=self.clock,
            chance=chance,
            settings=self.settings,
            topics=TOPICS,
        )
        task = asyncio.get_running_loop().create_task(run(member))
        try:
            yield member
        finally:
            member.draining.set()
            await asyncio.wait_for(task, 60)

    async def outcome(self, body: dict[str, Any], **record: Any) -> Ready | Output:
        """What one ingress makes of one record."""
        async with self.ingress():
            await self.publish(body, **record)
            await self.settle()
        made: list[Ready | Output] = [*self.ready(), *self.outputs()]
        (found,) = made
        return found


def ask(body: dict[str, Any], **record: Any) -> Ready | Output:
    """Publish one body; what became of it."""

    async def main() -> Ready | Output:
        stand = Stand()
        await stand.begin()
        return await stand.outcome(body, **record)

    return virtual(main)


def ready(body: dict[str, Any], **record: Any) -> Ready:
    found = ask(body, **record)
    assert isinstance(found, Ready), found
    return found


def refused(body: dict[str, Any], **record: Any) -> Output:
    found = ask(body, **record)
    assert isinstance(found, Output), found
    assert found.outcome == "refused" and found.attempt == 0
    return found
