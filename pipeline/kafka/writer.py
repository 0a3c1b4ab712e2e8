"""Takes a writer's batches to the brokers: one produce request at a time to each, of all that waits.

On aiokafka's client, not its producer: order, retries and batches are the writer's already, and a second
queue with tasks and futures of its own costs more than the request. acks=all, and no idempotence. A
client that keeps failing is replaced; an old batch may still land later, which readers must take anyway
(epochs, counters, `k`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ..batches import BATCH_BYTES, Ack
from ..log import LogError, LogUnavailable, Outgoing, TopicPartition
from .errors import translate, translated
from .options import REQUEST_TIMEOUT
from .stopping import stop

logger = logging.getLogger(__name__)
STRIKES = 3  # failures in a row, each after REQUEST_TIMEOUT or a lost connection
LEADER_LIMIT = 20.0  # s to find who leads a partition
ALL = -1  # acks
MAGIC = 2  # of Kafka's record format


class _Flight(NamedTuple):
    """One batch on its way."""

    at: TopicPartition
    batch: Sequence[Outgoing]
    ack: "asyncio.Future[Ack]"


class ProducerTransport:
    def __init__(
        self,
        options: dict[str, Any],
        partitions: Callable[[str], Awaitable[int]],
        max_request_size: int,
    ) -> None:
        self._options = options
        self._partitions = partitions
        self._batch_size = max(max_request_size, BATCH_BYTES) + 1024  # batches are cut before
        self._client: AIOKafkaClient | None = None
        self._waiting: list[_Flight] = []
        self._wake = asyncio.Event()
        self._busy: set[int] = set()  # nodes with a request under way
        self._strikes = 0
        self._sender: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._client = await self._start()
        self._sender = asyncio.create_task(self._send())

    async def partitions(self, topic: str) -> int:
        return await self._partitions(topic)

    def append(self, at: TopicPartition, batch: Sequence[Outgoing]) -> "asyncio.Future[Ack]":
        ack: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        ack.add_done_callback(self._judge)
        self._put(_Flight(at, batch, ack))
        return ack

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await stop(self._client.close(), "client")

    async def _start(self) -> AIOKafkaClient:
        client = AIOKafkaClient(**self._options)
        with translated("starting a writer"):
            try:
                await client.bootstrap()
            except BaseException:
                await stop(client.close(), "client")
                raise
        return client

    def _put(self, flight: _Flight) -> None:
        self._waiting.append(flight)
        self._wake.set()

    async def _send(self) -> None:
        """The one task that sends."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._strikes >= STRIKES:
                await self._replace()
            assert self._client is not None
            leader_of = self._client.cluster.leader_for_partition
            waiting, self._waiting = self._waiting, []
            by_node: dict[int, list[_Flight]] = {}
            for flight in waiting:
                node = leader_of(flight.at)
                if flight.ack.done():  # the writer gave up on it
                    continue
                if node is None or node < 0:
                    self._spawn(self._find_leader(self._client, flight))
                elif node in self._busy:
                    self._waiting.append(flight)  # it goes with whatever comes until then
                else:
                    by_node.setdefault(node, []).append(flight)
            for node, flights in by_node.items():
                self._busy.add(node)
                self._spawn(self._produce(self._client, node, flights))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_leader(self, client: AIOKafkaClient, flight: _Flight) -> None:
        """Metadata may not have the topic yet, or not as many partitions as it has now."""
        topic, partition = flight.at
        try:
            async with asyncio.timeout(LEADER_LIMIT):
                if partition not in await client._wait_on_metadata(topic) or not _led(
                    client, flight
                ):
                    await client.force_metadata_update()
            if not _led(client, flight):
                raise kafka.LeaderNotAvailableError(f"{topic}[{partition}]")
        except (kafka.KafkaError, TimeoutError, OSError) as error:
            _fail(flight.ack, translate(error, f"sending to {topic}[{partition}]"))
        else:
            self._put(flight)

    async def _produce(self, client: AIOKafkaClient, node: int, flights: list[_Flight]) -> None:
        topics: dict[str, list[tuple[int, bytes]]] = {}
        sent: dict[tuple[str, int], _Flight] = {}
        for flight in flights:
            try:
                packed = self._pack(flight.batch)
            except Exception as error:  # noqa: BLE001 - a record that cannot be built; the others go on
                name = f"{flight.at.topic}[{flight.at.partition}]"
                _fail(flight.ack, LogError(f"{name} cannot be written: {error!r}"))
                continue
            topics.setdefault(flight.at.topic, []).append((flight.at.partition, packed))
            sent[flight.at] = flight
        try:
            if sent:
                request = ProduceRequest(None, ALL, REQUEST_TIMEOUT, list(topics.items()))
                self._settle(client, await client.send(node, request), sent)
        except (kafka.KafkaError, TimeoutError, OSError) as error:
            if getattr(error, "invalid_metadata", False):
                client.force_metadata_update()
            for at, flight in sent.items():
                _fail(flight.ack, translate(error, f"writing to {at[0]}[{at[1]}]"))
        finally:
            self._busy.discard(node)
            if self._waiting:
                self._wake.set()

    def _pack(self, batch: Sequence[Outgoing]) -> bytes:
        builder = DefaultRecordBatchBuilder(
            MAGIC,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=self._batch_size,
        )
        for i, record in enumerate(batch):
            headers = list(record.headers)
            if builder.append(i, record.timestamp, record.key, record.value, headers) is None:
                raise ValueError(f"a batch of {len(batch)} records does not fit")
        return bytes(builder.build())

    def _settle(
        self, client: AIOKafkaClient, response: Any, sent: dict[tuple[str, int], _Flight]
    ) -> None:
        for topic, partitions in response.topics:
            for partition, code, offset, stamp, *_ in partitions:
                flight = sent.pop((topic, partition))
                if code:
                    self._refused(client, flight, kafka.for_code(code))
                elif not flight.ack.done():
                    flight.ack.set_result(Ack(offset, stamp if stamp >= 0 else None))
        for at, flight in sent.items():
            _fail(flight.ack, LogUnavailable(f"{at[0]}[{at[1]}] was not answered"))

    def _refused(
        self, client: AIOKafkaClient, flight: _Flight, kind: type[kafka.KafkaError]
    ) -> None:
        what = f"writing to {flight.at.topic}[{flight.at.partition}]"
        if getattr(kind, "invalid_metadata", False):
            # leaders move, and a broker may not know yet what metadata told us: look again
            client.force_metadata_update()
            _fail(flight.ack, LogUnavailable(f"{what}: {kind.__name__}"))
        else:
            _fail(flight.ack, translate(kind(), what))

    def _judge(self, ack: "asyncio.Future[Ack]") -> None:
        if ack.cancelled():
            return
        unavailable = isinstance(ack.exception(), LogUnavailable)
        self._strikes = self._strikes + 1 if unavailable else 0

    async def _replace(self) -> None:
        """Let all that is under way come to an end, then go on with a new client."""
        assert self._client is not None
        while self._tasks:
            await asyncio.wait(self._tasks)
        while True:
            try:
                fresh = await self._start()
                break
            except LogUnavailable as error:
                logger.warning("a writer that kept failing cannot be replaced yet: %s", error)
                await asyncio.sleep(1.0)
        logger.warning("a writer kept failing and was replaced")
        old, self._client, self._strikes = self._client, fresh, 0
        self._spawn(stop(old.close(), "client"))


def _led(client: AIOKafkaClient, flight: _Flight) -> bool:
    leader = client.cluster.leader_for_partition(flight.at)
    return leader is not None and leader >= 0


def _fail(ack: "asyncio.Future[Ack]", error: LogError) -> None:
    if not ack.done():
        ack.set_exception(error)
