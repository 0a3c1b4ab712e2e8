"""Finding a request in the log without a database.

Its id says in which partition its records are and since when they may be there; what lies between is
read by a reader of its own. The end is asked for before the start, so that nothing can slip between.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from schemas.codec import Unreadable, decode, int_header, name_of, text_header
from schemas.folds import LedgerFold
from schemas.ids import partition_of
from schemas.result import Result

from .log import Log, OffsetGone, Record, TopicPartition
from .topics import Topics

CHUNK = 500  # records a poll


class ScanBudget(Exception):
    """The place was not read through in time: try again later."""

    def __init__(self, at: TopicPartition, position: int, end: int) -> None:
        super().__init__(f"{at.topic}[{at.partition}] was read to {position} of {end} in time")
        self.at, self.position, self.end = at, position, end


async def scan(
    log: Log,
    at: TopicPartition,
    *,
    since_ms: int | None = None,
    start: int | None = None,
    budget: float = 5.0,
) -> AsyncGenerator[Record, None]:
    """What `at` holds now, in offset order: from `start`, else from the first record with a timestamp
    of `since_ms` or later, else from its beginning.

    `budget`: s for all of it, the caller's own work between records included. Raises ScanBudget,
    OffsetGone (`start` lies outside of what is there), UnknownTopic, LogUnavailable.
    """
    deadline = asyncio.get_running_loop().time() + budget
    end = (await log.admin.end_offsets([at]))[at]
    first = await _first(log, at, since_ms, start, end)
    if first >= end:
        return
    reader = await log.reader({at: first}, name="scan")
    try:
        # by position and not by what was read: compaction leaves offsets without a record
        while (position := await reader.position(at)) < end:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise ScanBudget(at, position, end)
            for record in await reader.poll(CHUNK, min(left, 0.5)):
                if record.offset >= end:
                    return
                yield record
    finally:
        await reader.close()


async def _first(
    log: Log, at: TopicPartition, since_ms: int | None, start: int | None, end: int
) -> int:
    if start is None and since_ms is not None:
        found = (await log.admin.offsets_for_time({at: since_ms}))[at]
        return end if found is None else found
    lowest = (await log.admin.start_offsets([at]))[at]
    if start is None:
        return lowest
    if not lowest <= start <= end:
        raise OffsetGone(at, start, lowest, end)
    return start


async def find_result(
    log: Log, topics: Topics, request_id: str, *, since_ms: int, budget: float = 5.0
) -> tuple[Record, Result] | None:
    """The result of a request: the first readable record, repeats say the same. Raises as `scan`."""
    at = TopicPartition(topics.results, partition_of(request_id, topics.ledger_partitions))
    key = request_id.encode()
    async with aclosing(scan(log, at, since_ms=since_ms, budget=budget)) as records:
        async for record in records:
            if record.key == key:
                try:
                    return record, decode(record.value, Result)
                except Unreadable:
                    continue
    return None


async def find_ledger(
    log: Log, topics: Topics, request_id: str, *, since_ms: int, budget: float = 5.0
) -> tuple[LedgerFold, dict[str, Record]] | None:
    """Who runs a request and how it ended, with the last record of each kind (`lease`, `output`,
    `released`, `cancel`) that counted; None if the ledger has nothing of it. Raises as `scan`.

    Folded by headers alone, so an unreadable value hides nothing.
    """
    at = TopicPartition(topics.ledger, partition_of(request_id, topics.ledger_partitions))
    key = request_id.encode()
    fold, counted, seen = LedgerFold(), dict[str, Record](), False
    async for record in scan(log, at, since_ms=since_ms, budget=budget):
        if record.key != key:
            continue
        seen = True
        kind = name_of(text_header(record.headers, "type") or "")
        attempt = int_header(record.headers, "attempt")
        if fold.apply(kind, -1 if attempt is None else attempt, record.offset):
            counted[kind] = record
    return (fold, counted) if seen else None
