"""What the parts of one orchestrator share: who we are, the books, the queue, the fleet, one writer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline import tracing
from pipeline.log import Outgoing, Placed, Writer
from pipeline.member import Member
from pipeline.members import Members
from pipeline.table import Table
from schemas.codec import encode, headers_of, tag_of
from schemas.errors import Error
from schemas.ids import partition_of
from schemas.ledger import Cancel, Lease, Output
from schemas.models import Model

from .books import Books, Case
from .fleet import Fleet, Hand
from .queue import ReadyQueue, Waiting
from .slots import SlotEnds
from .subject import Subject, of_ready


@dataclass(slots=True, eq=False)
class Ending:
    """How this orchestrator means to end a request without a worker."""

    subject: Subject
    outcome: str
    error: Error | None
    complete: Callable[[], None] | None = None  # of the record that asked for it
    trace: tuple[tuple[str, bytes], ...] = ()  # headers that the ledger records carry on

    @classmethod
    def of(cls, item: Waiting, outcome: str, error: Error) -> "Ending":
        """Of a request that waits here: its span ends with it."""
        item.span.end()
        subject, trace = of_ready(item.ready, item.place), tracing.headers_of(item.span)
        return cls(subject, outcome, error, trace=trace)


@dataclass(slots=True, eq=False)
class Pending:
    """A lease that was written and not read back yet."""

    nonce: str
    partition: int
    item: Waiting | None = None  # for a worker
    hand: Hand | None = None
    ending: Ending | None = None  # or for ourselves


@dataclass(slots=True, eq=False)
class Desk:
    member: Member
    writer: Writer
    dead_writer: Writer
    members: Members
    models: Table[Model]
    fleet: Fleet
    queue: ReadyQueue
    slots: SlotEnds
    books: dict[int, Books] = field(default_factory=dict)  # ledger partition → its books
    pending: dict[str, Pending] = field(default_factory=dict)  # by request id
    _none_pending: asyncio.Event = field(default_factory=asyncio.Event)
    failed: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def group(self) -> str:
        return self.member.topics.group("orchestration")

    @property
    def ready_group(self) -> str:
        """It has no members: only offsets of what was read by assignment."""
        return self.member.topics.group("orchestration.ready")

    def partition(self, request_id: str) -> int:
        return partition_of(request_id, self.member.topics.ledger_partitions)

    def case(self, request_id: str) -> Case | None:
        books = self.books.get(self.partition(request_id))
        return books.cases.get(request_id) if books else None

    def owns(self, partition: int) -> bool:
        """Ours, and its fold has reached the end captured after the assignment."""
        books = self.books.get(partition)
        return books is not None and books.active

    def nonce(self) -> str:
        return f"{self.member.chance.getrandbits(64):016x}"

    def send(self, record: Outgoing) -> "asyncio.Future[Placed]":
        """Queue a record; one that can never be written ends this process, loudly."""
        future = self.writer.send(record)
        future.add_done_callback(self._acked)
        return future

    def write_ledger(
        self,
        message: Lease | Output | Cancel,
        *,
        attempt: int | None = None,
        deadline: int | None = None,
        trace: tuple[tuple[str, bytes], ...] = (),
    ) -> "asyncio.Future[Placed]":
        """Append to the request's partition of the ledger; the headers alone carry the fold."""
        headers = headers_of(
            tag_of(message),
            request_id=message.request_id,
            attempt=attempt,
            tenant=message.tenant,
            lane=message.lane,
            deadline=deadline,
            correlation_id=message.correlation_id,
        )
        topic = self.member.topics.ledger
        key = message.request_id.encode()
        return self.send(
            Outgoing(
                topic, encode(message), key, self.partition(message.request_id), headers + trace
            )
        )

    def bury(self, letter: Outgoing) -> "asyncio.Future[Placed]":
        """Queue a dead letter, on the writer that takes its size."""
        future = self.dead_writer.send(letter)
        future.add_done_callback(self._acked)
        return future

    def take_pending(self, request_id: str) -> Pending:
        """The lease was read back, or never will be: its credit is free again."""
        pending = self.pending.pop(request_id)
        if pending.hand is not None:
            pending.hand.reserved -= 1
        if not self.pending:
            self._none_pending.set()
        return pending

    async def settled(self) -> None:
        """Wait until no lease is on its way."""
        while self.pending:
            self._none_pending.clear()
            await self._none_pending.wait()

    def drop(self, partition: int) -> None:
        """The partition is no longer ours."""
        self.books.pop(partition, None)
        self.queue.drop_partition(partition)
        for request_id, pending in list(self.pending.items()):
            if pending.partition == partition:
                self.take_pending(request_id)
        for hand in self.fleet.hands.values():
            for key, sent in list(hand.orders.items()):
                if sent.partition == partition:
                    del hand.orders[key]

    def fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _acked(self, future: "asyncio.Future[Placed]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self.fail(error)
