"""The short form of `make chaos`: kills under load on both kinds of broker, and nothing is lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.load import Shape
from tests.chaos.stage import fleet, play
from tests.flow.installation import Installation

SHAPE = Shape(streams=12, publishes=24, tokens=80, seconds=5.0)
EDGE = "kill -9 edge, resume at the other"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp(f"chaos-{request.param}")
    with fleet(folder, request.param, SHAPE, workers=2, count=1) as made:
        yield made


def check(made: Installation, name: str) -> None:
    verdict = asyncio.run(play(made, name, FAULTS[name], SHAPE, 0))
    assert not verdict.problems, "\n".join(verdict.problems[:20])


@pytest.mark.parametrize("made", ["embedded"], indirect=True)
@pytest.mark.parametrize("name", ["kill -9 worker", EDGE])
def test_nothing_accepted_is_lost_and_nothing_is_said_twice(made: Installation, name: str) -> None:
    check(made, name)


@pytest.mark.parametrize("made", ["apache"], indirect=True)
def test_nor_when_a_broker_of_apache_kafka_is_killed(made: Installation) -> None:
    check(made, "kill -9 broker")
