"""Reading partitions: polls, and what to make of refusals and of silence."""

import asyncio
from collections.abc import Mapping

from aiokafka import errors as kafka

from ..log import LogUnavailable, NotAuthorized, OffsetGone, Record, TopicPartition
from . import options
from .admin import KafkaAdmin
from .brokers import Brokers
from .errors import translated
from .fetcher import Fetcher

PATIENCE = 2.5  # s beyond a fetch's wait, after which the log counts as unavailable
LONG = 0.1  # s: a wait that is shorter ends exactly when it is over
AWAY = 1.0  # s: a poll that comes so late says that we stood still, not the broker


class KafkaReader:
    def __init__(self, brokers: Brokers, admin: KafkaAdmin, name: str) -> None:
        self._brokers = brokers
        self._admin = admin
        self._fetcher = Fetcher(brokers, name)
        self._loop = asyncio.get_running_loop()
        self._polled = self._loop.time()
        self.closed = False

    async def start(self, positions: Mapping[TopicPartition, int]) -> None:
        with translated("starting a reader"):
            await self._brokers.know({at.topic for at in positions})
        self._fetcher.assign(positions)

    async def poll(self, max_records: int = 500, timeout: float = 0.5) -> list[Record]:
        if max_records < 1:
            raise ValueError(f"a poll for {max_records} records")
        began = self._loop.time()
        deadline = _in_step(began + timeout, timeout)
        if began - self._polled > AWAY:
            self._fetcher.heard = began
        waiting = True
        while True:
            if self.closed:
                raise LogUnavailable("the reader is closed")
            records = self._fetcher.poll(max_records)
            if records or not waiting:
                break
            await self._judge()
            with translated("polling"):
                waiting = await self._fetcher.arrival(deadline)
        self._polled = self._loop.time()
        if not records:
            self._listen(late=self._polled - began > timeout + AWAY)
        return records

    async def position(self, at: TopicPartition) -> int:
        return self._fetcher.place(at).position

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._fetcher.seek(at, offset)

    def end_seen(self, at: TopicPartition) -> int | None:
        return self._fetcher.end(at)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            await self._fetcher.close()

    async def _judge(self) -> None:
        """Raise what a leader refused."""
        fault = self._fetcher.fault()
        if fault is None:
            return
        at, offset, kind = fault
        if kind is kafka.OffsetOutOfRangeError:
            await self._gone(at, offset)
        else:
            raise NotAuthorized(f"the right Read is missing for {at.topic}: {kind.__name__}")

    async def _gone(self, at: TopicPartition, offset: int) -> None:
        starts = await self._admin.start_offsets([at])
        ends = await self._admin.end_offsets([at])
        raise OffsetGone(at, offset, starts[at], ends[at])

    def _listen(self, *, late: bool) -> None:
        """Fetches that fail are tried again: notice it by answers that stay away."""
        self._fetcher.give_up_silent()
        if late or not self._expected():
            self._fetcher.heard = self._polled
        silent = self._polled - self._fetcher.heard
        if silent > options.FETCH_WAIT / 1000 + PATIENCE:
            raise LogUnavailable(
                f"no fetch was answered for {silent:.1f} s; {self._fetcher.trouble or 'silence'}"
            )

    def _expected(self) -> bool:
        """Whether there is anything that a leader could answer."""
        return True


def _in_step(deadline: float, timeout: float) -> float:
    """A long wait ends up to a quarter early, at a round time: idle readers fall into step, and one
    wake-up ends many polls."""
    return deadline - deadline % (timeout / 4) if timeout >= LONG else deadline
