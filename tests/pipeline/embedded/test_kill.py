"""What was acknowledged survives the death of the process, whatever it was doing."""

from pathlib import Path

import pytest

from tests.pipeline.embedded import kill


@pytest.mark.slow
@pytest.mark.timeout(900)  # twenty restarts and checks on a busy machine
async def test_acknowledged_records_and_offsets_survive_twenty_kills(tmp_path: Path) -> None:
    """Among them deaths during compaction, retention and vacuum. Idempotent records: once."""
    await kill.run(tmp_path, times=20, seed=4)
