"""A lane holds as much as it can do within its target, shared fairly by the edges."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log import Placed
from schemas.errors import Refusal
from schemas.status import OrchestratorFigures, Status, WorkerFigures
from stages.edge.admission import Admission, Sample, sample
from stages.edge.tail import own_slots

TARGET = {"gold": 5.0, "silver": 30.0, "bronze": 600.0}


def stands(**more: Any) -> Sample:
    given: dict[str, Any] = {
        "queued": 0,
        "rate": 10.0,
        "free": 0,
        "slots": 8,
        "edges": 1,
        "reached": [0],
        "memory": 0.1,
    }
    return Sample(**(given | more))


def at(offset: int, partition: int = 0) -> Placed:
    return Placed("hr.requests", partition, offset, 0)


def admission() -> Admission:
    return Admission(TARGET, random.Random(0))


def burst(door: Admission, latest: Sample, count: int, lane: str = "silver") -> int:
    """How many of `count` at once are let in."""
    let_in = 0
    for i in range(count):
        try:
            door.check(lane, latest)
        except Refusal:
            continue
        request_id = f"r{latest.reached[0]}-{i}"
        door.admitted(lane, request_id)
        door.placed(lane, request_id, at(latest.reached[0] + let_in))
        let_in += 1
    return let_in


def test_a_burst_between_two_samples_is_let_in_up_to_the_target() -> None:
    assert burst(admission(), stands(), 1000) == 300  # 30 s at 10 a second
    assert burst(admission(), stands(edges=3), 1000) == 100
    assert burst(admission(), stands(), 1000, "gold") == 50


def test_what_ended_or_is_known_to_the_sample_makes_room() -> None:
    door = admission()
    assert burst(door, stands(), 1000) == 300
    door.ended("silver", "r0-0")
    assert burst(door, stands(), 10) == 1
    assert burst(door, stands(reached=[301], queued=290), 1000) == 10


def test_a_sample_knows_of_a_record_by_its_offset_whatever_the_clocks_say() -> None:
    door = admission()
    for number in range(300):
        door.admitted("silver", f"r{number}")
    door.placed("silver", "r0", at(7, partition=1))
    assert burst(door, stands(reached=[0, 7]), 10) == 0  # up to it, not beyond it
    assert burst(door, stands(reached=[0, 8]), 10) == 1
    door.ended("silver", "r0-0")
    door.placed("silver", "r1", at(5, partition=1))  # acked after the sample had counted it
    assert burst(door, stands(reached=[0, 8]), 10) == 2
    assert burst(door, stands(reached=[]), 10) == 0  # nobody counts: what is ours counts here


def test_a_lane_that_was_idle_may_take_what_its_workers_can() -> None:
    assert burst(admission(), stands(rate=0.0, free=8, slots=8), 1000) == 32


def test_a_lane_may_always_take_its_share_of_what_the_fleet_does() -> None:
    """Else one that was refused would look slow, and be refused for it."""
    slow = {"rate": 0.5, "queued": 3, "free": 0}
    assert burst(admission(), stands(**slow), 100, "gold") == 0
    assert burst(admission(), stands(**slow, due=8.0), 100, "gold") == 37


def test_the_wait_is_the_excess_and_is_spread() -> None:
    waits = set()
    for seed in range(50):
        door = Admission(TARGET, random.Random(seed))
        with pytest.raises(Refusal) as refused:
            door.check("silver", stands(queued=500))
        assert refused.value.code == "lane_overloaded"
        assert refused.value.retry_after is not None
        waits.add(refused.value.retry_after)
    assert min(waits) >= 20 and max(waits) <= 30 and len(waits) > 3


def test_nobody_there_or_no_memory_is_503() -> None:
    for latest in (stands(slots=0), stands(memory=0.95)):
        with pytest.raises(Refusal) as refused:
            admission().check("gold", latest)
        assert (refused.value.status, refused.value.code) == (503, "no_live_worker")


@given(st.integers(0, 10**6), st.floats(0, 1e4), st.integers(0, 64), st.integers(1, 20))
def test_every_refusal_says_when_to_return(queued: int, rate: float, free: int, edges: int) -> None:
    latest = stands(queued=queued, rate=rate, free=free, slots=64, edges=edges)
    try:
        admission().check("gold", latest)
    except Refusal as refusal:
        assert refusal.retry_after is not None and 1 <= refusal.retry_after <= 180
        assert queued + 1 > free + 5 * latest.capacity
    else:
        assert queued <= free + 5 * latest.capacity


def test_a_sample_adds_up_what_the_members_say() -> None:
    def worker(name: str, slots: int, running: int, paused: bool = False) -> Status:
        figures = WorkerFigures(
            model="m",
            revision="r",
            plan="exact",
            device_type="cpu",
            inbox=0,
            position=0,
            slots=slots,
            running=[("r", 1)] * running,
            paused=paused,
            memory_used=0.5,
        )
        return Status(member=name, role="worker", epoch="e", counter=1, time=0, worker=figures)

    def orchestrator(name: str, waiting: int, lag: int, ends: list[int]) -> Status:
        figures = OrchestratorFigures(
            waiting={"gold": waiting}, rate={"gold": 2.0}, requests_lag=lag, requests_ends=ends
        )
        return Status(
            member=name, role="orchestration", epoch="e", counter=1, time=0, orchestrator=figures
        )

    workers = [worker("a", 8, 3), worker("b", 4, 6), worker("c", 99, 0, paused=True)]
    orchestrators = [orchestrator("a", 3, 7, [5, 9]), orchestrator("b", 4, 7, [6, 8])]
    latest = sample("gold", workers, orchestrators, 2, 0.5)
    assert latest == Sample(
        queued=14, rate=4.0, free=3, slots=12, edges=2, reached=[5, 8], memory=0.5, due=2.0
    )


def test_own_slots_are_a_quarter_and_depend_on_the_name_alone() -> None:
    assert own_slots("edge-1", 32) == own_slots("edge-1", 32)
    assert len(own_slots("edge-1", 32)) == 8
    assert own_slots("edge-1", 1) == [0]
    spread = {slot for i in range(40) for slot in own_slots(f"edge-{i}", 32)}
    assert len(spread) == 32
