"""Logs are JSON lines that a machine can read; a prompt is never in them, a flood never fills them."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline import logs


class FixedClock:
    def ms(self) -> int:
        return 42


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure(member="w1", role="worker", epoch="e", clock=FixedClock(), stream=stream)
    yield stream
    root.handlers[:], root.level = before


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_who_when_and_what(stream: io.StringIO) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    logs.warn("dead_letter", topic="hr.requests", offset=7, traceparent=parent, request_id=None)
    (line,) = lines(stream)
    assert line == {
        "time": 42,
        "level": "warning",
        "member": "w1",
        "role": "worker",
        "epoch": "e",
        "event": "dead_letter",
        "topic": "hr.requests",
        "offset": 7,
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "request_id": None,
    }


def test_text_of_a_request_is_withheld_whatever_the_caller_does(stream: io.StringIO) -> None:
    logs.error("oops", prompt="secret words", messages=["secret"], value=b"secret")
    assert "secret" not in stream.getvalue()


def test_one_line_is_one_line_and_has_a_limit(stream: io.StringIO) -> None:
    logs.error("oops", error="a\nb" * 10_000)
    (line,) = lines(stream)
    assert len(line["error"]) == logs.FIELD_LIMIT


def test_libraries_speak_json_too_and_say_which_they_are(stream: io.StringIO) -> None:
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger("aiokafka.x").exception("broken %d", 3)
    logging.getLogger("aiokafka.x").info("chatter")
    (line,) = lines(stream)
    assert (line["event"], line["logger"]) == ("broken 3", "aiokafka.x")
    assert "ValueError: inside" in line["exception"]


def test_a_flood_of_one_event_is_limited_and_silences_no_other(stream: io.StringIO) -> None:
    for number in range(1000):
        logs.warn("dead_letter", offset=number)
    logs.warn("offset_gap")
    events = [line["event"] for line in lines(stream)]
    assert events == ["dead_letter"] * logs.WINDOW_LINES + ["offset_gap"]


def test_what_a_flood_kept_back_is_counted() -> None:
    limit = logs.FloodLimit()

    def passes(created: float) -> logging.LogRecord | None:
        record = logging.LogRecord("headrace", logging.WARNING, "", 0, "flood", None, None)
        record.created = created
        return record if limit.filter(record) else None

    assert sum(passes(0.1) is not None for _ in range(120)) == logs.WINDOW_LINES
    late = passes(0.1 + logs.WINDOW)
    assert late is not None
    assert late.suppressed == 120 - logs.WINDOW_LINES  # type: ignore[attr-defined]
