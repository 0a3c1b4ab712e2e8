"""Clients that know nothing of ours publish to a topic and read their answer."""

import json
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from tests.flow.installation import MODEL, ROOT, Installation
from tests.flow.java_tools import kafka_tool
from tests.flow.log_reading import first_result, records
from tests.pipeline.brokers import missing

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
BODY |= {"temperature": 0, "max_tokens": 24}


def test_the_script_in_the_docs_asks_and_hears(headrace: Installation, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "publish.md").read_text()
    script = tmp_path / "ask.py"
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    script.write_text(found[1])
    done = subprocess.run(
        [sys.executable, str(script), headrace.kafka, "What is the capital of Japan?"],
        capture_output=True, text=True, timeout=90, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    streamed, result = done.stdout.strip().rsplit("\n", 1)
    assert "Tokyo" in streamed
    assert result.startswith("completed") and repr(streamed) in result


def test_kcat_asks_and_hears(headrace: Installation) -> None:
    if shutil.which("kcat") is None:
        missing("kcat is not installed")
    mine = uuid.uuid4().hex
    subprocess.run(
        ["kcat", "-P", "-b", headrace.kafka, "-t", "hr.requests", "-H", f"correlation-id={mine}"],
        input=json.dumps(BODY), text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "Tokyo" in first_result(headrace, mine)["choices"][0]["text"]
    read = subprocess.run(
        ["kcat", "-C", "-b", headrace.kafka, "-t", "hr.results", "-o", "beginning", "-e", "-q",
         "-f", "%h %s\n"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert mine.encode() in read.stdout


def test_kafkas_own_console_tools_ask_and_hear(headrace: Installation) -> None:
    mine = uuid.uuid4().hex
    kafka_tool(
        "console-producer", headrace.kafka, "--topic", "hr.requests",
        "--reader-property", "parse.headers=true", "--reader-property", "headers.delimiter=|",
        given=f"correlation-id:{mine}|{json.dumps(BODY)}\n",
    )  # fmt: skip
    assert "Tokyo" in first_result(headrace, mine)["choices"][0]["text"]
    there = sum(1 for _ in records(headrace.kafka, "hr.results", to_end=True))
    shown = kafka_tool(
        "console-consumer", headrace.kafka, "--topic", "hr.results", "--from-beginning",
        "--max-messages", str(there), "--formatter-property", "print.headers=true",
    )  # fmt: skip
    assert mine in shown
