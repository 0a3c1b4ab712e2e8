"""A process that ends says why in its last line, however deep in task groups the reason was."""

import pytest

from pipeline.cli.serve import _last_words
from pipeline.log import LogUnavailable
from pipeline.member import Fatal
from pipeline.watchdog import PositionStuck


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_the_reason_is_named_and_no_traceback_hides_it(capsys: pytest.CaptureFixture[str]) -> None:
    inner = ExceptionGroup("tasks", [PositionStuck("in[0] stands at 1 of 2")])
    assert _last_words("ingress-1", ExceptionGroup("tasks", [inner])) == 1
    assert capsys.readouterr().err == "headrace: ingress-1: in[0] stands at 1 of 2\n"
    assert _last_words("ingress-1", LogUnavailable("no broker")) == 1
    assert last_line(capsys) == "headrace: ingress-1: no broker"


def test_an_exit_code_is_not_lost_in_a_task_group(capsys: pytest.CaptureFixture[str]) -> None:
    lost = Fatal("the device is lost", 70)
    error = ExceptionGroup("tasks", [LogUnavailable("closed"), lost])
    assert _last_words("worker-1", error) == 70
    assert last_line(capsys) == "headrace: worker-1: the device is lost"


def test_what_nobody_foresaw_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert _last_words("edge-1", ZeroDivisionError("division by zero")) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert said.endswith("headrace: edge-1: division by zero\n")
