"""A member of a consumer group: aiokafka's coordinator says which partitions, the fetcher reads them."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import ConsumerRebalanceListener, OffsetAndMetadata
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors as kafka
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState

from ..log import Commit, Listener, LogError, LogUnavailable, Record, TopicPartition
from .admin import KafkaAdmin
from .brokers import Brokers
from .errors import translate, translated
from .reader import KafkaReader
from .stopping import stop

logger = logging.getLogger(__name__)
LISTENER_LIMIT = 5.0  # s; callbacks keep to 2 themselves, but the whole group waits for them
COMMIT_LIMIT = 10.0  # s; the client itself would repeat a commit for ever
POSITION_LIMIT = 10.0  # s
T = TypeVar("T")


class KafkaGroupReader(KafkaReader):
    """`brokers` must be its own: a coordinator asks only for the metadata of its topics."""

    def __init__(
        self,
        brokers: Brokers,
        admin: KafkaAdmin,
        name: str,
        group: str,
        listener: Listener | None,
    ) -> None:
        super().__init__(brokers, admin, name)
        self.group = group
        self._listener = listener
        self._fault: LogError | None = None  # of a callback: the client would only log it
        self._subscription = SubscriptionState()
        self._subscription.register_fetch_waiters(self._fetcher.waiters)
        self._coordinator: GroupCoordinator | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._placed = asyncio.Event()  # the positions of what is assigned are known

    async def join(self, topics: Sequence[str], member: Mapping[str, Any]) -> None:
        """Returns at once; the first partitions come with the first rebalance."""
        with translated(f"joining group {self.group}"):
            try:
                await self._brokers.know(topics)
            except BaseException:
                await self.close()
                raise
        client = self._brokers.client
        self._coordinator = GroupCoordinator(
            client, self._subscription, group_id=self.group, **member
        )
        self._subscription.subscribe(set(topics), listener=_Bridge(self))
        client.set_topics(set(topics))
        await asyncio.sleep(0)  # its tasks must have begun before they can be stopped

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        if self._coordinator is not None:
            # a member that does not poll for an hour leaves: note that we do
            with translated("polling"), self._subscription.fetch_context():
                self._coordinator.check_errors()
        records = await super().poll(max_records, timeout)
        if self._fault is not None:
            raise self._fault
        return records

    async def position(self, at: TopicPartition) -> int:
        if at in self.assignment():
            with translated(f"the position in {at}"):
                async with asyncio.timeout(POSITION_LIMIT):
                    await self._placed.wait()
        return await super().position(at)

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        notes = {
            KafkaPartition(*at): OffsetAndMetadata(note.offset, note.metadata)
            for at, note in offsets.items()
        }
        if not notes:
            return
        with translated(f"a commit of group {self.group}"):
            assignment = self._subscription.subscription.assignment
            if self._coordinator is None or assignment is None or notes.keys() - assignment.tps:
                raise kafka.IllegalStateError(f"not all of {sorted(offsets)} are assigned")
            async with asyncio.timeout(COMMIT_LIMIT):
                await self._coordinator.commit_offsets(assignment, notes)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(*at) for at in self._subscription.assigned_partitions())

    async def close(self) -> None:
        if self.closed:
            return
        await super().close()
        await self._forget()
        if self._coordinator is not None:
            await stop(self._coordinator.close(), "coordinator")
        await self._brokers.close()

    async def revoked(self, partitions: Iterable[KafkaPartition]) -> None:
        await self._forget()
        if self._listener is not None and partitions:
            await self._call(self._listener.on_revoked(_sorted(partitions)))

    async def assigned(self, partitions: Iterable[KafkaPartition]) -> None:
        """Every rebalance throws positions away, those of kept partitions too: bring ours back."""
        ours = _sorted(partitions)
        local: Mapping[TopicPartition, int] = {}
        if self._listener is not None:
            local = await self._call(self._listener.on_assigned(ours)) or {}
        self._resolving = asyncio.create_task(self._resolve(ours, local))

    async def _forget(self) -> None:
        self._placed.clear()
        self._fetcher.assign({})
        if self._resolving is not None:
            self._resolving.cancel()
            await asyncio.wait({self._resolving})
            self._resolving = None

    async def _resolve(
        self, ours: Sequence[TopicPartition], local: Mapping[TopicPartition, int]
    ) -> None:
        """Go on at the local positions, else at the committed ones, else at the start."""
        try:
            positions = {at: local[at] for at in ours if at in local}
            left = [at for at in ours if at not in local]
            if left and self._coordinator is not None:
                asked = [KafkaPartition(*at) for at in left]
                notes = await self._coordinator.fetch_committed_offsets(asked)
                positions |= {TopicPartition(*at): note.offset for at, note in notes.items()}
            while new := [at for at in left if at not in positions]:
                try:
                    positions |= await self._admin.start_offsets(new)
                except LogUnavailable as error:
                    logger.warning("where %s begins is not known yet: %s", self.group, error)
            self._fetcher.assign(positions)
            self._placed.set()
        except (kafka.KafkaError, LogError) as error:
            told = error if isinstance(error, LogError) else None
            self._fault = told or translate(error, f"the positions of group {self.group}")
            self._fetcher.assign({})  # which lets a poll see it

    async def _gone(self, at: TopicPartition, offset: int) -> None:
        """A group's offset that is gone is no fault: it begins at what is there."""
        start = (await self._admin.start_offsets([at]))[at]
        logger.warning(
            "%s[%d] has no offset %d any more: group %s goes on at %d",
            *at,
            offset,
            self.group,
            start,
        )
        if at in self.assignment() and self._placed.is_set():
            self._fetcher.seek(at, start)

    def _expected(self) -> bool:
        return self._placed.is_set() and bool(self.assignment())

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
