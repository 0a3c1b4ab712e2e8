"""Takes a writer's batches to the brokers through an aiokafka producer.

acks=all, and no idempotence: the client's idempotent producer is wedged for ever by one failed batch.
A producer that keeps failing is replaced; the old one's batch may still land later, which readers must
take anyway (epochs, counters, `k`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka

from ..batches import BATCH_BYTES, Ack
from ..log import LogError, LogUnavailable, Outgoing, TopicPartition
from .errors import translate, translated
from .stopping import stop

logger = logging.getLogger(__name__)
STRIKES = 3  # failures in a row, each after REQUEST_TIMEOUT or a lost connection
SETTLE_LIMIT = 20.0  # s: a batch fails by itself after at most two request timeouts
POST_LIMIT = 15.0  # s to hand one batch over; longer means that the client is wedged


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
        self._producer: AIOKafkaProducer | None = None
        self._queue: asyncio.Queue[
            tuple[TopicPartition, Sequence[Outgoing], asyncio.Future[Ack]]
        ] = asyncio.Queue()
        self._flights: set[asyncio.Future[Any]] = set()  # of the present producer
        self._strikes = 0
        self._sender: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._producer = await self._start()
        self._sender = asyncio.create_task(self._send())

    async def partitions(self, topic: str) -> int:
        return await self._partitions(topic)

    def append(self, at: TopicPartition, batch: Sequence[Outgoing]) -> "asyncio.Future[Ack]":
        ack: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((at, batch, ack))
        return ack

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        if self._producer is not None:
            await stop(self._producer.stop(), "producer")
        if self._stopping:
            await asyncio.wait(self._stopping)

    async def _start(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            **self._options,
            acks="all",
            enable_idempotence=False,
            max_batch_size=self._batch_size,
            linger_ms=0,  # while one request is out, the next batch grows by itself
        )
        with translated("starting a writer"):
            try:
                await producer.start()
            except BaseException:
                await stop(producer.stop(), "producer")
                raise
        return producer

    async def _send(self) -> None:
        """The one task that sends."""
        while True:
            at, batch, ack = await self._queue.get()
            if self._strikes >= STRIKES:
                await self._replace()
            if ack.done():  # the writer gave up on it
                continue
            try:
                async with asyncio.timeout(POST_LIMIT):
                    await self._post(at, batch, ack)
            except (kafka.KafkaError, TimeoutError, OSError) as error:
                told = translate(error, f"sending to {at.topic}[{at.partition}]")
                if isinstance(told, LogUnavailable):
                    self._strikes = STRIKES
                _fail(ack, told)
            except Exception as error:  # noqa: BLE001 - a record that cannot be built; the task goes on
                _fail(ack, LogError(f"{at.topic}[{at.partition}] cannot be written: {error!r}"))

    async def _post(
        self, at: TopicPartition, batch: Sequence[Outgoing], ack: "asyncio.Future[Ack]"
    ) -> None:
        assert self._producer is not None
        await self._know(at)
        builder = self._producer.create_batch()
        for record in batch:
            builder.append(
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
        builder.close()
        delivery = await self._producer.send_batch(builder, at.topic, partition=at.partition)
        self._flights.add(delivery)
        delivery.add_done_callback(lambda done: self._settle(at, done, ack))
        ack.add_done_callback(self._judge)

    async def _know(self, at: TopicPartition) -> None:
        """The client refuses a partition that its metadata do not have: a topic may have grown."""
        assert self._producer is not None
        if at.partition not in await self._producer.partitions_for(at.topic):
            await self._producer.client.force_metadata_update()
            if at.partition not in await self._producer.partitions_for(at.topic):
                raise kafka.LeaderNotAvailableError(f"{at.topic}[{at.partition}]")

    def _settle(
        self, at: TopicPartition, done: "asyncio.Future[Any]", ack: "asyncio.Future[Ack]"
    ) -> None:
        self._flights.discard(done)
        error = kafka.KafkaError("cancelled") if done.cancelled() else done.exception()
        if ack.done():
            return
        if error is None:
            placed = done.result()
            stamped = placed.timestamp_type == 1
            ack.set_result(Ack(placed.offset, placed.timestamp if stamped else None))
        elif isinstance(error, Exception):
            _fail(ack, translate(error, f"writing to {at.topic}[{at.partition}]"))

    def _judge(self, ack: "asyncio.Future[Ack]") -> None:
        if ack.cancelled():
            return
        unavailable = isinstance(ack.exception(), LogUnavailable)
        self._strikes = self._strikes + 1 if unavailable else 0

    async def _replace(self) -> None:
        """Let all that is under way come to an end, then go on with a new producer."""
        assert self._producer is not None
        if self._flights:
            await asyncio.wait(self._flights, timeout=SETTLE_LIMIT)
        while True:
            try:
                fresh = await self._start()
                break
            except LogUnavailable as error:
                logger.warning("a writer that kept failing cannot be replaced yet: %s", error)
                await asyncio.sleep(1.0)
        logger.warning("a writer kept failing and was replaced")
        old, self._producer = self._producer, fresh
        self._flights, self._strikes = set(), 0
        task = asyncio.create_task(stop(old.stop(), "producer"))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


def _fail(ack: "asyncio.Future[Ack]", error: LogError) -> None:
    if not ack.done():
        ack.set_exception(error)
