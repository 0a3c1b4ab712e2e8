"""`headrace replay`: which records are meant, requests asked anew, and stages found by their names."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from pipeline.cli.ranges import Usage, Wanted, moment, ranges_of
from pipeline.cli.replay import renewed, through_stage
from pipeline.cli.stage_of import NoStage, stage_of
from pipeline.log import Outgoing, Record, TopicPartition, TopicSpec
from pipeline.memory import MemoryCluster
from pipeline.replay import Range, to_line
from pipeline.simulation import VirtualClock, run_virtual
from pipeline.topics import Topics
from schemas.codec import encode
from schemas.ledger import Usage as Tokens
from schemas.result import Result

NOW = 1_800_000_000_000  # ms
A = Record("hr.requests", 0, 7, NOW, b"k", b"{}", (("tenant", b"a"), ("x", b"1"), ("x", b"2")))
PAGE = (Path(__file__).parents[3] / "docs" / "write-a-stage.md").read_text()


def test_a_time_is_a_date_or_an_age() -> None:
    assert moment("90s", NOW) == NOW - 90_000
    assert moment("2h", NOW) == NOW - 7_200_000
    assert moment("2026-11-30T18:00:00+00:00", NOW) == 1_796_061_600_000
    for wrong in ("", "soon", "10", "-5m"):
        with pytest.raises(Usage, match="is no time"):
            moment(wrong, NOW)


@pytest.mark.parametrize(
    ("key", "headers", "wanted"),
    [
        (None, [], True),
        ("k", ["tenant=a"], True),
        ("other", [], False),
        (None, ["x=2"], True),  # one of several with that name
        (None, ["x=3"], False),
        (None, ["tenant"], True),
        (None, ["lane"], False),
    ],
)
def test_records_are_chosen_by_key_and_headers(
    key: str | None, headers: list[str], wanted: bool
) -> None:
    assert Wanted.of(key, headers)(A) is wanted


def test_a_place_is_a_topic_a_partition_or_a_range_of_offsets() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        log = MemoryCluster(clock).connect()
        await log.admin.create_topics([TopicSpec("hr.requests", 2), TopicSpec("bills", 1)])
        writer = await log.writer()
        for time in range(5):
            writer.send(Outgoing("hr.requests", b"x", partition=0, timestamp=1_000 * time))
        await writer.flush()
        zero, one = TopicPartition("hr.requests", 0), TopicPartition("hr.requests", 1)

        async def asked(*places: str, since: int | None = None, until: int | None = None) -> object:
            return await ranges_of(log, Topics(), places, since, until)

        assert await asked("requests") == {zero: Range(), one: Range()}
        assert await asked("hr.requests/1", "bills") == {
            one: Range(),
            TopicPartition("bills", 0): Range(),
        }
        assert await asked("requests/0/3-4") == {zero: Range(3, 5)}  # both included
        assert await asked("requests/0/3-") == {zero: Range(3)}
        assert await asked("requests/0/3") == {zero: Range(3, 4)}
        assert await asked("requests/0", since=1_500) == {zero: Range(since_ms=1_500)}
        assert await asked("requests", until=2_500) == {zero: Range(end=3), one: Range()}
        for wrong, words in (
            ("requests/2", "0 to 1, no 2"),
            ("nothing", "choose one of hr.requests"),
            ("requests/0/x", "FIRST-LAST"),
        ):
            with pytest.raises(Usage, match=words):
                await asked(wrong)

    run_virtual(main())


def test_a_request_asked_anew_has_lost_what_made_it_that_one() -> None:
    ours = (
        ("request-id", b"req_1"),
        ("deadline", b"1"),
        ("correlation-id", b"c"),
        ("tenant", b"a"),
    )
    for form in (msgspec.json, msgspec.msgpack):
        body = {"type": "request/1", "id": "req_1", "model": "m", "prompt": "Hi"}
        fresh = renewed(Outgoing("hr.requests", form.encode(body), b"req_1", 3, ours))
        assert fresh.key is None and fresh.value is not None
        assert form.decode(fresh.value) == {"type": "request/1", "model": "m", "prompt": "Hi"}
        assert fresh.headers == (("correlation-id", b"c"), ("tenant", b"a"))
    for value in (b"\xff\xfe", b"[1]", None, b'{"model":"m"}'):
        assert renewed(Outgoing("hr.requests", value)).value == value  # as it came


def test_a_stage_is_found_and_told_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page_bill.py").write_text(PAGE.split("```python\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    result = Result(id="req_1", outcome="completed", tenant="a", usage=Tokens(total_tokens=7))
    free = Result(id="req_2", outcome="completed", tenant="a")
    values = [
        encode(result),
        encode(free),
        b"garbage",
        encode(Result(id="req_3", outcome="failed")),
    ]
    lines = [to_line(Record("hr.results", 0, i, NOW, b"k", v, ())) for i, v in enumerate(values)]
    (tmp_path / "recorded").write_text("\n".join(lines) + "\n")
    assert through_stage("recorded", "page_bill:bill", Wanted()) == 0
    said = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0]["from"] == "hr.results/0/0"
    assert said[0]["send"]["topic"] == "bills"
    assert said[0]["send"]["value"] == {"tenant": "a", "tokens": 7}
    assert said[1]["dead_letter"]["reason"] == "no_usage"
    assert said[2]["dead_letter"]["reason"] == "unreadable"
    assert said[3]["done"] is True
    for wrong, words in (
        ("page_bill", "MODULE:FUNCTION"),
        ("page_bill:nil", "nil"),
        ("no:x", "no"),
    ):
        with pytest.raises(NoStage, match=words):
            stage_of(wrong)
    assert through_stage("recorded", "no_such:stage", Wanted()) == 2


def test_a_damaged_recording_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stage_here.py").write_text("async def f(x: bytes, c: object):\n    yield\n")
    (tmp_path / "recorded").write_text(to_line(A) + "\nnonsense\n")
    assert through_stage("recorded", "stage_here:f", Wanted()) == 2
    assert "recorded, line 2: not a recorded record" in capsys.readouterr().err
