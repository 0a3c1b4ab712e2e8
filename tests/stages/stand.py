"""Whole roles on a memory log in virtual time: a cluster, members, a client that asks and reads."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from pipeline.log import Outgoing, Record, TopicPartition
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster, MemoryLog
from pipeline.presence import Presence
from pipeline.settings import KafkaSettings, Settings, WorkerSettings
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.topics import Topics
from schemas.codec import decode, encode, header, headers_of, tag_of
from schemas.folds import Effect, LedgerFold, SlotFold
from schemas.ids import mint, partition_of
from schemas.ledger import Cancel, LedgerRecord, Output
from schemas.models import Model
from schemas.result import Result
from schemas.tokens import Chunk, End, Open, decode_event
from schemas.work import Ready, SamplingParams
from stages.delivery.role import run as delivery
from stages.orchestration.role import run as orchestration
from workers.role import run as work

T = TypeVar("T")
MODEL = "words"
REVISION = "0" * 64
Role = Callable[[Member], Coroutine[Any, Any, None]]


def virtual(main: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    """Run a test's coroutine in virtual time, in the seed's order or asyncio's own."""
    return run_virtual(main(), chance=None if seed is None else random.Random(seed), limit=86_400)


async def worker(member: Member) -> None:
    await work(member, inline=True)


async def edge(member: Member) -> None:
    """Only says that it lives."""
    await Presence(member, await member.log.writer()).run()


ROLES: dict[str, Role] = {
    "orchestration": orchestration,
    "delivery": delivery,
    "worker": worker,
    "edge": edge,
}


@dataclass(eq=False)
class Process:
    """One life of one member."""

    member: Member
    log: MemoryLog
    task: "asyncio.Task[None]"
    ended: bool = False  # on purpose

    def kill(self) -> None:
        """kill -9: nothing more of it is written."""
        self.ended = True
        self.log.cut()
        self.task.cancel()

    async def stop(self) -> None:
        """SIGTERM: drains."""
        self.ended = True
        self.member.draining.set()
        await asyncio.wait_for(self.task, 60)


@dataclass(eq=False)
class Stand:
    partitions: int = 2
    slots: int = 2
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # of OrchestrationSettings
    worker: dict[str, Any] = field(default_factory=dict)  # of WorkerSettings

    def __post_init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.cluster = MemoryCluster(self.clock)
        self.topics = Topics(
            prefix="hr",
            requests_partitions=2,
            ledger_partitions=self.partitions,
            work_partitions=4,
            tokens_partitions=self.slots,
        )
        for spec in self.topics.all():
            self.cluster.create(spec)
        self.chance = random.Random(self.seed)
        self.log = self.cluster.connect("client")
        self.processes: list[Process] = []
        self.asked: dict[str, Ready] = {}
        self.lives = 0
        self._told: dict[str, set[bytes]] = {}
        self._looked: dict[TopicPartition, int] = {}

    async def open(self) -> "Stand":
        self.writer = await self.log.writer()
        await self.register(MODEL)
        return self

    async def register(self, name: str, revision: str = REVISION) -> None:
        model = Model(name=name, revision=revision, format="null", context=4096, engine="null")
        await self.send(self.topics.models, encode(model), name.encode())

    def start(self, role: str, name: str = "", *, model: str = MODEL, **worker: Any) -> Process:
        """A member of its own process."""
        self.lives += 1
        name = name or f"{role}-{self.lives}"
        chance = random.Random(f"{self.seed}/{self.lives}")
        log = self.cluster.connect(f"{name}/{self.lives}")
        settings = Settings(
            model=model,
            kafka=KafkaSettings(static_members=False),
            worker=WorkerSettings(engine="null", **{**self.worker, **worker}),
        )
        for key, value in self.settings.items():
            setattr(settings.orchestration, key, value)
        member = Member(
            id=name,
            role=role,
            epoch=new_epoch(chance),
            log=log,
            clock=self.clock,
            chance=chance,
            settings=settings,
            topics=self.topics,
        )
        process = Process(member, log, asyncio.create_task(ROLES[role](member), name=name))
        self.processes.append(process)
        return process

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> int:
        placed = await self.writer.send(Outgoing(topic, value, key, partition, headers))
        return placed.offset

    def ready(self, tokens: int = 8, *, lane: str = "silver", **fields: Any) -> Ready:
        """What ingress would make of a question; its tokens depend on its seed."""
        now = self.clock.ms()
        request_id = mint(now, self.chance)
        base = Ready(
            request_id=request_id,
            kind="chat",
            tenant="default",
            lane=lane,
            model=MODEL,
            revision=REVISION,
            plan="exact",
            prompt_ids=[1, 2, 3],
            max_tokens=tokens,
            sampling=SamplingParams(seed=self.chance.getrandbits(32)),
            accepted=now,
            deadline=now + 3_600_000,
            created=now,
            body_hash="",
            entered={"accepted": now, "ready": now},
        )
        return msgspec.structs.replace(base, **fields)

    async def ask(self, tokens: int = 8, **fields: Any) -> str:
        """Publish a ready record as ingress does."""
        ready = self.ready(tokens, **fields)
        await self.publish(ready)
        return ready.request_id

    async def publish(self, ready: Ready) -> None:
        self.asked[ready.request_id] = ready
        headers = headers_of(
            tag_of(ready),
            request_id=ready.request_id,
            tenant=ready.tenant,
            lane=ready.lane,
            deadline=ready.deadline,
        )
        key = ready.request_id.encode()
        await self.send(self.topics.ready(ready.lane), encode(ready), key, headers)

    async def cancel(self, request_id: str) -> None:
        record = Cancel(
            request_id=request_id, why="asked", by="test", tenant="default", lane="silver"
        )
        headers = headers_of(tag_of(record), request_id=request_id)
        await self.send(self.topics.ledger, encode(record), request_id.encode(), headers)

    def dump(self) -> str:
        """Every record of the path, for a test that failed."""
        lines = []
        for topic in (
            *(self.topics.ready(lane) for lane in ("gold", "silver", "bronze")),
            self.topics.ledger,
            self.topics.work,
            self.topics.tokens,
            self.topics.results,
            self.topics.control,
        ):
            for record in self.read(topic):
                kind = header(record.headers, "type") or b""
                attempt = header(record.headers, "attempt") or b""
                key = (record.key or b"")[-6:].decode()
                place = f"{topic}[{record.partition}]@{record.offset}"
                lines.append(
                    (record.timestamp, f"{place} {key} {kind.decode()} {attempt.decode()}")
                )
        return "\n".join(f"{time - self.clock.ms():>8} {line}" for time, line in sorted(lines))

    # what a reader sees

    def read(self, topic: str) -> list[Record]:
        """Everything that is in a topic now, by partition and offset."""
        found: list[Record] = []
        for number in range(self.cluster.count(topic)):
            partition = self.cluster.partition(TopicPartition(topic, number))
            found += partition.read(partition.start, 1 << 30)
        return found

    def results(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for record in self.read(self.topics.results):
            result = decode(record.value, Result)
            found.setdefault(result.id, []).append(result)
        return found

    def ledger(self, request_id: str) -> list[tuple[LedgerRecord, bool]]:
        """Its ledger records, and whether each counts."""
        fold, found = LedgerFold(), []
        for record in self.read(self.topics.ledger):
            if record.key == request_id.encode():
                message = decode(record.value, LedgerRecord)
                kind = tag_of(message).partition("/")[0]
                attempt = getattr(message, "attempt", 0)
                found.append((message, fold.apply(kind, attempt, record.offset)))
        return found

    def outcome(self, request_id: str) -> Output:
        """The output that counts."""
        return next(
            message
            for message, counts in self.ledger(request_id)
            if counts and isinstance(message, Output)
        )

    def stream(self, request_id: str) -> tuple[list[int], End | None]:
        """What a client sees: tokens by the slot fold, and the closing event."""
        fold, ids, end = SlotFold(), [], None
        for record in self.read(self.topics.tokens):
            if record.key != request_id.encode():
                continue
            event = decode_event(record.value)
            if isinstance(event, Open):
                fold.open(event.attempt)
            elif isinstance(event, Chunk):
                effect = fold.chunk(event.attempt, event.choice, event.k, len(event.ids))
                assert effect is not Effect.HOLE, f"a hole before {event}"
                if effect is Effect.TOKENS:
                    ids += event.ids
            elif isinstance(event, End) and fold.end() is Effect.CLOSED:
                end = event
        return ids, end

    def stream_opens(self, request_id: str) -> list[Open]:
        """Every `open` of a worker in its slot."""
        opens = []
        for record in self.read(self.topics.tokens):
            if record.key == request_id.encode() and header(record.headers, "type") == b"open/1":
                event = decode_event(record.value)
                assert isinstance(event, Open)
                if not event.silent:
                    opens.append(event)
        return opens

    async def until(self, what: Callable[[], bool], limit: float = 120.0) -> None:
        """Wait for something that can be seen in the log."""
        async with asyncio.timeout(limit):
            while not what():
                for process in self.processes:
                    if process.task.done() and not process.ended:
                        process.task.result()
                        raise AssertionError(f"{process.member.id} has ended by itself")
                await asyncio.sleep(0.01)

    async def ended(self, *request_ids: str, limit: float = 120.0) -> None:
        """Wait until these (none: all that were asked) have a result and a closing event."""
        wanted = request_ids or tuple(self.asked)

        def all_ended() -> bool:
            self._look()
            return all(self._told.get(each) == {b"result/1", b"end/1"} for each in wanted)

        await self.until(all_ended, limit)

    def _look(self) -> None:
        """Which requests have a result and a closing event, from what is new."""
        for topic in (self.topics.results, self.topics.tokens):
            for number in range(self.cluster.count(topic)):
                at = TopicPartition(topic, number)
                partition = self.cluster.partition(at)
                for record in partition.read(self._looked.get(at, 0), 1 << 30):
                    kind = header(record.headers, "type")
                    if kind in (b"result/1", b"end/1"):
                        self._told.setdefault((record.key or b"").decode(), set()).add(kind)
                self._looked[at] = partition.end

    def check(self) -> None:
        """One outcome each; stream = result = ledger; nothing twice, nothing missing."""
        results = self.results()
        for request_id in self.asked:
            same = results[request_id]
            assert len({(each.outcome, each.output) for each in same}) == 1, same
            ids, end = self.stream(request_id)
            result = same[0]
            told = [token for choice in result.choices for token in choice.token_ids]
            assert end is not None and end.tokens == len(told)
            assert end.outcome == result.outcome
            if ids or not told:
                assert ids == told
            output = self.outcome(request_id)
            assert output.outcome == result.outcome
            assert [t for said in output.choices for t in said.ids] == told

    async def close(self) -> None:
        for process in self.processes:
            if not process.task.done():
                process.task.cancel()
        await asyncio.gather(*(p.task for p in self.processes), return_exceptions=True)


def on_stand(
    test: Callable[[Stand], Awaitable[None]], *, seed: int | None = None, **kwargs: Any
) -> None:
    """Run one test on a stand of its own."""

    async def main() -> None:
        stand = await Stand(seed=seed or 0, **kwargs).open()
        try:
            await test(stand)
        finally:
            await stand.close()

    virtual(main, seed)


def slot_of(stand: Stand, request_id: str) -> int:
    return partition_of(request_id, stand.slots)
