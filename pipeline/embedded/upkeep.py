"""What a log needs over time: retention, freed space, checkpoints, sessions that end.

All of it runs in the event loop in small steps, so that nobody waits long behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from pipeline.embedded.broker import Broker
from pipeline.embedded.compaction import compact
from pipeline.embedded.errors import StorageError
from pipeline.embedded.partition import Partition, keys
from pipeline.embedded.store import Transaction

log = logging.getLogger(__name__)

_INTERVAL = 1.0  # s between two rounds
_IDLE_MOST = 600.0  # s: Kafka's connections.max.idle.ms
_PRODUCER_MS = 86_400_000  # an idempotent producer is forgotten after a day, as in Kafka
_DELETE_STEP = 64  # batches deleted in one transaction: a few ms at most
_VACUUM_STEP = 256  # pages given back in one transaction
_FREE_MOST = 0.25  # of the file may be free pages; they are reused, and vacuum costs
_FREE_LEAST = 1024  # free pages, 4 MiB, below which giving back is not worth it


class Idle(Protocol):
    """A connection, as far as the upkeep sees it."""

    used: float

    def close(self) -> None: ...


async def run(broker: Broker, connections: Iterable[Idle]) -> None:
    """Keep up for ever. A full disk is logged and tried again in the next round."""
    rounds = 0
    while True:
        await asyncio.sleep(_INTERVAL)
        broker.groups.expire()
        _close_idle(connections)
        try:
            await keep(broker)
            if rounds % 3600 == 0:
                await _forget_producers(broker)
        except StorageError as error:
            log.error("upkeep waits for room on the disk: %s", error)
        rounds += 1


async def keep(broker: Broker) -> None:
    """One round over all partitions and the file."""
    for partition in list(broker.catalog.partitions()):
        await _retain(broker, partition)
        await compact(broker, partition)
    await _sweep(broker)
    await _vacuum(broker)
    await broker.store.checkpoint()


def _close_idle(connections: Iterable[Idle]) -> None:
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        if now - connection.used > _IDLE_MOST:
            connection.close()


async def _retain(broker: Broker, partition: Partition) -> None:
    """Move the start past what is too old, or more than is to be kept."""
    config = partition.config
    if not config.delete or partition.start == partition.end:
        return
    start = partition.start
    least = broker.now() - config.retention_ms
    if config.retention_ms >= 0 and _oldest(broker, partition) < least:
        start = _first(broker, partition, "max_timestamp", least)
    least = partition.tail.position - config.retention_bytes + 1
    if config.retention_bytes >= 0 and least > 1:
        start = max(start, _first(broker, partition, "position", least))
    if start > partition.start:
        await partition.move_start(broker.store, start)


def _oldest(broker: Broker, partition: Partition) -> int:
    """Timestamp of the first batch, read once: nothing goes before it does."""
    if partition.oldest is None or partition.oldest[0] != partition.start:
        row = broker.store.db.execute(
            "SELECT max_timestamp FROM batches WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1",
            (partition.key(partition.start), partition.keys[1]),
        ).fetchone()
        partition.oldest = partition.start, 0 if row is None else int(row[0])
    return partition.oldest[1]


def _first(broker: Broker, partition: Partition, column: str, least: int) -> int:
    """Base offset of the first batch that has `least` in the column; the end if none has."""
    row = broker.store.db.execute(
        f"SELECT base FROM batches WHERE id BETWEEN ? AND ? AND {column} >= ? ORDER BY id LIMIT 1",
        (partition.key(partition.start), partition.keys[1], least),
    ).fetchone()
    return partition.end if row is None else int(row[0])


async def _sweep(broker: Broker) -> None:
    """Delete the batches that no reader can reach: below the start, or of a topic that is gone."""
    ranges = [
        (partition.keys[0], partition.key(partition.start) - 1)
        for partition in broker.catalog.partitions()
        if partition.start > 0
    ]
    gone = broker.store.db.execute("SELECT id FROM partitions WHERE topic IS NULL").fetchall()
    for (id,) in gone:
        ranges.append(keys(id))
    for first, last in ranges:
        more = True
        while more:
            more = await broker.store.write(partial(_delete, first=first, last=last))
    for (id,) in gone:
        await broker.store.write(partial(_forget_partition, id=id))


def _delete(transaction: Transaction, first: int, last: int) -> bool:
    """Delete some batches of a range of row ids; whether there may be more."""
    deleted = transaction.db.execute(
        "DELETE FROM batches WHERE id IN"
        " (SELECT id FROM batches WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)",
        (first, last, _DELETE_STEP),
    )
    return deleted.rowcount == _DELETE_STEP


def _forget_partition(transaction: Transaction, id: int) -> None:
    transaction.db.execute("DELETE FROM producers WHERE partition = ?", (id,))
    transaction.db.execute("DELETE FROM partitions WHERE id = ?", (id,))


async def _forget_producers(broker: Broker) -> None:
    oldest = broker.now() - _PRODUCER_MS

    def apply(transaction: Transaction) -> list[tuple[int, int]]:
        return transaction.db.execute(
            "DELETE FROM producers WHERE written < ? RETURNING partition, producer", (oldest,)
        ).fetchall()

    gone = set(await broker.store.write(apply))
    for partition in broker.catalog.partitions():
        for producer in [each for each in partition.windows if (partition.id, each) in gone]:
            del partition.windows[producer]


async def _vacuum(broker: Broker) -> None:
    """Give free pages back to the disk when they are many."""
    while True:
        (free,) = broker.store.db.execute("PRAGMA freelist_count").fetchone()
        (pages,) = broker.store.db.execute("PRAGMA page_count").fetchone()
        if free < max(_FREE_LEAST, _FREE_MOST * pages):
            return
        await broker.store.write(
            lambda transaction: transaction.db.execute(
                f"PRAGMA incremental_vacuum({_VACUUM_STEP})"
            ).fetchall()
        )
        await asyncio.sleep(0)
