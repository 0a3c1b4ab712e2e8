"""One simulated process's connection to a memory cluster."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..batches import Ack
from ..log import (
    Clock,
    Listener,
    LogUnavailable,
    Outgoing,
    RecordTooLarge,
    TopicPartition,
)
from ..writer import OrderedWriter
from .admin import MemoryAdmin
from .faults import Fate, Line
from .group_reader import MemoryGroupReader
from .reader import MemoryReader

if TYPE_CHECKING:
    from .cluster import MemoryCluster

UNAVAILABLE_ANSWER = 1.0  # s until a partition without a leader is known to be one
WELL = Fate()


class MemoryLog:
    def __init__(self, cluster: "MemoryCluster", name: str, clock: Clock) -> None:
        self.cluster = cluster
        self.name = name
        self.line = Line()
        self._clock = clock
        self._admin = MemoryAdmin(cluster, self.line)
        self._readers: dict[MemoryReader, None] = {}
        self._writers: list[OrderedWriter] = []

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def admin(self) -> MemoryAdmin:
        return self._admin

    async def reader(
        self, start: Mapping[TopicPartition, int | str], *, name: str = ""
    ) -> MemoryReader:
        await self.line.gate()
        positions = {}
        for at, where in start.items():
            partition = self.cluster.partition(at)
            if isinstance(where, str):
                where = {"start": partition.start, "end": partition.end}[where]
            positions[at] = where
        reader = MemoryReader(self, positions)
        self._readers[reader] = None
        return reader

    async def group(
        self,
        group: str,
        topics: Sequence[str],
        *,
        listener: Listener | None = None,
        instance_id: str | None = None,
        assignor: str = "roundrobin",
        name: str = "",
    ) -> MemoryGroupReader:
        await self.line.gate()
        for topic in topics:
            self.cluster.count(topic)
        self.cluster.members += 1
        member = instance_id or f"{name or self.name}-{self.cluster.members:04}"
        reader = MemoryGroupReader(
            self, self.cluster.group(group), member, topics, listener, instance_id is not None
        )
        reader.group.join(reader, assignor)
        self._readers[reader] = None
        return reader

    async def writer(self, name: str = "", *, max_request_size: int = 1_048_576) -> OrderedWriter:
        await self.line.gate()
        writer = OrderedWriter(
            MemoryTransport(self), self._clock, max_request_size=max_request_size
        )
        self._writers.append(writer)
        return writer

    async def close(self) -> None:
        if self.line.cut:
            return
        for writer in self._writers:
            await writer.close()
        for reader in list(self._readers):
            await reader.close()

    @property
    def readers(self) -> Iterable[MemoryReader]:
        """Those that are open."""
        return self._readers

    def forget(self, reader: MemoryReader) -> None:
        """It is closed; look-ups open many."""
        self._readers.pop(reader, None)

    # faults

    def cut(self) -> None:
        """kill -9: no operation completes any more, nothing new is written; what is under way may land."""
        self.line.fall_silent(cut=True)
        for writer in self._writers:
            writer.abandon()
        for reader in self._readers:
            reader.place({})
        self.cluster.silence(self)

    def pause(self) -> None:
        """SIGSTOP, as the log sees it."""
        self.line.fall_silent()
        self.cluster.silence(self)

    def lose(self) -> None:
        """The broker cannot be reached, and every operation says so."""
        self.line.fall_silent(lost=True)
        self.cluster.silence(self)

    def resume(self) -> None:
        self.line.paused = self.line.lost = False
        self.line.change()
        for reader in self._readers:
            reader.wake()

    def slow(self, seconds: float) -> None:
        """Every operation takes this much longer; 0 ends it."""
        self.line.delay = seconds


class MemoryTransport:
    """Takes a writer's batches to the partitions, through whatever fate the test has in mind."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._cluster = log.cluster
        self._loop = asyncio.get_running_loop()
        self._held: set[asyncio.Task[None]] = set()  # batches before a gate

    async def partitions(self, topic: str) -> int:
        if self._log.line.impeded:
            await self._log.line.gate()
        return self._cluster.count(topic)

    def append(self, at: TopicPartition, batch: Sequence[Outgoing]) -> "asyncio.Future[Ack]":
        ack: asyncio.Future[Ack] = self._loop.create_future()
        if self._log.line.impeded:
            task = self._loop.create_task(self._later(at, batch, ack))
            self._held.add(task)
            task.add_done_callback(self._held.discard)
        else:
            self._send(at, batch, ack)
        return ack

    async def close(self) -> None:
        """Nothing is held open."""

    async def _later(
        self, at: TopicPartition, batch: Sequence[Outgoing], ack: "asyncio.Future[Ack]"
    ) -> None:
        try:
            await self._log.line.gate()
        except LogUnavailable as error:
            _fail(ack, str(error))
        if not ack.done():  # else the writer gave up, and sends it again itself
            self._send(at, batch, ack)

    def _send(
        self, at: TopicPartition, batch: Sequence[Outgoing], ack: "asyncio.Future[Ack]"
    ) -> None:
        decide = self._cluster.fate
        fate = decide(self._log.name, at, batch) if decide else WELL
        limit = self._cluster.request_timeout
        if not self._cluster.partition(at).available:
            self._after(UNAVAILABLE_ANSWER, _fail, ack, f"{at} has no leader")
            return
        if fate.lands and fate.delay == 0:
            self._land(at, batch, ack if fate.acked else None)
        elif fate.lands:
            self._after(fate.delay, self._land, at, batch, ack if fate.acked else None)
        if fate.again is not None:
            self._after(fate.again, self._land, at, batch, None)
        if not (fate.lands and fate.acked and fate.delay < limit):
            self._after(limit, _fail, ack, f"no answer within {limit} s")

    def _after(self, delay: float, callback: Callable[..., object], *args: object) -> None:
        """The broker's own doing: it goes on when the process that wrote is stopped."""
        self._loop.call_later(delay, callback, *args, context=self._cluster.context)

    def _land(
        self, at: TopicPartition, batch: Sequence[Outgoing], ack: "asyncio.Future[Ack] | None"
    ) -> None:
        partition = self._cluster.partition(at)
        size = sum(len(record.value or b"") + len(record.key or b"") for record in batch)
        if size > partition.max_bytes:
            if ack is not None and not ack.done():
                ack.set_exception(RecordTooLarge(f"{at.topic} takes {partition.max_bytes} bytes"))
            return
        base = partition.end
        now = self._cluster.clock.ms()
        for record in batch:
            partition.append(record, now)
        partition.wake()
        if ack is not None and not ack.done():
            ack.set_result(Ack(base, now if partition.stamped else None))


def _fail(ack: "asyncio.Future[Ack]", why: str) -> None:
    if not ack.done():
        ack.set_exception(LogUnavailable(why))
