"""Ending a client of the library."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)
STOP_LIMIT = 5.0  # s for goodbyes to a broker that may be gone


async def stop(goodbye: Coroutine[Any, Any, None], what: str) -> None:
    """End a client, in a task of its own: a stop that is cut short would leave connections open."""
    task = asyncio.create_task(goodbye)
    await asyncio.wait({task}, timeout=STOP_LIMIT)
    if not task.done():
        task.cancel()
        logger.warning("a %s did not stop within %s s", what, STOP_LIMIT)
    elif task.cancelled() or task.exception() is not None:
        error = None if task.cancelled() else task.exception()
        logger.warning("a %s did not stop cleanly: %r", what, error)
