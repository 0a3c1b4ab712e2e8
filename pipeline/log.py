"""The log port: all that a stage may know of Kafka.

Adapters: `pipeline/kafka/` (aiokafka; Apache Kafka and the embedded broker) and `pipeline/memory.py`
(one process, deterministic). One behaviour suite, tests/pipeline/log_contract.py, is inherited by all.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms: append time where the topic says LogAppendTime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Outgoing(NamedTuple):
    """One record to be written; without a partition, the key's murmur2 decides."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None  # ms; None: now


class Placed(NamedTuple):
    """Where an acknowledged record lies."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Commit(NamedTuple):
    """A group's position in one partition: the next offset to read, and what the group noted."""

    offset: int
    metadata: str = ""


class TopicSpec(NamedTuple):
    name: str
    partitions: int
    replication: int = 1
    configs: Mapping[str, str] = {}


class LogError(Exception):
    """The log could not do it."""


class LogUnavailable(LogError):
    """No broker answered in time: try again later."""


class OffsetGone(LogError):
    """A read position is not in the log any more (or not yet): names the place and what is there."""

    def __init__(self, at: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(
            f"{at.topic}[{at.partition}] has no offset {offset}: it holds {start}–{end}"
        )
        self.at, self.offset, self.start, self.end = at, offset, start, end


class NotOwner(LogError):
    """A commit for a partition that this member no longer owns: drop it."""


class RecordTooLarge(LogError):
    """A record beyond the broker's or the writer's limit."""


class UnknownTopic(LogError):
    """The topic or partition does not exist; topics are declared, never created on sight."""


class NotAuthorized(LogError):
    """The broker forbids it; names topic and right."""


class Clock(Protocol):
    def ms(self) -> int:
        """Wall clock, ms since the epoch. Waits use asyncio's own clock."""


class Reader(Protocol):
    """Reads named partitions, no group: no rebalance ever moves it."""

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        """What is there, in offset order within a partition; waits up to `timeout` for the first.

        Never cancel it: give it its own task. Raises OffsetGone, LogUnavailable.
        """

    async def position(self, at: TopicPartition) -> int:
        """The next offset it will read, resolved at the broker if need be."""

    def seek(self, at: TopicPartition, offset: int) -> None: ...

    def end_seen(self, at: TopicPartition) -> int | None:
        """The partition's end as the last fetch told it; None before the first. Costs nothing."""

    async def close(self) -> None: ...


class Listener(Protocol):
    """A group's rebalances. Both only keep books, 2 s at most."""

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Positions to read on from (local ones); partitions left out begin at the committed offset."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...


class GroupReader(Reader, Protocol):
    """A member of a consumer group. Commits are explicit; auto_offset_reset is `earliest`."""

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        """Raises NotOwner, LogUnavailable."""

    def assignment(self) -> frozenset[TopicPartition]: ...


class Writer(Protocol):
    """Keeps order: one task sends, and after a failure it sends again from the first unacked record
    before anything newer. acks=all always."""

    def send(self, record: Outgoing) -> "asyncio.Future[Placed]":
        """Queue a record; the future resolves at the ack.

        It fails with RecordTooLarge, UnknownTopic or NotAuthorized (that record alone), or with
        LogUnavailable once the writer has been closed. Otherwise the writer keeps trying.
        """

    @property
    def pending(self) -> int:
        """Records queued and not acked."""

    @property
    def oldest(self) -> float | None:
        """Loop time at which the oldest of them was sent; None: none is pending."""

    async def room(self) -> None:
        """Wait until fewer than its limit are pending: backpressure for who sends a lot."""

    async def flush(self, timeout: float = 10.0) -> None:
        """Wait until everything sent so far is acked. Raises LogUnavailable at the timeout."""

    async def close(self) -> None: ...


class Admin(Protocol):
    """Questions and orders through connections that are not fetching."""

    async def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Existing ones are left alone. Raises NotAuthorized naming the topics."""

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """Those that exist, with partitions, replication and configs."""

    async def start_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    async def end_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    async def offsets_for_time(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp >= the given ms; None beyond the last."""

    async def committed(
        self, group: str, at: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Commit | None]: ...

    async def commit(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        """For readers by `log.reader`, in a group that never has members: not fenced, so the offsets
        may go back, which its user must find harmless. Raises LogUnavailable."""


class Log(Protocol):
    """A connection to one cluster."""

    @property
    def clock(self) -> Clock: ...

    @property
    def admin(self) -> Admin: ...

    async def reader(self, start: Mapping[TopicPartition, int | str], *, name: str = "") -> Reader:
        """Reads these partitions from an offset, `"start"` or `"end"`; returns once every position is
        known at the broker, so that nothing written afterwards is missed."""

    async def group(
        self,
        group: str,
        topics: Sequence[str],
        *,
        listener: Listener | None = None,
        instance_id: str | None = None,
        assignor: str = "roundrobin",
        name: str = "",
    ) -> GroupReader: ...

    async def writer(self, name: str = "", *, max_request_size: int = 1_048_576) -> Writer: ...

    async def close(self) -> None: ...
