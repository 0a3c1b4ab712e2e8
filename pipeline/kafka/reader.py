"""Reading partitions through an aiokafka consumer."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors as kafka

from ..log import LogUnavailable, OffsetGone, Record, TopicPartition
from .admin import KafkaAdmin
from .errors import translate, translated
from .options import FETCH_WAIT, IDLE_AFTER, IDLE_WAIT
from .stopping import stop
from .unopened import CANNOT_OPEN, step_over

PATIENCE = 2.5  # s beyond a fetch's wait, after which the log counts as unavailable


class KafkaReader:
    def __init__(
        self, consumer: AIOKafkaConsumer, admin: KafkaAdmin, *, fetch_wait: int = FETCH_WAIT
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._busy_wait = self._wait = fetch_wait
        self._next: dict[KafkaPartition, int] = {}  # what the next poll is owed, where we know it
        self._loop = asyncio.get_running_loop()
        self._fetch: asyncio.Task[dict[Any, list[Any]]] | None = None
        self._heard = self._loop.time()  # of the last sign of the broker's life
        self._heard_ms: int | None = None
        self._polled = self._heard
        self._busy = self._heard  # when something last came
        self.closed = False

    async def start(self, positions: Mapping[TopicPartition, int]) -> None:
        with translated("starting a reader"):
            try:
                await self._consumer.start()
            except BaseException:
                await self._stop()
                raise
        self._consumer.assign([KafkaPartition(*at) for at in positions])
        for at, offset in positions.items():
            self.seek(at, offset)
        await asyncio.sleep(0)  # the client's tasks must have begun before they can be stopped

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        if max_records < 1:
            raise ValueError(f"a poll for {max_records} records")
        if self.closed:
            raise LogUnavailable("the reader is closed")
        began = self._loop.time()
        if began - self._polled > 1.0:  # we were away ourselves: count from now
            self._heard = began
        if self._fetch is None:
            self._fetch = asyncio.create_task(
                self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=max_records)
            )
        batches: list[tuple[Any, list[Any]]]
        try:
            # a getmany must never be cancelled; a cancelled poll leaves it to the next one
            batches = list((await asyncio.shield(self._fetch)).items())
        except kafka.OffsetOutOfRangeError as error:
            raise await self._gone(error) from error
        except CANNOT_OPEN as error:
            with translated("stepping over a batch"):
                await self._rewind()
                batches = await step_over(self._consumer, error, max_records)
        except kafka.ConsumerStoppedError as error:
            raise LogUnavailable("the reader is closed") from error
        except (kafka.KafkaError, OSError) as error:
            raise translate(error, "polling") from error
        finally:
            if self._fetch.done():
                self._fetch = None
            self._polled = self._loop.time()
        if self._polled - began > timeout + 1.0:  # held up by a rebalance or by ourselves
            self._heard = self._polled
        self._pace()
        if not batches:
            self._listen()
            return []
        self._heard = self._busy = self._polled
        for partition, records in batches:
            if records:
                self._next[partition] = records[-1].offset + 1
        return [_record(each) for _, records in batches for each in records]

    async def position(self, at: TopicPartition) -> int:
        with translated(f"the position in {at}"):
            async with asyncio.timeout(10):
                position: int = await self._consumer.position(KafkaPartition(*at))
                return position

    def seek(self, at: TopicPartition, offset: int) -> None:
        partition = KafkaPartition(*at)
        self._consumer.seek(partition, offset)
        self._next[partition] = offset

    def end_seen(self, at: TopicPartition) -> int | None:
        end: int | None = self._consumer.highwater(KafkaPartition(*at))
        return end

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            await self._stop()

    async def _stop(self) -> None:
        await stop(self._consumer.stop(), "consumer")

    def _pace(self) -> None:
        """Long fetches while nothing comes: they are what an idle system costs."""
        idle = self._polled - self._busy > IDLE_AFTER
        wait = IDLE_WAIT if idle else self._busy_wait
        if wait != self._wait:
            self._wait = self._consumer._fetcher._fetch_max_wait_ms = wait

    async def _rewind(self) -> None:
        """A poll that failed half-way has lost what it had taken from other partitions: take it again."""
        for partition in self._consumer.assignment():
            if (offset := self._next.get(partition)) is not None:
                self._consumer.seek(partition, offset)
            elif (committed := await self._consumer.committed(partition)) is not None:
                self._consumer.seek(partition, committed)
            else:
                await self._consumer.seek_to_beginning(partition)

    async def _gone(self, error: kafka.OffsetOutOfRangeError) -> OffsetGone:
        ((partition, offset),) = error.args[0].items()
        at = TopicPartition(*partition)
        starts = await self._admin.start_offsets([at])
        ends = await self._admin.end_offsets([at])
        return OffsetGone(at, offset, starts[at], ends[at])

    def _listen(self) -> None:
        """Fetches that fail are silent in the client: notice it by answers that stay away."""
        stamps = [
            stamp
            for at in self._consumer.assignment()
            if (stamp := self._consumer.last_poll_timestamp(at)) is not None
        ]
        latest = max(stamps, default=None)
        if latest != self._heard_ms or not self._consumer.assignment():
            self._heard_ms = latest
            self._heard = self._polled
        if self._polled - self._heard > IDLE_WAIT / 1000 + PATIENCE:
            raise LogUnavailable(f"no fetch was answered for {self._polled - self._heard:.1f} s")


def _record(each: Any) -> Record:
    headers = each.headers
    if headers:
        headers = tuple((name, value if value is not None else b"") for name, value in headers)
    return Record(
        each.topic, each.partition, each.offset, each.timestamp, each.key, each.value, headers
    )
