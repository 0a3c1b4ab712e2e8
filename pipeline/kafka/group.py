"""A member of a consumer group through an aiokafka consumer."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata
from aiokafka import TopicPartition as KafkaPartition

from ..log import Commit, Listener, LogError, Record, TopicPartition
from .admin import KafkaAdmin
from .errors import translated
from .reader import KafkaReader

LISTENER_LIMIT = 5.0  # s; callbacks keep to 2 themselves, but the whole group waits for them
COMMIT_LIMIT = 10.0  # s; the client itself would repeat a commit for ever
T = TypeVar("T")


class KafkaGroupReader(KafkaReader):
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        admin: KafkaAdmin,
        group: str,
        listener: Listener | None,
    ) -> None:
        super().__init__(consumer, admin)
        self.group = group
        self._listener = listener
        self._fault: LogError | None = None  # of a callback: the client would only log it

    async def join(self, topics: Sequence[str]) -> None:
        """Returns at once; the first partitions come with the first rebalance."""
        with translated(f"joining group {self.group}"):
            try:
                await self._consumer.start()
            except BaseException:
                await self._stop()
                raise
        self._consumer.subscribe(list(topics), listener=_Bridge(self))
        await asyncio.sleep(0)  # the client's tasks must have begun before they can be stopped

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        """As of any reader; it blocks through a rebalance, whatever `timeout` says."""
        records = await super().poll(max_records, timeout)
        if self._fault is not None:
            raise self._fault
        return records

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        notes = {
            KafkaPartition(*at): OffsetAndMetadata(note.offset, note.metadata)
            for at, note in offsets.items()
        }
        if not notes:
            return  # the client takes it for a mistake
        with translated(f"a commit of group {self.group}"):
            async with asyncio.timeout(COMMIT_LIMIT):
                await self._consumer.commit(notes)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(*at) for at in self._consumer.assignment())

    async def revoked(self, partitions: Iterable[KafkaPartition]) -> None:
        self._next.clear()
        if self._listener is not None and partitions:
            await self._call(self._listener.on_revoked(_sorted(partitions)))

    async def assigned(self, partitions: Iterable[KafkaPartition]) -> None:
        """Every rebalance throws positions away, those of kept partitions too: bring ours back."""
        self._busy = self._loop.time()
        if self._listener is not None:
            local = await self._call(self._listener.on_assigned(_sorted(partitions)))
            for at, offset in (local or {}).items():
                self.seek(at, offset)

    async def _call(self, callback: Awaitable[T]) -> T | None:
        try:
            async with asyncio.timeout(LISTENER_LIMIT):
                return await callback
        except Exception as error:  # noqa: BLE001 - kept, and raised by the next poll
            self._fault = LogError(f"a callback of group {self.group} failed: {error!r}")
            self._fault.__cause__ = error
            return None


class _Bridge(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: KafkaGroupReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        await self._reader.revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        await self._reader.assigned(assigned)


def _sorted(partitions: Iterable[KafkaPartition]) -> list[TopicPartition]:
    return sorted(TopicPartition(*at) for at in partitions)
