"""The whole pipeline, killed, paused, cut off and lied to in virtual time: nothing is lost or repeated."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pipeline.cli.simulate.command import explain_seed, parse_range
from pipeline.cli.simulate.scenario import FAULTS, Scenario, make_scenario
from pipeline.cli.simulate.seed import run_seed
from pipeline.cli.simulate.shrink import shrink
from pipeline.cli.simulate.sweep import MUST, Report, sweep

SEEDS = parse_range(os.environ.get("HEADRACE_SEEDS", "0-199"))
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
DIGEST = """
import logging
from pipeline.cli.simulate.scenario import make_scenario
from pipeline.cli.simulate.seed import run_seed
logging.disable(logging.CRITICAL)
print(*(run_seed(make_scenario(seed)).digest for seed in (2, 3)))
"""


@pytest.fixture(scope="module")
def swept() -> Report:
    assert SEEDS, "HEADRACE_SEEDS is no range"
    return sweep(SEEDS, 2, lambda report, told: None)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_no_seed_breaks_a_promise(swept: Report) -> None:
    assert not swept.failed


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_faults_hit_work(swept: Report) -> None:
    """Attempts above 1, streams resumed elsewhere, zombies that still write: else nothing was shown."""
    assert not swept.missed()
    assert all(swept.counts[name] for name in MUST)
    assert all(swept.counts[kind] for kind in FAULTS)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_failed_holds(path: Path) -> None:
    scenario = msgspec.json.decode(path.read_bytes(), type=Scenario)
    assert run_seed(scenario).fault == ""


def test_the_same_seed_leaves_the_same_log_in_every_process() -> None:
    """Whatever the process hashes strings to."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout
        for hashing in ("0", "1", "4711")
    }
    assert len(digests) == 1
    assert len(digests.pop().split()) == 2


def test_other_seeds_leave_other_logs() -> None:
    first, second = run_seed(make_scenario(2, asks=4)), run_seed(make_scenario(4, asks=4))
    assert first.digest != second.digest


def test_a_failing_scenario_is_made_small() -> None:
    """Down to the one request and the one fault that it needs."""
    scenario = make_scenario(5)
    guilty = scenario.faults[7]

    def fails(candidate: Scenario) -> bool:
        return guilty in candidate.faults and any(ask.number == 11 for ask in candidate.asks)

    small = shrink(scenario, fails, tries=200)
    assert small.faults == (guilty,)
    assert [ask.number for ask in small.asks] == [11]


def test_a_seed_is_told_as_text_and_as_a_diagram(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain_seed(3, tmp_path) == 0
    text, page = tmp_path / "seed-3.txt", tmp_path / "seed-3.html"
    said = text.read_text()
    assert said.strip() == capsys.readouterr().out.strip()
    assert "lease/1 attempt 1" in said
    assert "fault: " in said
    assert "<table>" in page.read_text()
    assert page.read_text().count("<tr") > 100


def test_a_range_of_seeds_is_read() -> None:
    assert parse_range("3-5") == range(3, 6)
    assert parse_range("7") == range(7, 8)
    assert parse_range("a-b") is None
