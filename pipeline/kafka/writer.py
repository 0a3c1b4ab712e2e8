"""Takes a writer's batches to the brokers: one produce request at a time to each, of all that waits.

On connections of its own: order, retries and batches are the writer's already, and a second queue with
tasks and futures costs more than the request. acks=all, and no idempotence. A batch that was given up may
still land later, which readers must take anyway (epochs, counters, `k`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from aiokafka import errors as kafka
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ..batches import BATCH_BYTES, Ack
from ..log import LogError, LogUnavailable, Outgoing, TopicPartition
from .brokers import Brokers
from .connection import Connection
from .errors import translate, translated
from .options import REQUEST_TIMEOUT
from .packed import PRODUCE, pack_produce, unpack_produce

LEADER_LIMIT = 20.0  # s to find who leads a partition
MAGIC = 2  # of Kafka's record format


class _Flight(NamedTuple):
    """One batch on its way."""

    at: TopicPartition
    batch: Sequence[Outgoing]
    ack: "asyncio.Future[Ack]"


class _Request(NamedTuple):
    """What is out to one broker."""

    connection: Connection
    flights: dict[tuple[str, int], _Flight]
    limit: asyncio.TimerHandle


class ProducerTransport:
    def __init__(
        self,
        brokers: Brokers,
        name: str,
        partitions: Callable[[str], Awaitable[int]],
        max_request_size: int,
    ) -> None:
        self._brokers = brokers
        self._name = name  # in the brokers' books
        self._partitions = partitions
        self._batch_size = max(max_request_size, BATCH_BYTES) + 1024  # batches are cut before
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Flight] = []
        self._called = False  # to send what waits
        self._connections: dict[int, Connection] = {}
        self._out: dict[int, _Request] = {}  # by node
        self._opening: set[int] = set()
        self._refreshing = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        with translated("starting a writer"):
            await self._brokers.know(())

    async def partitions(self, topic: str) -> int:
        return await self._partitions(topic)

    def append(self, at: TopicPartition, batch: Sequence[Outgoing]) -> "asyncio.Future[Ack]":
        ack: asyncio.Future[Ack] = self._loop.create_future()
        self._put(_Flight(at, batch, ack))
        return ack

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for request in self._out.values():
            request.limit.cancel()
        for connection in self._connections.values():
            connection.close()

    # on its way

    def _put(self, flight: _Flight) -> None:
        self._waiting.append(flight)
        self._call()

    def _call(self) -> None:
        """What is appended in the same turn of the loop goes together."""
        if not self._called:
            self._called = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._called = False
        waiting, self._waiting = self._waiting, []
        by_node: dict[int, list[_Flight]] = {}
        for flight in waiting:
            if flight.ack.done():  # the writer gave up on it
                continue
            node = self._brokers.leader(flight.at)
            if node is None:
                self._spawn(self._find_leader(flight))
            elif node in self._out or node in self._opening:
                self._waiting.append(flight)  # it goes with whatever comes until then
            else:
                by_node.setdefault(node, []).append(flight)
        for node, flights in by_node.items():
            connection = self._connections.get(node)
            if connection is not None and not connection.ended:
                self._produce(node, connection, flights)
            else:
                self._opening.add(node)
                self._spawn(self._open(node, flights))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, node: int, flights: list[_Flight]) -> None:
        try:
            self._connections[node] = await self._brokers.open(node, self._name)
        except (kafka.KafkaError, OSError, TimeoutError) as error:
            self._lost(flights, error)
        else:
            self._waiting = flights + self._waiting
        finally:
            self._opening.discard(node)
            self._call()

    async def _find_leader(self, flight: _Flight) -> None:
        """Metadata may not have the topic yet, or not as many partitions as it has now."""
        topic, partition = flight.at
        try:
            async with asyncio.timeout(LEADER_LIMIT):
                await self._brokers.know([topic])
                if self._brokers.leader(flight.at) is None:
                    await self._brokers.refresh()
            if self._brokers.leader(flight.at) is None:
                raise kafka.LeaderNotAvailableError(f"{topic}[{partition}]")
        except (kafka.KafkaError, TimeoutError, OSError) as error:
            _fail(flight.ack, translate(error, f"sending to {topic}[{partition}]"))
        else:
            self._put(flight)

    def _produce(self, node: int, connection: Connection, flights: list[_Flight]) -> None:
        sent: dict[tuple[str, int], _Flight] = {}
        batches: list[tuple[tuple[str, int], bytes]] = []
        for flight in sorted(flights, key=lambda each: each.at.topic):
            try:
                batches.append((flight.at, self._pack(flight.batch)))
                sent[flight.at] = flight
            except Exception as error:  # noqa: BLE001 - a record that cannot be built; the others go on
                name = f"{flight.at.topic}[{flight.at.partition}]"
                _fail(flight.ack, LogError(f"{name} cannot be written: {error!r}"))
        if sent:
            limit = self._loop.call_later(REQUEST_TIMEOUT / 1000, self._late, node)
            self._out[node] = _Request(connection, sent, limit)
            body = pack_produce(batches, timeout=REQUEST_TIMEOUT)
            connection.request(PRODUCE, body, partial(self._answered, node))

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

    # answers

    def _answered(self, node: int, raw: memoryview | None) -> None:
        request = self._out.pop(node)
        request.limit.cancel()
        flights = request.flights
        try:
            if raw is None:
                raise kafka.KafkaConnectionError(f"the connection to broker {node} ended")
            for at, error, offset, stamp in unpack_produce(raw):
                self._settle(flights.pop(at), error, Ack(offset, stamp if stamp >= 0 else None))
        except (kafka.KafkaError, ValueError, KeyError) as error:
            request.connection.close()
            self._lost(list(flights.values()), error)
        else:
            for at, flight in flights.items():
                _fail(flight.ack, LogUnavailable(f"{at[0]}[{at[1]}] was not answered"))
        if self._waiting:
            self._call()

    def _late(self, node: int) -> None:
        """Nobody knows whether it happened."""
        request = self._out.pop(node)
        request.connection.close()
        self._lost(list(request.flights.values()), kafka.RequestTimedOutError(f"broker {node}"))
        self._call()

    def _settle(self, flight: _Flight, error: int, ack: Ack) -> None:
        if not error:
            if not flight.ack.done():
                flight.ack.set_result(ack)
            return
        kind = kafka.for_code(error)
        what = f"writing to {flight.at.topic}[{flight.at.partition}]"
        if getattr(kind, "invalid_metadata", False):
            # leaders move, and a broker may not know yet what metadata told us: look again
            self._refresh()
            _fail(flight.ack, LogUnavailable(f"{what}: {kind.__name__}"))
        else:
            _fail(flight.ack, translate(kind(), what))

    def _lost(self, flights: Sequence[_Flight], error: Exception) -> None:
        self._refresh()
        for at, _, ack in flights:
            _fail(ack, translate(error, f"writing to {at.topic}[{at.partition}]"))

    def _refresh(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._spawn(self._look_again())

    async def _look_again(self) -> None:
        try:
            await self._brokers.refresh()
        except (kafka.KafkaError, OSError, TimeoutError):
            pass  # who sends again will see
        finally:
            self._refreshing = False


def _fail(ack: "asyncio.Future[Ack]", error: LogError) -> None:
    if not ack.done():
        ack.set_exception(error)
