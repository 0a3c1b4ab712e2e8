"""The catalog: topics and their partitions, made, changed and dropped."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.embedded.configs import TopicConfig
from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.partition import Partition, loaded
from pipeline.embedded.store import Store, Transaction

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_PARTITIONS = 10_000  # of one topic: a slip of the pen must not fill the disk


@dataclass(slots=True)
class Topic:
    """One topic; `partitions` by number."""

    id: int
    name: str
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list)


class Catalog:
    """All topics. Read in memory, changed through the store, one change at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changing = asyncio.Lock()
        self.topics: dict[str, Topic] = {}
        topics: dict[int, Topic] = {}
        for id, name, configs in store.db.execute("SELECT id, name, configs FROM topics"):
            topics[id] = self.topics[name] = Topic(id, name, TopicConfig.of(json.loads(configs)))
        rows = store.db.execute(
            "SELECT id, topic, number, start FROM partitions WHERE topic IS NOT NULL"
            " ORDER BY topic, number"
        ).fetchall()
        for id, owner, number, start in rows:
            topic = topics[owner]
            partition = Partition(id, topic.name, number, topic.config, start)
            topic.partitions.append(loaded(store.db, partition))

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        for topic in list(self.topics.values()):
            yield from topic.partitions

    def topic(self, name: str) -> Topic:
        """Raises `Refused` if there is none of that name."""
        found = self.topics.get(name)
        if found is None:
            raise Refused(
                Code.unknown_topic_or_partition, "This server does not host this topic-partition."
            )
        return found

    def partition(self, name: str, number: int) -> Partition:
        """Raises `Refused` if there is no such topic or partition."""
        partitions = self.topic(name).partitions
        if not 0 <= number < len(partitions):
            raise Refused(
                Code.unknown_topic_or_partition, "This server does not host this topic-partition."
            )
        return partitions[number]

    async def create(
        self, name: str, count: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> TopicConfig:
        """Make a topic of `count` partitions; raises `Refused`."""
        async with self._changing:
            check_name(name)
            if name in self.topics:
                raise Refused(Code.topic_already_exists, f"Topic '{name}' already exists.")
            if not 1 <= count <= _MOST_PARTITIONS:
                raise Refused(
                    Code.invalid_partitions,
                    f"Number of partitions was set to {count}, wanted 1 to {_MOST_PARTITIONS}.",
                )
            config = TopicConfig.of(configs)
            if validate_only:
                return config

            def apply(transaction: Transaction) -> Topic:
                made = transaction.db.execute(
                    "INSERT INTO topics (name, configs) VALUES (?, ?)",
                    (name, json.dumps(config.overrides)),
                )
                topic = Topic(_rowid(made), name, config)
                topic.partitions = _insert_partitions(transaction, topic, 0, count)
                return topic

            def publish(topic: Topic) -> None:
                self.topics[name] = topic

            await self._store.write(apply, publish)
            return config

    async def extend(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Bring a topic to `count` partitions; raises `Refused` unless that is more than now."""
        async with self._changing:
            topic = self.topic(name)
            have = len(topic.partitions)
            if not have < count <= _MOST_PARTITIONS:
                raise Refused(
                    Code.invalid_partitions,
                    f"The topic {name} currently has {have} partition(s); {count} would not be"
                    " an increase."
                    if count <= _MOST_PARTITIONS
                    else f"A topic has at most {_MOST_PARTITIONS} partitions.",
                )
            if validate_only:
                return
            await self._store.write(
                lambda transaction: _insert_partitions(transaction, topic, have, count),
                topic.partitions.extend,
            )

    async def configure(
        self, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's own configs; raises `Refused`."""
        async with self._changing:
            topic = self.topic(name)
            config = TopicConfig.of(configs)
            if validate_only:
                return

            def apply(transaction: Transaction) -> None:
                transaction.db.execute(
                    "UPDATE topics SET configs = ? WHERE id = ?",
                    (json.dumps(config.overrides), topic.id),
                )

            def publish(_: None) -> None:
                topic.config = config
                for partition in topic.partitions:
                    partition.config = config

            await self._store.write(apply, publish)

    async def drop(self, name: str) -> None:
        """Forget a topic and the offsets committed on it; the upkeep deletes its batches."""
        async with self._changing:
            topic = self.topic(name)

            def apply(transaction: Transaction) -> None:
                db = transaction.db
                db.execute("DELETE FROM topics WHERE id = ?", (topic.id,))
                db.execute("UPDATE partitions SET topic = NULL WHERE topic = ?", (topic.id,))
                db.execute("DELETE FROM offsets WHERE topic = ?", (name,))

            def publish(_: None) -> None:
                del self.topics[name]
                for partition in topic.partitions:
                    for event in partition.waiting:
                        event.set()

            await self._store.write(apply, publish)


def check_name(name: str) -> None:
    """Raises `Refused` for a name that Kafka would refuse, too."""
    if name in (".", "..") or not _NAME.fullmatch(name):
        raise Refused(
            Code.invalid_topic_exception,
            "Topic name is invalid: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'",
        )


def _insert_partitions(
    transaction: Transaction, topic: Topic, first: int, count: int
) -> list[Partition]:
    made = []
    for number in range(first, count):
        row = transaction.db.execute(
            "INSERT INTO partitions (topic, number) VALUES (?, ?)", (topic.id, number)
        )
        made.append(Partition(_rowid(row), topic.name, number, topic.config))
    return made


def _rowid(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None  # there was an INSERT
    return cursor.lastrowid
