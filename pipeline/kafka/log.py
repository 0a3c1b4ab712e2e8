"""A connection to one Kafka cluster.

What it costs: a reader is one connection to each broker that leads its partitions and, while it is polled
and nothing comes, a fetch every 5 s on each; a group reader also has connections for metadata and for its
coordinator, and a heartbeat every 3 s; a writer is a connection to each broker it writes to, the metadata
that all of these share one, the admin two, and nothing while idle.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ..log import Clock, Listener, LogError, TopicPartition
from ..settings import KafkaSettings
from ..writer import OrderedWriter
from . import options
from .admin import KafkaAdmin
from .brokers import Brokers
from .group import KafkaGroupReader
from .knock import knock
from .noise import quieten
from .reader import KafkaReader
from .writer import ProducerTransport

logger = logging.getLogger(__name__)


async def connect(
    settings: KafkaSettings, clock: Clock, *, client_id: str, wait: float = 10.0
) -> "KafkaLog":
    """Raises LogUnavailable when no broker answers within `wait` s, NotAuthorized when none lets us in."""
    log = KafkaLog(settings, clock, client_id=client_id)
    try:
        await knock({**options.common(settings), "client_id": client_id}, wait)
        await log.admin.counts()
    except LogError:
        await log.close()
        raise
    return log


class KafkaLog:
    def __init__(self, settings: KafkaSettings, clock: Clock, *, client_id: str) -> None:
        quieten()
        self._options = options.common(settings)
        self._clock = clock
        self._client_id = client_id
        self._admin = KafkaAdmin({**self._options, "client_id": f"{client_id}-admin"})
        self._brokers = Brokers({**self._options, "client_id": client_id})
        self._open: list[KafkaReader | OrderedWriter] = []

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def admin(self) -> KafkaAdmin:
        return self._admin

    async def reader(
        self, start: Mapping[TopicPartition, int | str], *, name: str = ""
    ) -> KafkaReader:
        positions = await self._resolve(start)
        reader = KafkaReader(self._brokers, self._admin, self._name(name))
        await reader.start(positions)
        self._keep(reader)
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
    ) -> KafkaGroupReader:
        for topic in topics:
            await self._admin.partitions(topic)
        brokers = Brokers(
            {
                **self._options,
                "client_id": self._name(name),
                "request_timeout_ms": options.JOIN_TIMEOUT,
            }
        )
        reader = KafkaGroupReader(brokers, self._admin, self._name(name), group, listener)
        member = options.member(assignor)
        await reader.join(topics, {**member, "group_instance_id": instance_id})
        self._keep(reader)
        return reader

    async def writer(self, name: str = "", *, max_request_size: int = 1_048_576) -> OrderedWriter:
        transport = ProducerTransport(
            self._brokers, self._name(name), self._admin.partitions, max_request_size
        )
        await transport.start()
        writer = OrderedWriter(transport, self._clock, max_request_size=max_request_size)
        self._keep(writer)
        return writer

    async def close(self) -> None:
        """Writers first, so that what is pending gets its ack."""
        self._open.sort(key=lambda each: not isinstance(each, OrderedWriter))
        for each in self._open:
            try:
                await each.close()
            except LogError as error:
                logger.warning("closing %s: %s", self._client_id, error)
        await self._brokers.close()
        await self._admin.close()

    async def _resolve(
        self, start: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, int]:
        """Offsets of `"start"` and `"end"`, asked for at the broker now."""
        named = {at: where for at, where in start.items() if isinstance(where, str)}
        starts, ends = await asyncio.gather(
            self._admin.start_offsets([at for at, where in named.items() if where == "start"]),
            self._admin.end_offsets([at for at, where in named.items() if where == "end"]),
        )
        resolved = {**starts, **ends}
        for at, where in start.items():
            if not isinstance(where, str):
                await self._admin.require(at)
                resolved[at] = where
        return resolved

    def _keep(self, opened: KafkaReader | OrderedWriter) -> None:
        self._open = [each for each in self._open if not each.closed]
        self._open.append(opened)

    def _name(self, name: str) -> str:
        return f"{self._client_id}-{name}" if name else self._client_id
