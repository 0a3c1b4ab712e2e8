"""Questions and orders to a memory cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..log import Commit, TopicPartition, TopicSpec
from .faults import Line

if TYPE_CHECKING:
    from .cluster import MemoryCluster


class MemoryAdmin:
    def __init__(self, cluster: "MemoryCluster", line: Line) -> None:
        self._cluster = cluster
        self._line = line

    async def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        await self._line.gate()
        for spec in topics:
            self._cluster.create(spec)

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        await self._line.gate()
        known = self._cluster.topics
        return {name: known[name] for name in (known if names is None else names) if name in known}

    async def start_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await self._line.gate()
        return {each: self._cluster.partition(each).start for each in at}

    async def end_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await self._line.gate()
        return {each: self._cluster.partition(each).end for each in at}

    async def offsets_for_time(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        await self._line.gate()
        return {at: self._cluster.partition(at).offset_for(ms) for at, ms in times.items()}

    async def committed(
        self, group: str, at: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Commit | None]:
        await self._line.gate()
        offsets = self._cluster.group(group).offsets
        return {each: offsets.get(each) for each in at}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        await self._line.gate()
        self._cluster.group(group).commit_unfenced(offsets)
