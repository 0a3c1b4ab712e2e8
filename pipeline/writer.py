"""The order of writes, over anything that can append a batch to one partition.

One batch of a partition is under way at a time; what is sent meanwhile makes the next one, so a busy
partition gets big batches and an idle one no delay. A batch that failed goes back to the front and is
sent again before anything newer. The Kafka adapter and the memory log both stand on this.
"""

import asyncio
import logging
from collections import deque

from .batches import BACKOFF, Ack, Entry, PartitionQueue, Transport, size_of
from .log import (
    Clock,
    LogUnavailable,
    NotAuthorized,
    Outgoing,
    Placed,
    RecordTooLarge,
    TopicPartition,
    UnknownTopic,
)
from .router import Router

logger = logging.getLogger(__name__)

PENDING_RECORDS = 20_000  # beyond either, room() waits
PENDING_BYTES = 64 << 20
WATCH = 5.0  # s between two looks at what is under way
SEND_LIMIT = 25.0  # s; a transport gives up by itself after 20, so beyond it it is wedged
CLOSE_GRACE = 2.0  # s that close() waits for acks


class OrderedWriter:
    """The Writer of every adapter. Order holds within a partition."""

    def __init__(self, transport: Transport, clock: Clock, *, max_request_size: int) -> None:
        self._transport = transport
        self._clock = clock
        self._max = max_request_size
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready: list[PartitionQueue] = []
        self._router = Router(transport.partitions, self._enqueue, self._fail)
        self._waiters: list[asyncio.Future[None]] = []
        self._watch: asyncio.TimerHandle | None = None
        self._number = self._records = self._bytes = 0
        self._pumping = self._closed = False

    @property
    def pending(self) -> int:
        return self._records

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def oldest(self) -> float | None:
        """Loop time at which the oldest unacked record was sent: a watchdog's measure."""
        entry = self._oldest()
        return entry.sent if entry else None

    def send(self, record: Outgoing) -> "asyncio.Future[Placed]":
        future: asyncio.Future[Placed] = self._loop.create_future()
        size = size_of(record)
        if self._closed:
            future.set_exception(LogUnavailable("the writer is closed"))
            return future
        if size > self._max:
            future.set_exception(
                RecordTooLarge(f"{record.topic}: {size} bytes, {self._max} are allowed")
            )
            return future
        if record.timestamp is None:
            record = Outgoing(*record[:5], self._clock.ms())
        self._number += 1
        self._records += 1
        self._bytes += size
        self._router.route(Entry(record, future, size, self._number, self._loop.time()))
        return future

    async def room(self) -> None:
        while not self._closed and (
            self._records >= PENDING_RECORDS or self._bytes >= PENDING_BYTES
        ):
            await self._progress()

    async def flush(self, timeout: float = 10.0) -> None:
        last = self._number
        try:
            async with asyncio.timeout(timeout):
                while (entry := self._oldest()) and entry.number <= last:
                    await self._progress()
        except TimeoutError as error:
            raise LogUnavailable(f"{self._records} records unacked after {timeout} s") from error

    def abandon(self) -> None:
        """The process is gone: nothing is sent any more, and no future is ever resolved."""
        self._closed = True
        self._router.stop()
        for queue in self._queues.values():
            if queue.retry is not None:
                queue.retry.cancel()
        if self._watch is not None:
            self._watch.cancel()

    async def close(self) -> None:
        """Waits a little for acks, then fails what has none."""
        if self._closed:
            return
        try:
            await self.flush(CLOSE_GRACE)
        except LogUnavailable as error:
            logger.warning("closing a writer: %s", error)
        self.abandon()
        self._fail(self._unacked(), LogUnavailable("the writer was closed before an ack"))
        await self._transport.close()

    def _enqueue(self, at: TopicPartition, entry: Entry) -> None:
        queue = self._queues.get(at)
        if queue is None:
            queue = self._queues[at] = PartitionQueue(at)
        queue.waiting.append(entry)
        if len(queue.waiting) == 1 and queue.idle:
            self._wake(queue)

    # batches under way

    def _wake(self, queue: PartitionQueue) -> None:
        self._ready.append(queue)
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        ready, self._ready = self._ready, []
        for queue in ready:
            if queue.idle and queue.waiting and not self._closed:
                self._launch(queue)

    def _launch(self, queue: PartitionQueue) -> None:
        queue.flight = queue.take()
        ack = self._transport.append(queue.at, [entry.record for entry in queue.flight])
        queue.ack, queue.launched = ack, self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(WATCH, self._look_after)
        ack.add_done_callback(lambda done: self._settle(queue, done))

    def _look_after(self) -> None:
        """One timer for all that is under way: one per batch would cost as much as the batch."""
        self._watch = None
        late = self._loop.time() - SEND_LIMIT
        flying = [queue for queue in self._queues.values() if queue.flight]
        for queue in flying:
            if queue.launched <= late and queue.ack is not None and not queue.ack.done():
                queue.ack.set_exception(LogUnavailable(f"no answer within {SEND_LIMIT} s"))
        if flying:
            self._watch = self._loop.call_later(WATCH, self._look_after)

    def _settle(self, queue: PartitionQueue, done: "asyncio.Future[Ack]") -> None:
        error = done.exception() if not done.cancelled() else LogUnavailable("the send was stopped")
        if self._closed:
            return
        batch, queue.flight = queue.flight, []
        if error is None:
            self._acknowledge(queue, batch, done.result())
        elif isinstance(error, UnknownTopic | NotAuthorized) or (
            len(batch) == 1 and not isinstance(error, LogUnavailable)
        ):
            queue.singly = max(0, queue.singly - len(batch))
            self._router.forget(queue.at.topic)  # it may come back with another shape
            self._fail(batch, error)
        elif isinstance(error, LogUnavailable):
            self._rest(queue, batch, error)
        else:  # one of them is refused: send singly, so that the others go through
            queue.singly = len(batch)
            queue.waiting.extendleft(reversed(batch))
        if queue.waiting and queue.idle:
            self._wake(queue)
        self._tell()

    def _acknowledge(self, queue: PartitionQueue, batch: list[Entry], ack: Ack) -> None:
        queue.failures = 0
        queue.singly = max(0, queue.singly - len(batch))
        topic, partition = queue.at
        for i, entry in enumerate(batch):
            self._bytes -= entry.size
            if not entry.future.done():
                stamp = entry.record.timestamp if ack.timestamp is None else ack.timestamp
                assert stamp is not None
                entry.future.set_result(Placed(topic, partition, ack.base + i, stamp))
        self._records -= len(batch)

    def _rest(self, queue: PartitionQueue, batch: list[Entry], error: BaseException) -> None:
        delay = BACKOFF[min(queue.failures, len(BACKOFF) - 1)]
        queue.failures += 1
        queue.resting = True
        queue.waiting.extendleft(reversed(batch))
        if queue.failures % 20 == 1:  # once, and then every 20 s
            logger.warning(
                "%s[%d]: %d records unacked, sending them again: %s", *queue.at, len(batch), error
            )
        queue.retry = self._loop.call_later(delay, self._again, queue)

    def _again(self, queue: PartitionQueue) -> None:
        queue.resting = False
        self._wake(queue)

    # books

    def _fail(self, entries: list[Entry], error: BaseException) -> None:
        for entry in entries:
            self._records -= 1
            self._bytes -= entry.size
            if not entry.future.done():
                entry.future.set_exception(error)
        self._tell()

    def _unacked(self) -> list[Entry]:
        found = self._router.take()
        for queue in self._queues.values():
            found += [*queue.flight, *queue.waiting]
            queue.flight, queue.waiting = [], deque()
        return found

    def _oldest(self) -> Entry | None:
        heads = self._router.heads()
        heads += [entry for queue in self._queues.values() if (entry := queue.oldest())]
        return min(heads, key=lambda entry: entry.number, default=None)

    async def _progress(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
