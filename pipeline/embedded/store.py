"""One SQLite file (WAL): opened, checked and locked; writes that wait together share a commit."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipeline.embedded.errors import StartError, StorageError

T = TypeVar("T")

DATA_VERSION = 1
_CHECK_SECONDS = 0.2  # CPU time of a start for the integrity check: a large file's first part
_CHECKPOINT_BYTES = 4 << 20  # WAL size at which a checkpoint pays
_WAL_LIMIT_BYTES = 64 << 20  # WAL size at which writes wait for the checkpoint

_SCHEMA = f"""
PRAGMA user_version = {DATA_VERSION};
CREATE TABLE facts (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    configs TEXT NOT NULL          -- JSON object: what was set, without the defaults
) STRICT;
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic INTEGER,                 -- NULL: the topic is gone, the batches still go
    number INTEGER NOT NULL,
    start INTEGER NOT NULL DEFAULT 0   -- log start offset
) STRICT;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY,        -- partition << 44 | last offset: one seek finds any offset
    base INTEGER NOT NULL,         -- base offset
    max_timestamp INTEGER NOT NULL,
    latest INTEGER NOT NULL,       -- highest timestamp up to here: rises, so time is searchable
    position INTEGER NOT NULL,     -- bytes of the partition's log up to and with this batch
    batch BLOB NOT NULL
) STRICT;
CREATE TABLE producers (           -- idempotent producers: their last five sequences
    partition INTEGER NOT NULL,
    producer INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    sequences TEXT NOT NULL,
    written INTEGER NOT NULL,      -- ms
    PRIMARY KEY (partition, producer)
) STRICT, WITHOUT ROWID;
CREATE TABLE offsets (
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;
"""


class Transaction(NamedTuple):
    """One open transaction; `number` tells writes in it from writes in an earlier one."""

    db: sqlite3.Connection
    number: int


class Store:
    """The database of one broker. Reads go straight to `db`; writes go through `write`."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        self.path = directory / "log.sqlite3"
        self.fsync = fsync
        self._lock = _locked(directory)
        try:
            self._writer = _opened(self.path, fsync)
            # a thread commits when fsync is on, so reads need a connection of their own
            self.db = _connected(self.path, fsync) if fsync else self._writer
        except (sqlite3.Error, StartError) as error:
            os.close(self._lock)
            if isinstance(error, StartError):
                raise
            raise StartError(
                f"{self.path} cannot be opened: {error}; free some space, mend the folder's rights,"
                " or name another directory"
            ) from error
        self._number = 0
        self._waiting: list[_Write] = []
        self._flush: asyncio.Task[None] | None = None
        self._hold = asyncio.Lock()

    async def write(
        self, apply: Callable[[Transaction], T], publish: Callable[[T], None] = lambda _: None
    ) -> T:
        """Run `apply` inside a transaction and return its result once that is committed.

        `apply` sees what earlier writes of the same transaction did, and changes nothing in
        memory that would be wrong after a rollback; that is for `publish`, which runs right after
        the commit, even if the caller is gone. Raises `StorageError`: nothing was kept.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(apply, publish, future))
        if self._flush is None:
            self._flush = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            async with self._hold:
                group, self._waiting = self._waiting, []
                try:
                    if self.fsync:
                        results = await asyncio.to_thread(self._commit, group)
                    else:
                        results = self._commit(group)
                except sqlite3.Error as error:
                    _fail(group, StorageError(f"{self.path.name}: {error}"))
                    continue
                except Exception as error:  # noqa: BLE001 (whoever waits for the write gets it)
                    _fail(group, error)
                    continue
                for write, result in zip(group, results, strict=True):
                    write.publish(result)
                    if not write.future.done():
                        write.future.set_result(result)
        self._flush = None

    def _commit(self, group: list[_Write]) -> list[Any]:
        self._number += 1
        db = self._writer
        db.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(db, self._number)
            results = [write.apply(transaction) for write in group]
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite rolls back by itself on some errors, a full disk is one
                db.execute("ROLLBACK")
            raise
        return results

    async def checkpoint(self) -> None:
        """Move what the write-ahead log holds into the database, beside the writes if possible.

        Raises `StorageError`: the log keeps what did not fit.
        """
        size = self._wal_size()
        if size < _CHECKPOINT_BYTES:
            return
        await asyncio.to_thread(self._checkpoint, "PASSIVE")
        if size > _WAL_LIMIT_BYTES:
            # under steady writes a passive checkpoint never catches up, and the log would grow
            async with self._hold:
                await asyncio.to_thread(self._checkpoint, "RESTART")

    def _checkpoint(self, mode: str) -> None:
        try:
            with contextlib.closing(_connected(self.path, self.fsync)) as db:
                db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            raise StorageError(f"{self.path.name}: {error}") from error

    def _wal_size(self) -> int:
        try:
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    async def close(self) -> None:
        """Finish the waiting writes, empty the write-ahead log, give the directory back."""
        if self._flush is not None:
            await self._flush
        self.db.close()
        self._writer.close()  # the last connection to close checkpoints
        os.close(self._lock)


class _Write(NamedTuple):
    apply: Callable[[Transaction], Any]
    publish: Callable[[Any], None]
    future: asyncio.Future[Any]


def _fail(group: list[_Write], error: Exception) -> None:
    for write in group:
        if not write.future.done():
            write.future.set_exception(error)


def _locked(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StartError(f"{directory} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StartError(f"{directory} is in use by another broker: stop that one first") from error
    return lock


def _connected(path: Path, fsync: bool) -> sqlite3.Connection:
    # the store itself sees to it that one thread at a time uses a connection
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    return db


def _opened(path: Path, fsync: bool) -> sqlite3.Connection:
    """The writing connection, after the checks; a new file gets the tables."""
    db = _connected(path, fsync)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > DATA_VERSION:
        db.close()
        raise StartError(
            f"{path} has data version {version}, this broker reads up to {DATA_VERSION}:"
            " start the newer release, or another directory"
        )
    if version == 0:
        db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    elif (found := _damage(db)) is not None:
        db.close()
        raise StartError(f"{path} is damaged ({found}): restore a copy, or use another directory")
    return db


def _damage(db: sqlite3.Connection) -> str | None:
    """What the integrity check finds wrong in the time it has, or None."""
    deadline = time.process_time() + _CHECK_SECONDS
    db.set_progress_handler(lambda: time.process_time() > deadline, 10_000)
    try:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        return None if found == "ok" else " ".join(found.split())
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            return None
        raise
    finally:
        db.set_progress_handler(None, 0)
