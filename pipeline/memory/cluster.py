"""All that outlives a connection: topics, groups, and the faults that a test asks for."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context

from ..log import Clock, Commit, TopicPartition, TopicSpec, UnknownTopic
from .connection import MemoryLog
from .faults import FateOf
from .group import Group
from .partition import Partition

CommittedTo = Callable[[str, Mapping[TopicPartition, Commit]], None]  # group, offsets


class MemoryCluster:
    """Several connections may stand on one cluster, each of one simulated process.

    Faults: `fate` decides over every batch; `set_available` takes a partition away; a connection is
    `cut`, `pause`d, `resume`d, `slow`ed; `rebalance` shakes a group; `trim` and `compact` are the cleaner.
    """

    session_timeout = 45.0  # s of silence after which a group forgets a member

    def __init__(self, clock: Clock, *, request_timeout: float = 10.0) -> None:
        self.clock = clock
        self.request_timeout = request_timeout  # s after which an unanswered write has failed
        self.fate: FateOf | None = None
        self.committed: CommittedTo | None = None  # is told of every commit that holds
        self.context = copy_context()  # in which the broker runs, whoever asks it for something
        self.topics: dict[str, TopicSpec] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.groups: dict[str, Group] = {}
        self.members = 0  # ever joined, for their ids

    def connect(self, name: str = "client", *, clock: Clock | None = None) -> MemoryLog:
        """A connection of its own; `clock` where a process's clock is off."""
        return MemoryLog(self, name, clock or self.clock)

    def create(self, spec: TopicSpec) -> None:
        if spec.name in self.topics:
            return
        self.topics[spec.name] = spec
        for number in range(spec.partitions):
            at = TopicPartition(spec.name, number)
            self.partitions[at] = Partition(at, spec)

    def partition(self, at: TopicPartition) -> Partition:
        found = self.partitions.get(at)
        if found is None:
            raise UnknownTopic(f"there is no {at.topic}[{at.partition}]")
        return found

    def count(self, topic: str) -> int:
        if topic not in self.topics:
            raise UnknownTopic(f"there is no topic {topic}")
        return self.topics[topic].partitions

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(name, self)
        return self.groups[name]

    # faults

    def set_available(self, at: Iterable[TopicPartition], available: bool) -> None:
        for each in at:
            partition = self.partition(each)
            partition.available = available
            partition.wake()

    def rebalance(self, group: str, *, move: bool = False) -> None:
        self.group(group).rebalance(move=move)

    def trim(self, at: TopicPartition, before: int) -> None:
        self.partition(at).trim(before)

    def compact(self, topic: str) -> None:
        for number in range(self.count(topic)):
            self.partition(TopicPartition(topic, number)).compact()

    def silence(self, log: MemoryLog) -> None:
        """A connection went silent: unless it comes back, its groups forget it."""
        loop = asyncio.get_running_loop()
        for group in self.groups.values():
            for member in list(group.members.values()):
                if member.log is log:
                    loop.call_later(
                        self.session_timeout, group.evict_silent, member, context=self.context
                    )
