"""Consumer groups of a memory cluster: eager rebalances, static members, fenced commits."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from ..log import Commit, LogError, NotOwner, TopicPartition
from .group_reader import MemoryGroupReader

if TYPE_CHECKING:
    from .cluster import MemoryCluster

METADATA_LIMIT = 4096  # bytes, Kafka's default offset.metadata.max.bytes


def plan(
    members: Sequence[MemoryGroupReader], partitions: Sequence[TopicPartition], assignor: str
) -> dict[str, list[TopicPartition]]:
    """Who gets what, as Kafka's RoundRobinAssignor and RangeAssignor decide it."""
    planned: dict[str, list[TopicPartition]] = {member.member: [] for member in members}
    if assignor == "range":
        for topic in sorted({at.topic for at in partitions}):
            of_topic = sorted(at for at in partitions if at.topic == topic)
            takers = [member for member in members if topic in member.topics]
            share, extra = divmod(len(of_topic), len(takers))
            for i, member in enumerate(takers):
                size = share + (1 if i < extra else 0)
                planned[member.member] += of_topic[:size]
                of_topic = of_topic[size:]
        return planned
    turn = 0
    for at in sorted(partitions):
        while at.topic not in members[turn % len(members)].topics:
            turn += 1
        planned[members[turn % len(members)].member].append(at)
        turn += 1
    return planned


class Group:
    def __init__(self, name: str, cluster: "MemoryCluster") -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, MemoryGroupReader] = {}
        self.offsets: dict[TopicPartition, Commit] = {}
        self._cluster = cluster
        self._assignor = "roundrobin"
        self._again = False
        self._turn = 0  # how often the partitions were moved on purpose
        self._planned: dict[str, list[TopicPartition]] = {}  # whose each is, heard of it or not
        self._running: asyncio.Task[None] | None = None
        self._returning: set[asyncio.Task[None]] = set()

    def first_position(self, at: TopicPartition, local: Mapping[TopicPartition, int]) -> int:
        if at in local:
            return local[at]
        partition = self._cluster.partition(at)
        committed = self.offsets.get(at)
        return max(partition.start, committed.offset if committed else 0)

    def join(self, reader: MemoryGroupReader, assignor: str) -> None:
        self._assignor = assignor
        twin = self.members.get(reader.member)
        self.members[reader.member] = reader
        if twin is None:
            self.rebalance()
            return
        # a static member that came back takes its twin's place, and nobody else notices
        partitions = self._planned.get(reader.member, [])
        twin.evicted = True
        twin.place({})
        twin.log.line.change()
        if self._running is None:
            self._start(reader.assign(partitions, self.generation))
        else:
            self._again = True

    def leave(self, reader: MemoryGroupReader) -> None:
        if reader.static:  # it never leaves: it is forgotten when its session has run out
            loop = asyncio.get_running_loop()
            loop.call_later(
                self._cluster.session_timeout, self._forget, reader, context=self._cluster.context
            )
        else:
            self._forget(reader)

    def evict_silent(self, reader: MemoryGroupReader) -> None:
        line, now = reader.log.line, asyncio.get_running_loop().time()
        session = self._cluster.session_timeout - 0.001  # a timer may fire a float's error early
        if line.silent and now - line.silent_since >= session:
            self._forget(reader)

    def commit_unfenced(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        if self.members:
            raise NotOwner(f"group {self.name} has members: {', '.join(self.members)}")
        self.keep(offsets)

    def keep(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        for at, commit in offsets.items():
            if len(commit.metadata.encode()) > METADATA_LIMIT:
                raise LogError(
                    f"{at.topic}[{at.partition}]: a note of more than {METADATA_LIMIT} bytes"
                )
        self.offsets.update(offsets)
        if self._cluster.committed is not None:
            self._cluster.committed(self.name, offsets)

    def rebalance(self, *, move: bool = False) -> None:
        """`move`: each partition goes to another member than before."""
        self._turn += move
        if self._running is not None:
            self._again = True
        elif self.members:
            self._start(self._rebalance())

    def _start(self, work: Coroutine[object, object, None]) -> None:
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(work, context=self._cluster.context)
        self._running.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and task.exception() is not None:
            raise LogError(f"group {self.name}") from task.exception()
        if self._again:
            self._again = False
            self.rebalance()

    async def _rebalance(self) -> None:
        """Everybody gives up everything, then everybody gets a part: what eager means."""
        await asyncio.gather(*(member.revoke() for member in list(self.members.values())))
        self.generation += 1
        members = [self.members[name] for name in sorted(self.members)]
        if members:
            turn = self._turn % len(members)
            members = members[turn:] + members[:turn]
        topics = sorted({topic for member in members for topic in member.topics})
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self._cluster.count(topic))
        ]
        planned = plan(members, partitions, self._assignor) if members else {}
        self._planned = planned
        await asyncio.gather(
            *(member.assign(planned[member.member], self.generation) for member in members)
        )

    def _forget(self, reader: MemoryGroupReader) -> None:
        if self.members.get(reader.member) is not reader:
            return
        del self.members[reader.member]
        reader.evicted = True
        reader.place({})
        reader.log.line.change()
        self.rebalance()
        if not reader.closed and not reader.log.line.cut:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._return(reader), context=self._cluster.context)
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _return(self, reader: MemoryGroupReader) -> None:
        """A process that was stopped for too long hears of it when it goes on, and joins again."""
        while reader.log.line.silent:
            await reader.log.line.changed()
        reader.evicted = False
        await reader.revoke()
        self.join(reader, self._assignor)
