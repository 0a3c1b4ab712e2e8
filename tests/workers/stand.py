"""A worker with the null engine on a memory log in virtual time: what tests of the process stand on."""

import asyncio
import contextlib
import random
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from pipeline.log import Outgoing, Placed, Record, TopicPartition
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster
from pipeline.settings import Settings, WorkerSettings
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.topics import Topics
from schemas.codec import decode, encode, headers_of, tag_of
from schemas.ids import mint, partition_of
from schemas.ledger import LedgerRecord, Output, Released
from schemas.models import Model
from schemas.status import OrchestratorFigures, Status, WorkerFigures
from schemas.tokens import Chunk, Event, Open, decode_event
from schemas.work import Order, Ready, SamplingParams
from workers.inbox import inbox_of
from workers.null import token, token_key
from workers.role import run

T = TypeVar("T")
TOPICS = Topics(ledger_partitions=2, work_partitions=4, tokens_partitions=2)
MODEL = Model(name="m", revision="r", format="null", context=8192, engine="null")
WORKER = "worker-1"
BOSS, BOSS_EPOCH = "orchestration-1", "0rche5tra"


def virtual(main: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    return run_virtual(main(), chance=None if seed is None else random.Random(seed), limit=36_000)


class Stand:
    """The other side: orchestrator, clients, and a look at every topic."""

    def __init__(self, **worker: Any) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.cluster = MemoryCluster(self.clock)
        for spec in TOPICS.all():
            self.cluster.create(spec)
        self.log = self.cluster.connect("stand")
        self.chance = random.Random(1)
        self.settings = Settings(worker=WorkerSettings(engine="null", **worker))
        self.sent = 0
        self.ids = 0

    async def write(
        self, topic: str, message: msgspec.Struct | bytes | None, **place: Any
    ) -> Placed:
        if not hasattr(self, "writer"):
            self.writer = await self.log.writer("stand")
        value = encode(message) if isinstance(message, msgspec.Struct) else message
        return await self.writer.send(Outgoing(topic, value, **place))

    async def begin(self) -> None:
        """The registry, and one live orchestrator."""
        await self.write(TOPICS.models, MODEL, key=b"m", partition=0)
        asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        counter = 0
        while True:
            counter += 1
            status = Status(
                member=BOSS,
                role="orchestration",
                epoch=BOSS_EPOCH,
                counter=counter,
                time=self.clock.ms(),
                orchestrator=OrchestratorFigures(),
            )
            await self.write(TOPICS.status, status, key=BOSS.encode(), partition=0)
            await asyncio.sleep(1)

    def member(self, name: str = WORKER) -> Member:
        chance = random.Random(f"{name}{self.ids}")
        return Member(
            id=name,
            role="worker",
            epoch=new_epoch(chance),
            log=self.cluster.connect(name),
            clock=self.clock,
            chance=chance,
            settings=self.settings,
            topics=TOPICS,
        )

    def ready(self, **more: Any) -> Ready:
        now = self.clock.ms()
        given: dict[str, Any] = {
            "request_id": mint(now, self.chance),
            "kind": "chat",
            "tenant": "t",
            "lane": "silver",
            "model": "m",
            "revision": "r",
            "plan": "exact",
            "prompt_ids": [1, 2, 3],
            "max_tokens": 20,
            "sampling": SamplingParams(seed=7),
            "accepted": now,
            "deadline": now + 600_000,
            "created": now,
            "body_hash": "h",
        }
        return Ready(**{**given, **more})

    def order(self, to: Member, ready: Ready | None = None, **more: Any) -> Order:
        ready = ready or self.ready()
        if "count" not in more:
            self.sent += 1
        given: dict[str, Any] = {
            "request_id": ready.request_id,
            "attempt": 1,
            "worker": to.id,
            "epoch": to.epoch,
            "orchestrator": BOSS,
            "orchestrator_epoch": BOSS_EPOCH,
            "count": self.sent,
            "slot_from": 0,
            "ready": ready,
        }
        return Order(**{**given, **more})

    async def send(self, order: Order) -> Placed:
        headers = headers_of(
            tag_of(order), request_id=order.request_id, attempt=order.attempt, tenant="t"
        )
        partition = inbox_of(order.worker, TOPICS.work_partitions)
        key = order.request_id.encode()
        return await self.write(TOPICS.work, order, key=key, partition=partition, headers=headers)

    def everything(self, topic: str) -> list[Record]:
        parts = [
            self.cluster.partition(TopicPartition(topic, p)).records
            for p in range(self.cluster.count(topic))
        ]
        return [record for part in parts for record in part]

    def ledger(self, request_id: str) -> list[Any]:
        return [
            decode(record.value, LedgerRecord)
            for record in self.everything(TOPICS.ledger)
            if record.key == request_id.encode()
        ]

    def slot(self, request_id: str) -> list[Event]:
        return [
            decode_event(record.value)
            for record in self.everything(TOPICS.tokens)
            if record.key == request_id.encode()
        ]

    async def said(self, request_id: str, event: Open | Chunk) -> Placed:
        """Write into a slot what an earlier attempt said."""
        key = request_id.encode()
        partition = partition_of(key, TOPICS.tokens_partitions)
        return await self.write(TOPICS.tokens, event, key=key, partition=partition)

    def status(self, name: str = WORKER) -> Status | None:
        last = [r for r in self.everything(TOPICS.status) if r.key == name.encode()]
        return decode(last[-1].value, Status) if last else None

    async def until(self, holds: Callable[[], Any], limit: float = 60.0) -> Any:
        """Wait in virtual time for something to be so."""
        async with asyncio.timeout(limit):
            while not (found := holds()):  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.01)
        return found

    async def end(self, request_id: str) -> Output | Released:
        """The first output or release of a request."""

        def ended() -> Output | Released | None:
            for each in self.ledger(request_id):
                if isinstance(each, Output | Released):
                    return each
            return None

        found: Output | Released = await self.until(ended)
        return found


@contextlib.asynccontextmanager
async def worker(stand: Stand, member: Member | None = None) -> AsyncIterator[Member]:
    """A running worker that has offered credits."""
    member = member or stand.member()
    task = asyncio.get_running_loop().create_task(run(member, inline=True))

    def offered() -> bool:
        if task.done():
            task.result()
        status = stand.status(member.id)
        return (
            status is not None
            and status.epoch == member.epoch
            and status.worker is not None
            and status.worker.credits.get(BOSS_EPOCH, 0) > 0
        )

    await stand.until(offered)
    try:
        yield member
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def words(chunks: list[Event]) -> tuple[list[int], list[str]]:
    """Ids and pieces of the chunks, in the order of their index."""
    said = sorted((c for c in chunks if isinstance(c, Chunk)), key=lambda chunk: chunk.k)
    return [i for c in said for i in c.ids], [p for c in said for p in c.pieces]


def answer(prompt: list[int], count: int, seed: int = 7) -> list[int]:
    key = token_key(array("I", prompt).tobytes(), seed, 0)
    return [token(key, k) for k in range(count)]


def listed(stand: Stand) -> list[tuple[str, int]]:
    return status(stand).running


def status(stand: Stand) -> WorkerFigures:
    said = stand.status()
    assert said is not None and said.worker is not None
    return said.worker
