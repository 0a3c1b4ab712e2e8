"""Questions and orders to the cluster, through connections that never fetch: a long poll would hold
the answer back by its whole wait."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.commit import OffsetCommitRequest

from ..log import Commit, TopicPartition, TopicSpec, UnknownTopic
from .clients import Clients

T = TypeVar("T")


class KafkaAdmin:
    def __init__(self, options: dict[str, Any]) -> None:
        self._clients = Clients(options)
        self._counts: dict[str, int] = {}
        self._coordinators: dict[str, int] = {}  # group → node, until one of them refuses

    async def close(self) -> None:
        await self._clients.close()

    # topics

    async def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        known = await self.counts()
        wanted = [
            NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=dict(spec.configs))
            for spec in topics
            if spec.name not in known
        ]
        if not wanted:
            return

        async def create() -> None:
            client = await self._clients.admin()
            response = await client.create_topics(wanted)
            _check_created(response.topic_errors)

        await self._clients.ask("creating topics", create)
        await self._clients.ask("waiting for leaders", lambda: self._await_leaders(wanted))

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        described = {topic["topic"]: topic for topic in await self._metadata()}
        wanted = [name for name in (described if names is None else names) if name in described]
        configs = await self._configs(wanted)
        return {name: _spec(described[name], configs.get(name, {})) for name in wanted}

    async def counts(self) -> dict[str, int]:
        """Topic → partitions, of all topics, in one request."""
        await self._metadata()
        return self._counts

    async def partitions(self, topic: str) -> int:
        """How many it has, asked of the cluster. Raises UnknownTopic."""
        counts = await self.counts()
        if topic not in counts:
            raise UnknownTopic(f"there is no topic {topic}")
        return counts[topic]

    async def require(self, at: TopicPartition) -> None:
        """Raises UnknownTopic unless the partition exists."""
        if 0 <= at.partition < self._counts.get(at.topic, 0):
            return
        count = await self.partitions(at.topic)
        if not 0 <= at.partition < count:
            raise UnknownTopic(f"{at.topic} has {count} partitions, no {at.partition}")

    async def _metadata(self) -> list[dict[str, Any]]:
        async def describe() -> list[dict[str, Any]]:
            client = await self._clients.admin()
            # all topics: naming one would create it where a broker has auto-creation on
            topics: list[dict[str, Any]] = await client.describe_topics()
            return topics

        topics = await self._clients.ask("describing topics", describe)
        self._counts = {topic["topic"]: len(topic["partitions"]) for topic in topics}
        return topics

    async def _await_leaders(self, topics: Sequence[NewTopic]) -> None:
        described = {topic["topic"]: topic for topic in await self._metadata()}
        for topic in topics:
            partitions = described.get(topic.name, {}).get("partitions", [])
            led = [each for each in partitions if each["leader"] >= 0]
            if len(led) < topic.num_partitions:
                raise kafka.LeaderNotAvailableError(topic.name)

    async def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}

        async def describe() -> dict[str, dict[str, str]]:
            client = await self._clients.admin()
            asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
            found: dict[str, dict[str, str]] = {}
            for response in await client.describe_configs(asked):
                for code, message, _, name, entries in response.resources:
                    if code:
                        raise kafka.for_code(code)(f"{name}: {message}")
                    found[name] = {key: value for key, value, *_ in entries if value is not None}
            return found

        return await self._clients.ask(f"describing {', '.join(names)}", describe)

    # offsets

    async def start_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._of_partitions(
            "start offsets", at, lambda consumer, asked: consumer.beginning_offsets(asked)
        )

    async def end_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._of_partitions(
            "end offsets", at, lambda consumer, asked: consumer.end_offsets(asked)
        )

    async def offsets_for_time(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        asked = {KafkaPartition(*at): max(0, ms) for at, ms in times.items()}
        found = await self._of_partitions(
            "offsets by time", times, lambda consumer, _: consumer.offsets_for_times(asked)
        )
        return {at: None if where is None else where.offset for at, where in found.items()}

    async def _of_partitions(
        self,
        what: str,
        at: Iterable[TopicPartition],
        ask: Callable[[AIOKafkaConsumer, list[KafkaPartition]], Awaitable[dict[Any, T]]],
    ) -> dict[TopicPartition, T]:
        partitions = list(at)
        if not partitions:
            return {}
        for each in partitions:
            await self.require(each)

        async def answer() -> dict[TopicPartition, T]:
            found = await ask(
                await self._clients.asker(), [KafkaPartition(*each) for each in partitions]
            )
            return {TopicPartition(*each): value for each, value in found.items()}

        return await self._clients.ask(what, answer)

    # groups

    async def committed(
        self, group: str, at: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Commit | None]:
        partitions = list(at)
        if not partitions:
            return {}

        async def fetch() -> dict[TopicPartition, Commit | None]:
            client = await self._clients.admin()
            asked = [KafkaPartition(*each) for each in partitions]
            async with self._coordinator(client, group) as node:
                found = await client.list_consumer_group_offsets(group, node, asked)
            notes = {TopicPartition(*each): note for each, note in found.items()}
            return {
                each: Commit(note.offset, note.metadata or "")
                if (note := notes.get(each)) and note.offset >= 0
                else None
                for each in partitions
            }

        return await self._clients.ask(f"offsets of group {group}", fetch)

    async def commit(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for at, note in offsets.items():
            topics.setdefault(at.topic, []).append((at.partition, note.offset, note.metadata))
        # generation -1 and no member: Kafka takes it as long as the group has no members
        request = OffsetCommitRequest(group, -1, "", -1, list(topics.items()))

        async def send() -> None:
            client = await self._clients.admin()
            async with self._coordinator(client, group) as node:
                response = await client._send_request(request, node)
                for _, partitions in response.topics:
                    for _, code in partitions:
                        if code:
                            raise kafka.for_code(code)(f"group {group}")

        await self._clients.ask(f"commit of group {group}", send)

    @asynccontextmanager
    async def _coordinator(self, client: AIOKafkaAdminClient, group: str) -> AsyncIterator[int]:
        """Who keeps a group's offsets: looked up once, and again after a question that failed."""
        if group not in self._coordinators:
            self._coordinators[group] = await client.find_coordinator(group)
        try:
            yield self._coordinators[group]
        except (kafka.KafkaError, OSError):
            self._coordinators.pop(group, None)
            raise


def _spec(topic: dict[str, Any], configs: dict[str, str]) -> TopicSpec:
    partitions = topic["partitions"]
    replication = min((len(each["replicas"]) for each in partitions), default=0)
    return TopicSpec(topic["topic"], len(partitions), replication, configs)


def _check_created(errors: Iterable[tuple[Any, ...]]) -> None:
    """One answer a topic; those that exist are left alone."""
    forbidden: list[str] = []
    failed: list[tuple[str, Any, str]] = []
    for name, code, *rest in errors:
        kind = kafka.for_code(code)
        if code == 0 or kind is kafka.TopicAlreadyExistsError:
            continue
        if kind in (kafka.TopicAuthorizationFailedError, kafka.ClusterAuthorizationFailedError):
            forbidden.append(name)
        else:
            failed.append((name, kind, str(rest[0]) if rest else ""))
    if forbidden:
        raise kafka.TopicAuthorizationFailedError(
            f"the right Create is missing for {', '.join(sorted(forbidden))}"
        )
    for name, kind, why in failed:
        raise kind(f"{name}: {why}")
