"""Which worker, and why."""

import random

import pytest

from schemas.status import Status, WorkerFigures
from schemas.work import Ready, SamplingParams
from stages.orchestration.fleet import Hand
from stages.orchestration.plan import BOUND, choose, too_late


def _ready(**fields: object) -> Ready:
    base = {
        "request_id": "req_x",
        "kind": "chat",
        "tenant": "t",
        "lane": "gold",
        "model": "m",
        "revision": "r1",
        "plan": "exact",
        "prompt_ids": [1],
        "max_tokens": 100,
        "accepted": 0,
        "deadline": 10_000,
        "created": 0,
        "body_hash": "",
    }
    return Ready(**{**base, **fields})  # type: ignore[arg-type]


def _hand(name: str, *, credit: int = 8, taken: int = 0, **fields: object) -> Hand:
    base = {
        "model": "m",
        "revision": "r1",
        "plan": "exact",
        "device_type": "cpu-avx2",
        "inbox": 0,
        "position": 0,
        "slots": 8,
        "credits": {"me": credit},
    }
    figures = WorkerFigures(**{**base, **fields})  # type: ignore[arg-type]
    status = Status(
        member=name, role="worker", epoch=f"{name}-1", counter=1, time=0, worker=figures
    )
    hand = Hand(status, figures)
    hand.hear(status, figures)
    hand.reserved = taken
    return hand


def test_the_least_loaded_is_taken() -> None:
    plan = choose(_ready(), [_hand("a", taken=3), _hand("b", taken=1)], "me")
    assert plan is not None
    assert (plan.hand.id, plan.why, plan.same_answer) == ("b", "least loaded", True)


def test_without_a_credit_nobody_is_taken() -> None:
    assert choose(_ready(), [_hand("a", credit=2, taken=2), _hand("b", credit=0)], "me") is None
    assert choose(_ready(), [_hand("a")], "another orchestrator") is None
    assert choose(_ready(), [], "me") is None


def test_who_holds_the_prefix_is_preferred_while_its_load_allows() -> None:
    ready = _ready(affinity="p")
    holder, empty = _hand("a", taken=1, prefixes=["p"]), _hand("b")
    plan = choose(ready, [holder, empty], "me")
    assert plan is not None
    assert (plan.hand.id, plan.why) == ("a", "holds the prefix")
    holder.reserved = int(8 * BOUND) + 1
    plan = choose(ready, [holder, empty], "me")
    assert plan is not None
    assert plan.hand.id == "b"


def test_a_prefix_comes_to_the_same_worker_before_any_status_says_so() -> None:
    hands = [_hand(name) for name in "abcd"]
    chance = random.Random(0)
    for number in range(50):
        ready, taken = _ready(affinity=f"p{number}"), set()
        for _ in range(4):
            chance.shuffle(hands)
            plan = choose(ready, hands, "me")
            assert plan is not None
            taken.add(plan.hand.id)
        assert len(taken) == 1


def test_a_pin_is_kept_as_long_as_anybody_alive_keeps_it() -> None:
    keeps = _hand("a", credit=0)
    breaks = _hand("b", revision="r2")
    assert choose(_ready(), [keeps, breaks], "me") is None, "it waits for the one that keeps it"
    plan = choose(_ready(), [breaks], "me")
    assert plan is not None
    assert not plan.same_answer
    assert "breaking a pin" in plan.why


def test_a_later_attempt_stays_on_its_device_type() -> None:
    first, other = _hand("a", taken=4), _hand("b", device_type="cpu-avx512")
    plan = choose(_ready(), [first, other], "me", device_type="cpu-avx2")
    assert plan is not None
    assert (plan.hand.id, plan.same_answer) == ("a", True)


@pytest.mark.parametrize("other", ["cpu-avx512", "cuda-sm90", "null", "cpu"])
def test_a_worker_of_another_device_type_is_not_the_same_answer(other: str) -> None:
    plan = choose(_ready(), [_hand("b", device_type=other)], "me", device_type="cpu-avx2")
    assert plan is not None
    assert not plan.same_answer
    assert "breaking a pin" in plan.why


@pytest.mark.parametrize(
    ("devices", "may"),
    [([], True), (["cpu"], True), (["cpu-avx2"], True), (["cuda"], False), (["cpu-amx"], False)],
)
def test_the_registry_says_which_devices_may_do_it(devices: list[str], may: bool) -> None:
    assert (choose(_ready(), [_hand("a")], "me", devices=devices) is not None) == may


def test_who_gave_it_back_gets_it_only_if_there_is_no_other() -> None:
    a, b = _hand("a"), _hand("b", taken=5)
    plan = choose(_ready(), [a, b], "me", avoid="a-1")
    assert plan is not None
    assert plan.hand.id == "b"
    plan = choose(_ready(), [a], "me", avoid="a-1")
    assert plan is not None
    assert plan.hand.id == "a"


def test_a_broken_pin_stays_broken() -> None:
    plan = choose(_ready(), [_hand("a")], "me", kept=False)
    assert plan is not None
    assert not plan.same_answer


def test_early_refusal_needs_a_certain_length_and_a_known_rate() -> None:
    certain = SamplingParams(ignore_eos=True)
    slow = _hand("a", rate=10.0, running=[("req_y", 1)])
    assert too_late(_ready(sampling=certain, deadline=9_000), [slow], 0)
    assert not too_late(_ready(sampling=certain, deadline=11_000), [slow], 0)
    assert not too_late(_ready(deadline=9_000), [slow], 0), "it may stop by itself"
    assert not too_late(_ready(sampling=certain, deadline=9_000), [_hand("b")], 0)
