"""What `headrace` shows and does beside a running installation."""

import json
import os
import signal
import subprocess
import sys
import uuid
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from pipeline.replay import from_line
from schemas.codec import decode
from schemas.result import Result
from tests.flow.installation import ROOT, Installation
from tests.flow.log_reading import header, publish, records
from tests.flow.streams import get, post
from tests.flow.waiting import until


def ask(fleet: Installation, tokens: int = 4) -> str:
    """A request that has ended; gives its id."""
    body = {"model": "null", "prompt": "Go on", "max_tokens": tokens}
    status, headers, _ = post(fleet.url(), "/v1/completions", body)
    assert status == 200
    return headers["headrace-request-id"]


def said(fleet: Installation, *arguments: str) -> str:
    done = fleet.call(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_status_says_what_runs_and_where(fleet: Installation) -> None:
    state = json.loads(said(fleet, "status", "--json"))
    assert set(state) == {"kafka", "store", "roles"}
    assert state["kafka"] == fleet.kafka
    assert state["store"].startswith("unix://")
    ids = {role["id"] for role in state["roles"]}
    wanted = {"ingress-1", "orchestration-1", "orchestration-2", "worker-1", "worker-2"}
    assert wanted | {"delivery-1", "edge-1", "edge-2", "store"} <= ids
    assert ("broker" in ids) == (fleet.broker == "embedded")
    for role in state["roles"]:
        assert {"role", "id", "pid", "state", "http", "metrics"} <= set(role)
        assert role["state"] == "ready" and role["pid"] > 0
        if role["role"] in ("broker", "store"):
            continue
        for path in ("/healthz", "/readyz"):
            assert get(role["http"], path)[0] == 200, (role, path)
        metrics = get(role["metrics"].removesuffix("/metrics"), "/metrics")[2]
        assert "process_resident_memory_bytes" in metrics
    shown = said(fleet, "status")
    assert all(each in shown for each in ids) and fleet.url(2) in shown


def test_where_nothing_runs_the_exit_code_is_3(tmp_path: Path) -> None:
    nothing = Installation(tmp_path, "embedded", {"HEADRACE_HOME": str(tmp_path)})
    done = nothing.call("status", "--json")
    assert done.returncode == 3 and json.loads(done.stdout) == {"roles": []}
    for command in (["down"], ["run", "Hi"]):
        assert nothing.call(*command).returncode == 3


def test_a_second_up_finds_the_first(fleet: Installation) -> None:
    before = {role["id"]: role["pid"] for role in fleet.status()["roles"]}
    assert fleet.call("up", "--detach").returncode == 0
    assert {role["id"]: role["pid"] for role in fleet.status()["roles"]} == before


def test_a_second_up_that_asks_for_something_else_says_so(fleet: Installation) -> None:
    before = {role["id"]: role["pid"] for role in fleet.status()["roles"]}
    done = fleet.call("up", "--detach", "--workers", "3")
    assert done.returncode == 1
    for words in ("--workers is 2, not 3", "headrace down"):
        assert words in done.stderr
    assert {role["id"]: role["pid"] for role in fleet.status()["roles"]} == before


def test_topics_show_records_and_lag(fleet: Installation) -> None:
    ask(fleet)
    rows = {row["topic"]: row for row in json.loads(said(fleet, "topics", "--json"))}
    assert {fleet.topic(name) for name in ("requests", "ready.silver", "ledger", "results")} <= set(
        rows
    )
    assert rows[fleet.topic("results")]["records"] >= 1
    assert rows[fleet.topic("tokens")]["partitions"] == 8
    until(lambda: lag(fleet, "requests") == 0)
    assert fleet.topic("results") in said(fleet, "topics")


def lag(fleet: Installation, name: str) -> Any:
    rows = json.loads(said(fleet, "topics", "--json"))
    return next(row["lag"] for row in rows if row["topic"] == fleet.topic(name))


def test_tail_shows_records_decoded(fleet: Installation) -> None:
    request_id = ask(fleet)
    shown = said(fleet, "tail", "results", "--from", "start", "--count", "1", "--json")
    record = json.loads(shown)
    assert record["topic"] == fleet.topic("results")
    assert record["value"]["type"] == "result/1" and record["value"]["outcome"]
    ledger = fleet.call("tail", "nowhere")
    assert ledger.returncode == 1 and fleet.topic("ledger") in ledger.stderr
    count = str(total(fleet, "results"))
    everything = said(fleet, "tail", "results", "--from", "start", "--count", count)
    assert request_id in everything and "completed" in everything


def total(fleet: Installation, name: str) -> int:
    rows = json.loads(said(fleet, "topics", "--json"))
    return int(next(row["records"] for row in rows if row["topic"] == fleet.topic(name)))


def test_a_dead_letter_is_listed_shown_and_sent_back(fleet: Installation) -> None:
    mine = uuid.uuid4().hex
    publish(fleet, b"\xff\xfe nobody reads this", {"correlation-id": mine})

    def letters() -> list[int]:
        found = records(fleet.kafka, fleet.topic("dlq.ingress"), to_end=True)
        return [m.offset() or 0 for m in found if header(m, "correlation-id") == mine]

    place = f"ingress/{until(letters)[0]}"
    rows = {row["place"]: row for row in json.loads(said(fleet, "dlq", "list", "--json"))}
    assert rows[place]["topic"] == fleet.topic("requests")
    assert place in said(fleet, "dlq", "list")
    shown = said(fleet, "dlq", "show", place)
    for word in (mine, "nobody reads this", fleet.topic("requests"), rows[place]["message"]):
        assert word in shown
    told = json.loads(said(fleet, "dlq", "show", place, "--json"))
    assert b64decode(told["value"]) == b"\xff\xfe nobody reads this"
    assert told["headers"] == [["correlation-id", b64encode(mine.encode()).decode()]]
    assert told["why"]["message"] == rows[place]["message"]
    assert fleet.topic("requests") in said(fleet, "dlq", "replay", place)
    until(lambda: len(letters()) == 2)  # it came again, and is as unreadable as before
    for wrong, code in (("ingress/99999", 1), ("nonsense", 2)):
        assert fleet.call("dlq", "show", wrong).returncode == code


def test_what_was_asked_is_recorded_and_asked_again(fleet: Installation, tmp_path: Path) -> None:
    mine, file = uuid.uuid4().hex, str(tmp_path / "recorded")
    body = {"model": "null", "prompt": "Go on", "max_tokens": 5, "seed": 7}
    status, headers, _ = post(fleet.url(), "/v1/completions", body, {"X-Request-ID": mine})
    assert status == 200
    chosen = ("--header", f"correlation-id={mine}")

    def answers() -> list[Any]:
        done = said(fleet, "replay", "record", "results", "--since", "10m", *chosen)
        return [from_line(line) for line in done.splitlines()]

    said(fleet, "replay", "record", "requests", "--out", file, *chosen)
    # the same record again is the same request: dropped. Asked anew it is another one
    assert fleet.call("replay", "play", file).returncode == 0
    assert fleet.call("replay", "play", "--as-new", file).returncode == 0
    first, second = until(lambda: found if len(found := answers()) > 1 else [])
    assert first.key.decode() == headers["headrace-request-id"] != second.key.decode()
    told = [decode(each.value, Result).choices[0].text for each in (first, second)]
    assert told[0] == told[1]  # it had a seed
    nowhere = fleet.call("replay", "play", "--into", "nowhere", file)
    assert nowhere.returncode == 2 and "nowhere" in nowhere.stderr


def test_logs_say_who_speaks(fleet: Installation) -> None:
    fleet.until_ready("delivery-1", other_than=fleet.kill("delivery-1"))
    assert "delivery-1: --- delivery-1 exited with -9" in said(fleet, "logs", "delivery")
    assert "edge-1: " not in said(fleet, "logs", "delivery-1")
    assert fleet.call("logs", "nobody").returncode == 1


def test_an_answer_pipes_well(fleet: Installation) -> None:
    options = ("--max-tokens", "5", "--seed", "1")
    first = fleet.call("run", *options, "Go on")
    assert first.returncode == 0 and first.stderr == ""
    assert len(first.stdout.split()) == 5 and first.stdout.endswith("\n")
    piped = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", *options, "-"],
        input="Go on", capture_output=True, text=True, timeout=60, cwd=ROOT,
        env={**os.environ, **fleet.environment},
    )  # fmt: skip
    assert piped.stdout == first.stdout


def cancelled(fleet: Installation) -> int:
    """How many results so far say so; other tests share the fleet."""
    count = str(total(fleet, "results"))
    everything = said(fleet, "tail", "results", "--from", "start", "--count", count, "--json")
    outcomes = [json.loads(line)["value"]["outcome"] for line in everything.splitlines()]
    return outcomes.count("cancelled")


def test_ctrl_c_cancels_what_run_asked(fleet: Installation) -> None:
    before, earlier = total(fleet, "results"), cancelled(fleet)
    running = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "run", "--max-tokens", "2000", "Go on"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, **fleet.environment},
        # a shell's background job ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.read(1)
    running.send_signal(signal.SIGINT)
    _, words = running.communicate(timeout=60)
    assert running.returncode == 130 and b"Traceback" not in words
    until(lambda: total(fleet, "results") > before)
    assert cancelled(fleet) == earlier + 1


def test_the_doctor_finds_everything_well(fleet: Installation) -> None:
    shown = said(fleet, "doctor")
    for word in (
        "Python",
        "torch",
        "C++ compiler",
        fleet.kafka,
        "store at unix://",
        "edge-1 is ready",
    ):
        assert word in shown
    assert ("(embedded)" in shown) == (fleet.broker == "embedded")
    found = json.loads(said(fleet, "doctor", "--json"))
    assert {"mark", "what", "advice"} == set(found[0])
    assert "bad" not in {finding["mark"] for finding in found}


def test_contracts_are_written(tmp_path: Path) -> None:
    nothing = Installation(tmp_path, "embedded", {"HEADRACE_HOME": str(tmp_path)})
    done = nothing.call("contracts", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    written = [Path(line) for line in done.stdout.splitlines()]
    assert any(path.name.startswith("asyncapi") for path in written)
    for path in written:
        assert path.stat().st_size > 0
        if path.suffix == ".json":
            json.loads(path.read_text())


def test_help_names_every_command_and_an_unknown_one_is_a_usage_error(tmp_path: Path) -> None:
    nothing = Installation(tmp_path, "embedded", {"HEADRACE_HOME": str(tmp_path)})
    shown = nothing.call("--help").stdout
    for command in (
        *("up", "down", "status", "serve", "run", "models", "topics", "tail"),
        *("dlq", "logs", "contracts", "doctor", "simulate", "replay"),
    ):
        assert command in shown
    assert nothing.call("frobnicate").returncode == 2
