"""An edge over a memory log and real sockets; what lies behind it is written by hand."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import msgspec

from pipeline.log import Outgoing, Placed, Record, TopicPartition, Writer
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster
from pipeline.settings import EdgeSettings, Settings, StoreSettings
from pipeline.topics import Topics
from schemas.codec import encode, headers_of, tag_of
from schemas.errors import Error
from schemas.ids import partition_of
from schemas.intake import parse_body
from schemas.ledger import Output, Said, Usage
from schemas.models import Model
from schemas.request import Request
from schemas.result import Choice, Result, Timings
from schemas.status import OrchestratorFigures, Status, WorkerFigures
from schemas.tokens import Admitted, Chunk, End, Logprob, Open
from stages.edge import role

TOPICS = Topics(requests_partitions=2, ledger_partitions=2, work_partitions=1, tokens_partitions=8)
MODEL = "tiny"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
WAIT = 10.0  # s that any wait of a test may take


T = TypeVar("T")


async def eventually(look: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `look` finds, once it finds something."""
    async with asyncio.timeout(2 * WAIT):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.02)


async def gone(*tasks: asyncio.Task[Any]) -> None:
    """Wait for cancelled tasks; one that does not end is shown with all that still runs."""
    _, left = await asyncio.wait(tasks, timeout=2 * WAIT)
    if left:
        for task in asyncio.all_tasks():
            task.print_stack()
    assert not left


class Asked:
    """A request as the edge published it, and what is said in answer."""

    def __init__(self, back: "Backstage", record: Record) -> None:
        assert record.value is not None and record.key is not None
        self.back = back
        self.record = record
        self.request: Request = parse_body(record.value, "record").request
        self.id = record.key.decode()
        self.headers = {name: value.decode() for name, value in record.headers}
        self.tenant = self.headers["tenant"]
        self.said: list[tuple[int, str]] = []
        self.finish: str | None = None

    async def slot(self, event: Admitted | Open | Chunk | End) -> Placed:
        headers = headers_of(
            tag_of(event), request_id=self.id, tenant=self.tenant, lane=self.headers["lane"]
        )
        return await self.back.send(TOPICS.tokens, self.id, encode(event), headers)

    async def admit(self) -> Placed:
        return await self.slot(
            Admitted(
                request_id=self.id,
                model=self.request.model,
                lane=self.headers["lane"],
                prompt_tokens=3,
                created=0,
                kind=self.request.kind,
            )
        )

    async def open(self, attempt: int = 1, silent: bool = False) -> Placed:
        return await self.slot(
            Open(request_id=self.id, attempt=attempt, worker="w", epoch="e", silent=silent)
        )

    async def say(
        self,
        *pieces: str,
        attempt: int = 1,
        finish: str | None = None,
        k: int | None = None,
        logprobs: list[Logprob] | None = None,
        counts: bool = True,
    ) -> Placed:
        at = len(self.said) if k is None else k
        ids = [100 + at + i for i in range(len(pieces))]
        if counts:
            self.said += zip(ids, pieces, strict=True)
            self.finish = finish
        return await self.slot(
            Chunk(
                k=at,
                ids=ids,
                attempt=attempt,
                pieces=list(pieces),
                finish=finish,
                logprobs=logprobs,
            )
        )

    async def end(
        self,
        outcome: str = "completed",
        *,
        error: Error | None = None,
        rest: Sequence[str] = (),
        attempt: int = 1,
        with_end: bool = True,
    ) -> Result:
        """Output, result and end, as worker and delivery write them. `rest`: only in the output."""
        self.said += [(900 + i, piece) for i, piece in enumerate(rest)]
        if rest:
            self.finish = "stop"
        ids = [token for token, _ in self.said]
        pieces = [piece for _, piece in self.said]
        usage = Usage(prompt_tokens=3, completion_tokens=len(ids), total_tokens=3 + len(ids))
        output = Output(
            request_id=self.id,
            attempt=attempt,
            outcome=outcome,
            error=error,
            kind=self.request.kind,
            model=self.request.model,
            choices=[Said(index=0, ids=ids, pieces=pieces, finish_reason=self.finish)],
            usage=usage,
            tenant=self.tenant,
            lane=self.headers["lane"],
            created=0,
            accepted=0,
            finished=0,
        )
        placed = await self.back.send(TOPICS.ledger, self.id, encode(output))
        result = Result(
            id=self.id,
            outcome=outcome,
            error=error,
            kind=self.request.kind,
            model=self.request.model,
            choices=[
                Choice(index=0, text="".join(pieces), token_ids=ids, finish_reason=self.finish)
            ],
            usage=usage,
            timings=Timings(ingress=1.5, queue=2.0),
            attempts=attempt,
            tenant=self.tenant,
            lane=self.headers["lane"],
            correlation_id=self.headers.get("correlation-id"),
            service_tier=self.request.service_tier,
            metadata=self.request.metadata,
            echoed=self.request.echoed,
            output=placed.offset,
        )
        await self.back.send(TOPICS.results, self.id, encode(result))
        if with_end:
            await self.slot(
                End(request_id=self.id, outcome=outcome, tokens=len(ids), output=placed.offset)
            )
        return result

    async def answer(self, *pieces: str) -> None:
        """The whole of it, two tokens a chunk."""
        await self.admit()
        await self.open()
        for i in range(0, len(pieces), 2):
            some = pieces[i : i + 2]
            await self.say(*some, finish="stop" if i + 2 >= len(pieces) else None)
        await self.end()


class WallClock:
    def ms(self) -> int:
        return time.time_ns() // 1_000_000


class Backstage:
    """The log behind the edges, and everybody else on it."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster(WallClock())
        for spec in TOPICS.all():
            self.cluster.create(spec)
        self.log = self.cluster.connect("backstage")
        self.worker = WorkerFigures(
            model=MODEL,
            revision="r",
            plan="exact",
            device_type="cpu",
            inbox=0,
            position=0,
            slots=8,
        )
        self.orchestrator = OrchestratorFigures(rate={"silver": 10.0}, sampled=0)
        self.counter = 0
        self.alive = True
        self.writer: Writer
        self.requests: asyncio.Queue[Asked] = asyncio.Queue()

    async def send(
        self, topic: str, key: str, value: bytes, headers: Any = (), partition: int | None = None
    ) -> Placed:
        record = Outgoing(topic, value, key.encode(), partition=partition, headers=headers)
        async with asyncio.timeout(WAIT):  # not wait_for, which may swallow a cancellation
            return await self.writer.send(record)

    async def beat(self) -> None:
        """One status of the worker and of the orchestrator."""
        self.counter += 1
        for member, role_name, figures in (
            ("worker-1", "worker", {"worker": self.worker}),
            ("orchestration-1", "orchestration", {"orchestrator": self.orchestrator}),
        ):
            status = Status(
                member=member, role=role_name, epoch="e", counter=self.counter, time=0, **figures
            )
            await self.send(TOPICS.status, member, encode(status), partition=0)

    async def run(self) -> None:
        places: dict[TopicPartition, int | str] = {
            TopicPartition(TOPICS.requests, p): "start" for p in range(TOPICS.requests_partitions)
        }
        reader = await self.log.reader(places)
        while True:
            for record in await reader.poll(timeout=0.5):
                self.requests.put_nowait(Asked(self, record))

    async def heart(self) -> None:
        while True:
            if self.alive:
                await self.beat()
            await asyncio.sleep(0.1)

    async def asked(self) -> Asked:
        return await asyncio.wait_for(self.requests.get(), WAIT)

    async def serve(self, script: Callable[[Asked], Coroutine[Any, Any, None]]) -> None:
        """Answer every request by `script`."""
        while True:
            await script(await self.requests.get())

    async def records(self, topic: str) -> list[Record]:
        """Everything that is in a topic now."""
        found: list[Record] = []
        for number in range(self.cluster.count(topic)):
            at = TopicPartition(topic, number)
            end = (await self.log.admin.end_offsets([at]))[at]
            reader = await self.log.reader({at: "start"})
            while await reader.position(at) < end:
                found += await reader.poll(timeout=0.1)
            await reader.close()
        return found


class EdgeUnderTest:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.task = asyncio.create_task(role.run(member))

    @property
    def url(self) -> str:
        assert self.member.http is not None
        return self.member.http

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, **more: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=WAIT, **more)

    async def ready(self) -> None:
        async def look() -> bool:
            if self.task.done():
                self.task.result()
            return self.member.ready

        await eventually(look)

    async def stop(self) -> None:
        self.member.draining.set()
        await asyncio.wait_for(self.task, WAIT)


@asynccontextmanager
async def backstage() -> AsyncIterator[Backstage]:
    back = Backstage()
    back.writer = await back.log.writer()
    model = Model(name=MODEL, revision="r", format="null", context=512, created=1_700_000_000_000)
    await back.send(TOPICS.models, MODEL, encode(model), partition=0)
    tasks = [asyncio.create_task(back.run()), asyncio.create_task(back.heart())]
    try:
        yield back
    finally:
        for task in tasks:
            task.cancel()
        await gone(*tasks)


@asynccontextmanager
async def an_edge(
    back: Backstage,
    name: str = "edge-1",
    *,
    keys: dict[str, str] | None = None,
    store: str = "",
    **edge: Any,
) -> AsyncIterator[EdgeUnderTest]:
    chance = random.Random(name)
    settings = Settings(
        edge=EdgeSettings(**({"port": 0} | edge)), keys=keys or {}, store=StoreSettings(url=store)
    )
    settings.runner.drain_limit = 4.0
    member = Member(
        id=name,
        role="edge",
        epoch=new_epoch(chance),
        log=back.cluster.connect(name),
        clock=back.cluster.clock,
        chance=chance,
        settings=settings,
        topics=TOPICS,
    )
    under = EdgeUnderTest(member)
    try:
        await under.ready()
        yield under
    finally:
        under.task.cancel()
        await gone(under.task)


def events_of(text: str) -> list[dict[str, str]]:
    """SSE blocks as field → value; comments are left out."""
    blocks = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            blocks.append(dict(line.split(": ", 1) for line in lines))
    return blocks


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The JSON of every data line but [DONE]."""
    return [
        msgspec.json.decode(event["data"])
        for event in events_of(text)
        if event.get("data", "[DONE]") != "[DONE]"
    ]


def said_in(text: str) -> str:
    return "".join(
        choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        for chunk in chunks_of(text)
        for choice in chunk.get("choices", [])
    )


def foreign_name(request_id: str) -> str:
    """An edge whose own slots do not hold the request."""
    from stages.edge.tail import own_slots

    slot = partition_of(request_id, TOPICS.tokens_partitions)
    return next(
        name
        for name in (f"edge-{i}" for i in range(2, 100))
        if slot not in own_slots(name, TOPICS.tokens_partitions)
    )
