"""The document at /openapi.json is true: whatever is sent, every answer is one that it names."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.installation import Installation
from tests.flow.streams import get

EXAMPLES = 15  # for each operation
SECONDS = 25  # at most, whatever is left then
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def short_answers(document: dict[str, Any]) -> dict[str, Any]:
    """The same document for requests that end soon, by a model that is there."""
    body = document["components"]["schemas"]["Request"]
    body["properties"] |= {
        "model": {"enum": ["null"]},
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
    }
    body["required"] = ["model", "max_tokens"]
    return document


# the answers are the edge's: which broker lies behind it makes no difference
@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
def test_every_answer_is_as_the_document_says(fleet: Installation, tmp_path: Path) -> None:
    status, _, document = get(fleet.url(), "/openapi.json")
    assert status == 200
    (tmp_path / "openapi.json").write_text(json.dumps(short_answers(document)))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")), "run", "openapi.json",
            "--url", fleet.url(), "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing",
            "--max-examples", str(EXAMPLES), "--max-time", str(SECONDS), "--seed", "7",
            "--request-timeout", "30", "--no-shrink", "--no-color",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
