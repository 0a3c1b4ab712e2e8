"""The eager broker with a fault, `--fault NAME`: it loses what it acknowledged, or dies at a bad moment.

The kill test has to catch every loss, and no death may lose anything.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.embedded import compaction, groups, store, topics
from pipeline.embedded.__main__ import main
from pipeline.embedded.partition import Partition, loaded
from tests.pipeline.embedded import eager  # noqa: F401 (its import makes the broker eager)

ACK_DELAY = 0.02  # s between commit and answer: a kill in between makes producers repeat
CHECKPOINT_BYTES = 100_000  # of write-ahead log: several checkpoints a second


def acknowledge_before_commit() -> None:
    """A transaction is committed when the next one begins."""

    def late(self: store.Store, group: list[Any]) -> list[Any]:
        db = self._writer
        if db.in_transaction:
            db.execute("COMMIT")
        self._number += 1
        db.execute("BEGIN IMMEDIATE")
        return [write.apply(store.Transaction(db, self._number)) for write in group]

    store.Store._commit = late  # type: ignore[method-assign]


def forget_sequences() -> None:
    """What idempotent producers sent is not known after a restart."""

    def without(db: sqlite3.Connection, partition: Partition) -> Partition:
        found = loaded(db, partition)
        found.windows.clear()
        return found

    topics.loaded = without  # type: ignore[attr-defined]
    write = store.Store.write

    async def slow(self: store.Store, *arguments: Any) -> Any:
        result = await write(self, *arguments)
        await asyncio.sleep(ACK_DELAY)
        return result

    store.Store.write = slow  # type: ignore[method-assign, assignment]


def forget_offsets() -> None:
    """A commit of offsets is acknowledged and not written."""

    async def commit(self: groups.Groups, id: str, offsets: list[groups.Committed]) -> None:
        if self._store.db.execute("SELECT count(*) FROM offsets").fetchone()[0] == 0:
            await write(self, id, offsets)

    write = groups.Groups.commit
    groups.Groups.commit = commit  # type: ignore[method-assign]


def drop_the_newest() -> None:
    """Compaction takes the newest record of a key for an old one."""

    def stays(record: Any, newest: dict[bytes, int], oldest_tombstone: int) -> bool:
        return bool(record.offset < newest.get(record.key, -1))

    compaction._stays = stays


def die_at_commit_after(statement: str) -> None:
    """The process is gone when it was about to commit such a change."""

    def watch(db: sqlite3.Connection) -> None:
        before: list[int] = []

        def saw(sql: str) -> None:
            if sql.startswith(statement):
                before[:] = [db.total_changes]
            elif sql == "COMMIT" and before:
                if db.total_changes > before[0] or statement.startswith("PRAGMA"):
                    _die()
                before.clear()

        db.set_trace_callback(saw)

    _watch(watch)


def die_in_a_checkpoint() -> None:
    """The process is gone while another thread copies the write-ahead log into the database."""
    store._CHECKPOINT_BYTES = CHECKPOINT_BYTES

    def saw(sql: str) -> None:
        if sql.startswith("PRAGMA wal_checkpoint"):
            threading.Timer(0.0002, _die).start()  # s: a checkpoint of that size takes longer

    _watch(lambda db: db.set_trace_callback(saw))


def _watch(watch: Callable[[sqlite3.Connection], None]) -> None:
    connected = store._connected

    def watched(path: Path, fsync: bool) -> sqlite3.Connection:
        db = connected(path, fsync)
        watch(db)
        return db

    store._connected = watched


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


LOSSES: dict[str, Callable[[], None]] = {
    "acknowledges before the commit": acknowledge_before_commit,
    "forgets sequences": forget_sequences,
    "forgets offsets": forget_offsets,
    "drops the newest": drop_the_newest,
}
DEATHS: dict[str, Callable[[], None]] = {
    "compaction": partial(die_at_commit_after, "UPDATE batches"),
    "retention": partial(die_at_commit_after, "DELETE FROM batches WHERE id IN"),
    "vacuum": partial(die_at_commit_after, "PRAGMA incremental_vacuum"),
    "checkpoint": die_in_a_checkpoint,
}

if __name__ == "__main__":
    at = sys.argv.index("--fault")
    name = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    {**LOSSES, **DEATHS}[name]()
    sys.exit(main())
