"""What the handlers share: the store, the topics, the groups, and who this broker is."""

from __future__ import annotations

import base64
import os
import time
from typing import NamedTuple

from pipeline.embedded.groups import Groups
from pipeline.embedded.store import Store, Transaction
from pipeline.embedded.topics import Catalog

NODE_ID = 1
_PRODUCER_BLOCK = 1000  # producer ids taken from disk at once; a restart skips the rest


class Call(NamedTuple):
    """Who asks: the API version, the client's name for itself, its host."""

    version: int
    client_id: str
    host: str


class Broker:
    """One broker, which is the whole cluster."""

    def __init__(self, store: Store, host: str, port: int) -> None:
        self.store = store
        self.host = host
        self.port = port
        self.catalog = Catalog(store)
        self.groups = Groups(store)
        self.cluster_id = ""
        self._producer_ids = iter(range(0))

    async def start(self) -> None:
        """Give a new cluster its id."""
        new = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()

        def apply(transaction: Transaction) -> str:
            db = transaction.db
            db.execute("INSERT OR IGNORE INTO facts VALUES ('cluster_id', ?)", (new,))
            return str(
                db.execute("SELECT value FROM facts WHERE name = 'cluster_id'").fetchone()[0]
            )

        self.cluster_id = await self.store.write(apply)

    async def new_producer_id(self) -> int:
        """A producer id that was never given before."""
        while (id := next(self._producer_ids, None)) is None:

            def apply(transaction: Transaction) -> int:
                db = transaction.db
                db.execute("INSERT OR IGNORE INTO facts VALUES ('producer_id', 0)")
                (first,) = db.execute(
                    "UPDATE facts SET value = value + ? WHERE name = 'producer_id'"
                    " RETURNING value - ?",
                    (_PRODUCER_BLOCK, _PRODUCER_BLOCK),
                ).fetchone()
                return int(first)

            first = await self.store.write(apply)
            self._producer_ids = iter(range(first, first + _PRODUCER_BLOCK))
        return id

    def now(self) -> int:
        """Wall time in ms, as timestamps in the log are."""
        return time.time_ns() // 1_000_000
