"""The real model says the same tokens, with the same logprob bits, however it is run."""

import pytest

from kernels.model import load_model
from tests.flow.installation import MODEL_FILE, models_folder
from tests.workers.exactness import Exactness, Way, ways
from tests.workers.prompts import mixed_jobs

PROMPTS, TOKENS = 24, 24

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def exactness() -> Exactness:
    model = load_model(models_folder() / MODEL_FILE, plan="exact")
    return Exactness(model, mixed_jobs(model.vocabulary, PROMPTS, TOKENS))


@pytest.mark.parametrize("way", ways(PROMPTS), ids=lambda way: str(way.name))
def test_identical(exactness: Exactness, way: Way) -> None:
    assert exactness.check(way) == []


def test_identical_when_continued_by_a_fresh_engine(exactness: Exactness) -> None:
    assert exactness.check_continuation() == []
