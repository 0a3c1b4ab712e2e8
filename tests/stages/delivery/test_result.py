"""The result: a pure function of the counted output, its place and its append time."""

from schemas.ledger import Output, Said
from stages.delivery.result import result_of


def _output(**fields: object) -> Output:
    base = {
        "request_id": "req_x",
        "attempt": 2,
        "outcome": "completed",
        "tenant": "t",
        "lane": "gold",
        "created": 1_000,
        "accepted": 1_010,
        "finished": 2_000,
    }
    return Output(**{**base, **fields})  # type: ignore[arg-type]


def test_text_is_the_pieces_and_every_choice_is_there() -> None:
    choices = [
        Said(index=0, ids=[1, 2], pieces=["he", "llo"], finish_reason="stop"),
        Said(index=1, ids=[3], pieces=["x"], finish_reason="length"),
    ]
    result = result_of(_output(choices=choices), 7, 2_005)
    assert [c.text for c in result.choices] == ["hello", "x"]
    assert [c.token_ids for c in result.choices] == [[1, 2], [3]]
    assert (result.output, result.attempts) == (7, 2)


def test_timings_tell_where_the_time_went() -> None:
    entered = {
        "ready": 1_020,
        "orchestration": 1_100,
        "dispatch": 1_103,
        "first_token": 1_203,
    }
    timings = result_of(_output(entered=entered), 0, 2_005).timings
    assert (timings.ingress, timings.queue, timings.dispatch) == (10, 80, 3)
    assert (timings.prefill, timings.first_token, timings.decode) == (100, 193, 797)
    assert timings.delivery == 5


def test_what_a_request_never_reached_is_null() -> None:
    timings = result_of(_output(outcome="expired", entered={"ready": 1_020}), 0, 2_000).timings
    assert (timings.queue, timings.prefill, timings.first_token, timings.decode) == (None,) * 4
    assert timings.ingress == 10


def test_the_same_output_makes_the_same_result() -> None:
    assert result_of(_output(), 3, 9) == result_of(_output(), 3, 9)
