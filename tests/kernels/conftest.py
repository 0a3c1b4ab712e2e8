"""The real model where there is one, and tiny made ones everywhere."""

import os
from pathlib import Path

import pytest

from kernels.model import Model, load_model
from tests.pipeline.brokers import missing

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF that `make test` has fetched."""
    path = Path(os.environ.get("TEST_MODELS", _ROOT / ".headrace" / "models")) / _FILE
    if not path.is_file():
        missing(f"{path} is not there: headrace models pull smollm2-135m")
    return path


@pytest.fixture(scope="session")
def exact(smollm2: Path) -> Model:
    return load_model(smollm2, plan="exact", threads=2)


@pytest.fixture(scope="session")
def reference(smollm2: Path) -> Model:
    return load_model(smollm2, plan="reference", threads=2)
