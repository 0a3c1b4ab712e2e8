"""The real model says the same tokens, with the same logprob bits, however it is run."""

import pytest

from tests.workers.exactness import Exactness, prepare
from tests.workers.ways import Way, ways

PROMPTS, TOKENS = 24, 24

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def exactness() -> Exactness:
    return prepare("exact", PROMPTS, TOKENS)


@pytest.mark.parametrize("way", ways(PROMPTS), ids=lambda way: str(way.name))
def test_identical(exactness: Exactness, way: Way) -> None:
    assert exactness.check(way) == []


def test_identical_when_continued_by_a_fresh_engine(exactness: Exactness) -> None:
    assert exactness.check_continuation() == []
