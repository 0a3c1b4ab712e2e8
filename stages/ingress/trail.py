"""Where each id of the last minutes left its first trace: what every ingress let pass or refused.

Followed from the first time that somebody supplies an id; edges mint their own and ask nothing. A
request that was let pass is in a `ready` topic, a refused one in the ledger as `output(0)`.
"""

import asyncio
from contextlib import aclosing

from pipeline import logs
from pipeline.log import Log, LogUnavailable, OffsetGone, Record, TopicPartition
from pipeline.lookup import scan
from pipeline.topics import LANES, Topics
from schemas.codec import header, name_of, text_header

from .arrival import SKEW

SPAN = 2 * SKEW + 60_000  # ms: an id and the clock of who wrote its trace may both be off
REMEMBERED = 500_000  # ids, some 150 MB: 800 a second
CATCH_UP = 60.0  # s that a record waits for it: a busy installation's last minutes are long
RETRY = 0.5  # s after a broker error

Place = tuple[TopicPartition, int]


class Trail:
    def __init__(self, log: Log, topics: Topics) -> None:
        self._log = log
        self._topics = topics
        self._places: dict[str, Place] = {}  # request id → its first trace
        self._positions: dict[TopicPartition, int] = {}
        self._wanted = asyncio.Event()
        self._caught_up = asyncio.Event()

    async def find(self, request_id: str) -> Record | None:
        """Its first trace. Raises LogUnavailable, ScanBudget where that cannot be told in time."""
        self._wanted.set()
        try:
            async with asyncio.timeout(CATCH_UP):
                await self._caught_up.wait()
        except TimeoutError as error:
            raise LogUnavailable("the trail of earlier ids is not read yet") from error
        place = self._places.get(request_id)
        if place is None:
            return None
        at, offset = place
        async with aclosing(scan(self._log, at, start=offset)) as records:
            async for record in records:
                return record
        return None

    async def run(self) -> None:
        """Until cancelled; outages are waited out."""
        await self._wanted.wait()
        while True:
            try:
                await self._follow()
            except (LogUnavailable, OffsetGone) as error:
                logs.warn("trail", error=error)
                if isinstance(error, OffsetGone):
                    self._positions.pop(error.at, None)
                await asyncio.sleep(RETRY)

    async def _follow(self) -> None:
        ends = await self._log.admin.end_offsets(self._partitions())
        await self._begin(ends)
        reader = await self._log.reader(dict(self._positions), name="trail")
        try:
            while True:
                if not self._caught_up.is_set() and all(
                    [await reader.position(at) >= end for at, end in ends.items()]
                ):
                    self._caught_up.set()
                for record in await reader.poll():
                    self._note(record)
        finally:
            await reader.close()

    async def _begin(self, ends: dict[TopicPartition, int]) -> None:
        """Positions that are not known yet: as far back as an id may be."""
        since = self._log.clock.ms() - SPAN
        unknown = {at: since for at in ends if at not in self._positions}
        if unknown:
            found = await self._log.admin.offsets_for_time(unknown)
            self._positions |= {at: ends[at] if o is None else o for at, o in found.items()}

    def _note(self, record: Record) -> None:
        self._positions[record.at] = record.offset + 1
        if record.key is None or not self._is_trace(record):
            return
        self._places.setdefault(record.key.decode("utf-8", "replace"), (record.at, record.offset))
        if len(self._places) > REMEMBERED:
            del self._places[next(iter(self._places))]

    def _is_trace(self, record: Record) -> bool:
        if record.topic != self._topics.ledger:
            return True
        kind = name_of(text_header(record.headers, "type") or "")
        return kind == "output" and header(record.headers, "attempt") == b"0"

    def _partitions(self) -> list[TopicPartition]:
        topics = [self._topics.ledger, *map(self._topics.ready, LANES)]
        count = self._topics.ledger_partitions
        return [TopicPartition(topic, number) for topic in topics for number in range(count)]
