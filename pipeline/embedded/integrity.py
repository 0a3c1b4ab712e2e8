"""Whether a database file is what SQLite wrote, as far as a start has time to look."""

from __future__ import annotations

import sqlite3
import time

_CHECK_SECONDS = 0.2  # CPU time of a start for the integrity check: a large file's first part


def damage(db: sqlite3.Connection) -> str | None:
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
