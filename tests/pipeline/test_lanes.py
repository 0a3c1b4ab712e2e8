"""Lanes share by weight, the lowest keeps its floor, tenants of a lane take turns, order is kept."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes import LaneQueue, shares

WEIGHTS = {"gold": 8, "silver": 4, "bronze": 1}

pushes = st.lists(
    st.tuples(st.sampled_from(sorted(WEIGHTS)), st.sampled_from("abcd"), st.integers(1, 50)),
    max_size=60,
)


def test_shares_are_the_weights_and_never_below_the_floor() -> None:
    assert shares(WEIGHTS, 0.05)["gold"] == pytest.approx(8 / 13)
    tight = shares({"gold": 98, "silver": 1, "bronze": 1}, 0.05)
    assert tight == pytest.approx({"gold": 0.9, "silver": 0.05, "bronze": 0.05})


def test_floors_that_leave_nothing_over_are_refused() -> None:
    with pytest.raises(ValueError, match="leaves nothing over"):
        shares(WEIGHTS, 0.34)
    with pytest.raises(ValueError, match="weight above 0"):
        shares({"gold": 0}, 0.0)


@given(
    weights=st.fixed_dictionaries({lane: st.integers(1, 1000) for lane in WEIGHTS}),
    floor=st.floats(0, 0.3),
)
def test_shares_sum_to_one(weights: dict[str, int], floor: float) -> None:
    given_shares = shares(weights, floor)
    assert sum(given_shares.values()) == pytest.approx(1)
    assert min(given_shares.values()) >= floor - 1e-9


@given(
    seed=st.integers(0, 2**32),
    weights=st.fixed_dictionaries({lane: st.integers(1, 20) for lane in WEIGHTS}),
    busy=st.sets(st.sampled_from(sorted(WEIGHTS)), min_size=1),
)
@settings(max_examples=50)
def test_lanes_with_work_are_served_by_share(
    seed: int, weights: dict[str, int], busy: set[str]
) -> None:
    chance = random.Random(seed)
    queue: LaneQueue[tuple[str, int]] = LaneQueue(weights, floor=0.05)
    for lane in sorted(busy):
        for _ in range(400):
            cost = chance.randint(1, 100)
            queue.push(lane, "a", (lane, cost), cost)
    spent: Counter[str] = Counter()
    while all(queue.waiting(lane) for lane in busy):
        item = queue.pop()
        assert item is not None
        spent[item[0]] += item[1]
    given_shares = shares(weights, 0.05)
    whole = sum(given_shares[lane] for lane in busy)
    for lane in busy:
        due = given_shares[lane] / whole * spent.total()
        assert abs(spent[lane] - due) <= 3 * 100  # a lane is at most a dearest item off, each way


def test_the_low_lane_is_served_while_the_high_ones_never_run_dry() -> None:
    queue: LaneQueue[str] = LaneQueue({"gold": 1000, "silver": 1000, "bronze": 1}, floor=0.05)
    served: Counter[str] = Counter()
    for lane in WEIGHTS:
        queue.push(lane, "a", lane)
    for _ in range(1000):
        item = queue.pop()
        assert item is not None
        served[item] += 1
        queue.push(item, "a", item)  # at most one of each waits: the backlog is in Kafka
    assert served["bronze"] >= 49


def test_a_lane_alone_gets_everything_and_owes_nothing_later() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    for _ in range(100):
        queue.push("bronze", "a", "bronze")
        assert queue.pop() == "bronze"
    for lane in ("gold", "bronze"):
        for _ in range(90):
            queue.push(lane, "a", lane)
    served = Counter(queue.pop() for _ in range(90))
    assert served["gold"] == pytest.approx(80, abs=2)


@given(pushes)
def test_everything_comes_out_once_and_in_each_tenants_order(
    given_pushes: list[tuple[str, str, int]],
) -> None:
    queue: LaneQueue[tuple[str, str, int]] = LaneQueue(WEIGHTS)
    for number, (lane, tenant, cost) in enumerate(given_pushes):
        queue.push(lane, tenant, (lane, tenant, number), cost)
    out = []
    while (item := queue.pop()) is not None:
        out.append(item)
    assert sorted(number for _, _, number in out) == list(range(len(given_pushes)))
    for lane, tenant in {(lane, tenant) for lane, tenant, _ in out}:
        numbers = [n for a, b, n in out if (a, b) == (lane, tenant)]
        assert numbers == sorted(numbers)
    assert len(queue) == 0


def test_tenants_take_turns_however_much_one_of_them_sends() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    for _ in range(1000):
        queue.push("silver", "loud", "loud")
    for _ in range(10):
        queue.push("silver", "quiet", "quiet")
    assert Counter(queue.pop() for _ in range(20)) == {"loud": 10, "quiet": 10}


def test_a_tenant_that_comes_back_one_by_one_takes_no_more_than_its_turn() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    for _ in range(100):
        queue.push("silver", "many", "many")
    served: Counter[str | None] = Counter()
    queue.push("silver", "one", "one")
    for _ in range(100):
        item = queue.pop()
        served[item] += 1
        if item == "one":
            queue.push("silver", "one", "one")
    assert served["one"] == pytest.approx(50, abs=1)


def test_a_new_tenant_does_not_make_up_for_the_time_it_was_away() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    for _ in range(500):
        queue.push("silver", "old", "old")
    for _ in range(300):
        queue.pop()
    for _ in range(100):
        queue.push("silver", "new", "new")
    assert Counter(queue.pop() for _ in range(40))["old"] == pytest.approx(20, abs=1)


def test_what_does_not_fit_keeps_its_place_and_blocks_nobody() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    queue.push("gold", "a", "big")
    queue.push("gold", "a", "behind")
    queue.push("gold", "b", "small")
    assert queue.pop(lambda item: item != "big") == "small"
    assert queue.pop(lambda item: item != "big") is None
    assert [queue.pop(), queue.pop()] == ["big", "behind"]


@given(pushes, st.integers(0, 59))
def test_what_is_removed_does_not_come_out(
    given_pushes: list[tuple[str, str, int]], bound: int
) -> None:
    queue: LaneQueue[int] = LaneQueue(WEIGHTS)
    for number, (lane, tenant, cost) in enumerate(given_pushes):
        queue.push(lane, tenant, number, cost)
    removed = queue.remove(lambda number: number < bound)
    left = sorted(item for _, _, item in queue.items())
    assert sorted(removed) + left == list(range(len(given_pushes)))
    assert len(queue) == len(left) == sum(queue.waiting(lane) for lane in WEIGHTS)


def test_unknown_lanes_and_free_items_are_errors() -> None:
    queue: LaneQueue[str] = LaneQueue(WEIGHTS)
    with pytest.raises(KeyError):
        queue.push("platinum", "a", "x")
    with pytest.raises(ValueError, match="above 0"):
        queue.push("gold", "a", "x", 0)
