"""Compaction: of every key only the newest record stays. Kafka's log cleaner, batch by batch.

The last batch of a partition is never touched: its row says where the log ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

from pipeline.embedded.batch import rebuilt, records
from pipeline.embedded.broker import Broker
from pipeline.embedded.errors import Refused
from pipeline.embedded.partition import Partition
from pipeline.embedded.store import Transaction

log = logging.getLogger(__name__)

_KEYS_MOST = 100_000  # keys in one pass, some 20 MB; the next pass goes on where this one stopped


class _Row(NamedTuple):
    key: int
    max_timestamp: int
    position: int
    batch: bytes


async def compact(broker: Broker, partition: Partition) -> None:
    """One pass, if the part that was not compacted yet is large enough."""
    if not partition.config.compact or not _is_due(broker, partition):
        return
    last = partition.key(partition.end - 1)  # the row that stays as it is
    newest, upto = await _newest(broker, partition, last)
    oldest_tombstone = broker.now() - partition.config.delete_retention_ms
    key, position = partition.key(partition.start), partition.compacted_position
    while (row := _next_row(broker, key, upto - 1)) is not None:
        there = _records(partition, row)
        kept = [record for record in there if _stays(record, newest, oldest_tombstone)]
        if len(kept) < len(there):
            await _rewrite(broker, row, kept)
        key, position = row.key + 1, row.position
        await asyncio.sleep(0)
    partition.compacted, partition.compacted_position = partition.offset(upto - 1) + 1, position


def _is_due(broker: Broker, partition: Partition) -> bool:
    first = _next_row(broker, partition.key(partition.start), partition.keys[1])
    last = _next_row(broker, partition.key(partition.end - 1), partition.keys[1])
    if first is None or last is None or first.key == last.key:
        return False
    begin, end = first.position - len(first.batch), last.position - len(last.batch)
    dirty = end - max(partition.compacted_position, begin)
    return dirty > partition.config.dirty_ratio * (end - begin)


async def _newest(broker: Broker, partition: Partition, last: int) -> tuple[dict[bytes, int], int]:
    """(key → its highest offset in the part not compacted yet, row id where that part ends)."""
    newest: dict[bytes, int] = {}
    youngest = broker.now() - partition.config.min_compaction_lag_ms
    key = partition.key(max(partition.compacted, partition.start))
    while (row := _next_row(broker, key, last - 1)) is not None:
        if row.max_timestamp > youngest or len(newest) >= _KEYS_MOST:
            break
        for record in _records(partition, row):
            if record.key is not None:
                newest[record.key] = record.offset
        key = row.key + 1
        await asyncio.sleep(0)
    return newest, key


def _records(partition: Partition, row: _Row) -> list[Any]:
    """The records of a batch; none if the topic's limits no longer let it be opened."""
    try:
        return list(records(row.batch, partition.config.limits.max_decompressed_bytes))
    except Refused as refused:
        log.warning("%s/%d: a batch stays as it is: %s", partition.topic, partition.number, refused)
        return []


def _stays(record: Any, newest: dict[bytes, int], oldest_tombstone: int) -> bool:
    if record.key is None:
        return True
    if record.offset < newest.get(record.key, -1):
        return False
    return record.value is not None or record.timestamp >= oldest_tombstone


async def _rewrite(broker: Broker, row: _Row, kept: list[Any]) -> None:
    def replace(transaction: Transaction) -> None:
        if kept:
            timestamp = max(record.timestamp for record in kept)
            transaction.db.execute(
                "UPDATE batches SET batch = ? WHERE id = ?",
                (rebuilt(row.batch, kept, timestamp), row.key),
            )
        else:
            transaction.db.execute("DELETE FROM batches WHERE id = ?", (row.key,))

    await broker.store.write(replace)


def _next_row(broker: Broker, key: int, last: int) -> _Row | None:
    row = broker.store.db.execute(
        "SELECT id, max_timestamp, position, batch FROM batches WHERE id BETWEEN ? AND ?"
        " ORDER BY id LIMIT 1",
        (key, last),
    ).fetchone()
    return None if row is None else _Row._make(row)
