"""The memory log keeps the contract, and does what a simulation asks of it."""

from collections.abc import AsyncIterator

import pytest

from pipeline.memory import MemoryCluster, MemoryLog
from tests.pipeline.log_contract import LogContract, WallClock


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    log = MemoryCluster(WallClock()).connect()
    yield log
    await log.close()


class TestMemory(LogContract):
    pass
