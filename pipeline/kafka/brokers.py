"""Who leads which partition, as metadata tells, and connections to the leaders.

One client for all readers of a process: it asks for metadata, and carries nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient

from ..log import TopicPartition
from .connection import Connection
from .packed import FETCH, PRODUCE
from .stopping import stop

REFRESH_LIMIT = 2.0  # s; one broker that hangs must not hold up what the others would say


class Brokers:
    def __init__(self, options: dict[str, Any]) -> None:
        self._opening = {k: v for k, v in options.items() if k != "bootstrap_servers"}
        self.client = AIOKafkaClient(**options)
        self._lock = asyncio.Lock()
        self._started = False

    async def know(self, topics: Iterable[str]) -> None:
        """Have the metadata of these topics. Raises KafkaError."""
        async with self._lock:
            if not self._started:
                await self.client.bootstrap()
                self._started = True
        for topic in topics:
            self.client.add_topic(topic)
            await self.client._wait_on_metadata(topic)

    def leader(self, at: TopicPartition) -> int | None:
        node: int | None = self.client.cluster.leader_for_partition(at)
        return None if node is None or node < 0 else node

    def watch(self, changed: Callable[[Any], None]) -> None:
        """Call this after every update."""
        self.client.cluster.add_listener(changed)

    def unwatch(self, changed: Callable[[Any], None]) -> None:
        self.client.cluster.remove_listener(changed)

    async def refresh(self) -> None:
        """Ask again, and those we were configured with if none answers that we know."""
        client = self.client
        async with asyncio.timeout(REFRESH_LIMIT):
            if client._sync_task is not None and client._sync_task.done():
                client._sync_task = None  # it met what it did not expect: begin anew
            elif await client.force_metadata_update():
                return
            async with self._lock:
                await client.bootstrap()

    async def open(self, node: int, name: str) -> Connection:
        """A connection that can fetch and produce, under a name for the broker's books.

        Raises KafkaError, OSError, TimeoutError.
        """
        broker = self.client.cluster.broker_metadata(node)
        if broker is None:
            raise kafka.StaleMetadata(f"no broker {node} is known")
        connection = await Connection.open(
            broker.host, broker.port, {**self._opening, "client_id": name}
        )
        try:
            connection.require(FETCH)
            connection.require(PRODUCE)
        except kafka.KafkaError:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        await stop(self.client.close(), "client")
