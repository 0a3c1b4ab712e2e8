"""What was acknowledged survives the death of the process, whatever it was doing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.embedded import kill
from tests.pipeline.embedded.faulty import DEATHS, LOSSES

FAULTY = "tests.pipeline.embedded.faulty"
COMPLAINTS = {
    "acknowledges before the commit": "is lost",
    "forgets sequences": "is there twice",
    "forgets offsets": "the committed offset went back",
    "drops the newest": "went back",
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # twenty restarts and checks on a busy machine
async def test_acknowledged_records_and_offsets_survive_twenty_kills(tmp_path: Path) -> None:
    """Idempotent records are there once, all in order, and what was committed stays committed."""
    await kill.run(kill.eager(tmp_path), times=20, seed=4)


@pytest.mark.parametrize("moment", DEATHS)
async def test_a_death_inside_the_upkeep_loses_nothing(tmp_path: Path, moment: str) -> None:
    async def dies(broker: EmbeddedBroker) -> None:
        broker.kill()
        whole, broker.program, broker.arguments = broker.program, FAULTY, ("--fault", moment)
        await asyncio.to_thread(broker.start)
        assert broker.process is not None
        assert await asyncio.to_thread(broker.process.wait, 60) == -9
        broker.program, broker.arguments = whole, ()

    await kill.run(kill.eager(tmp_path), times=1, seed=4, strike=dies)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_broker_that_loses_something_is_found_out(tmp_path: Path, loss: str) -> None:
    """So that the tests above mean something."""
    broker = EmbeddedBroker(tmp_path, program=FAULTY, arguments=("--fault", loss))
    with pytest.raises(AssertionError, match=COMPLAINTS[loss]):
        await kill.run(broker, times=30, seed=4)
