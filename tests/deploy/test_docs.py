"""The documentation names only commands, flags and settings that exist, and its code runs."""

import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from pipeline.cli.app import app
from pipeline.load_settings import OTHERS, variables
from pipeline.log import Outgoing, Record
from pipeline.replay import to_line
from pipeline.stage import Context, Emit
from schemas.codec import encode
from schemas.errors import CODES
from schemas.result import Result
from stages.edge.describe import document

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOT_COMMAND: Any = typer.main.get_command(app)
INLINE = re.compile(r"`headrace ([^`]+)`")
LINE = re.compile(r"(?:^|[|&] *)(?:\.venv/bin/)?headrace ([^|#&\n]+)", re.M)
VARIABLE = re.compile(r"HEADRACE_[A-Z_]*[A-Z]")


def commands(page: Path) -> Iterator[list[str]]:
    text = page.read_text()
    blocks = "\n".join(re.findall(r"```(?:sh)?\n(.*?)```", text, re.S))
    for found in [*INLINE.findall(text), *LINE.findall(blocks)]:
        yield shlex.split(found.replace("…", ""))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_flag_exists(page: Path) -> None:
    for words in commands(page):
        command: Any = ROOT_COMMAND
        while hasattr(command, "commands") and words:
            name = words.pop(0)
            alternatives = name.split("|")  # `dlq list|show`
            assert all(each in command.commands for each in alternatives), (page.name, name)
            command = command.commands[alternatives[0]]
        known = {option for each in command.params for option in each.opts}
        for word in words:
            flag = word.partition("=")[0]
            assert not flag.startswith("-") or flag == "-" or flag in known, (page.name, words)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "compose.yaml"], ids=lambda page: page.name)
def test_every_variable_is_a_setting(page: Path) -> None:
    known = {*variables(), *OTHERS}
    for name in VARIABLE.findall(page.read_text()):
        starts = any(each.startswith(name) for each in known)  # `HEADRACE_TOPICS_*_RETENTION_MS`
        assert name in known or starts or name == "HEADRACE_SECTION_KEY", (page.name, name)


async def echo(result: Result, context: Context) -> AsyncIterator[Emit]:
    yield Outgoing("ids", result.id.encode())


def test_a_recording_is_an_input_of_a_test(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.S)[0], names)
    value = encode(Result(id="req_1", outcome="completed", tenant="a"))
    (tmp_path / "r").write_text(to_line(Record("hr.results", 0, 0, 0, None, value, ())) + "\n")
    assert names["said"](echo, tmp_path / "r") == [Outgoing("ids", b"req_1")]


def test_the_page_of_errors_has_every_code() -> None:
    page = (ROOT / "docs" / "http.md").read_text().split("## Errors")[1]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {code.strip("` "): int(status) for codes, status in rows for code in codes.split(",")}
    assert told == {code: known.status for code, known in CODES.items()}


def test_the_page_of_routes_has_every_route() -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    for path in msgspec.json.decode(document())["paths"]:
        assert path == "/" or path.replace("{name}", "{id}").replace("{request_id}", "{id}") in page
