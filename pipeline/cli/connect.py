"""A connection to this installation's broker, for commands that look."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from pipeline.clock import WallClock
from pipeline.log import Log, LogError
from pipeline.lookup import ScanBudget
from pipeline.supervisor.home import Home
from pipeline.topics import Topics

from .options import settings
from .say import error


def with_log(work: Callable[[Log, Topics], Awaitable[int]], kafka: str | None = None) -> int:
    """Run `work` at the address given, else on the running installation's broker, else where the
    settings say."""
    loaded = settings(**{"kafka.bootstrap": kafka})
    state = Home(Path(loaded.home)).read_state()
    if kafka is None and state is not None and state["kafka"]:
        loaded = settings(**{"kafka.bootstrap": state["kafka"]})

    async def connected() -> int:
        from pipeline.kafka import connect

        log = await connect(loaded.kafka, WallClock(), client_id="headrace-cli")
        try:
            return await work(log, Topics.of(loaded))
        finally:
            await log.close()

    try:
        return asyncio.run(connected())
    except (LogError, ScanBudget) as fault:
        return error(f"Kafka at {loaded.kafka.bootstrap}: {fault}")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 0
