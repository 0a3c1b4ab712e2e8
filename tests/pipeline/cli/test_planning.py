"""What `up` starts follows what was said; what runs otherwise than it is asked for is said."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.planning import differences, make_plan
from pipeline.supervisor.home import Home
from pipeline.supervisor.plan import Plan


@pytest.fixture(autouse=True)
def null_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_WORKER_ENGINE", "null")
    monkeypatch.setenv("HEADRACE_CONFIG", str(tmp_path / "headrace.toml"))


def plan(tmp_path: Path, **flags: Any) -> Plan:
    made = make_plan(Home(tmp_path), flags)
    assert isinstance(made, Plan), made
    return made


def test_without_an_address_the_broker_is_our_own(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert made.kafka is None and made.store is None


def test_an_address_of_kafka_counts_wherever_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace.toml").write_text('[kafka]\nbootstrap = "file:9092"\n')
    assert plan(tmp_path).kafka == "file:9092"
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "variable:9092")
    assert plan(tmp_path).kafka == "variable:9092"
    assert plan(tmp_path, kafka="flag:9092").kafka == "flag:9092"
    # also where it happens to be the default
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:19092")
    assert plan(tmp_path).kafka == "127.0.0.1:19092"


def test_a_store_may_be_ours_yours_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(tmp_path, store="").store == ""
    monkeypatch.setenv("HEADRACE_STORE_URL", "redis://there:6379/0")
    assert plan(tmp_path).store == "redis://there:6379/0"


def test_edges_may_listen_elsewhere_than_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_EDGE_HOST", "0.0.0.0")
    made = plan(tmp_path)
    assert (made.host, made.edge_host) == ("127.0.0.1", "0.0.0.0")
    assert made.environment["HEADRACE_EDGE_HOST"] == "0.0.0.0"
    assert "0.0.0.0 is reachable from outside" in capsys.readouterr().err
    assert plan(tmp_path, host="::1").edge_host == "::1"


def test_asking_for_what_runs_already_is_no_difference(tmp_path: Path) -> None:
    running = plan(tmp_path, workers=2, http=8081).said
    assert differences({}, running) == ""
    assert differences({"workers": 2, "http": 8081}, running) == ""


def test_what_runs_otherwise_is_named_flag_by_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = plan(tmp_path, workers=2).said
    words = differences({"workers": 4, "kafka": "kafka-1:9092"}, running)
    assert "--workers is 2, not 4" in words
    assert "--kafka is the embedded broker, not kafka-1:9092" in words
    assert "headrace down" in words
    monkeypatch.setenv("HEADRACE_UP_EDGES", "3")  # a setting counts as a flag does
    assert "--edges is 1, not 3" in differences({}, running)
