"""Drafts are what followed the same words before, as many as pay."""

import pytest

from workers.speculate import LONGEST, NGRAM, PromptLookup, least_right


def test_a_draft_is_what_followed_the_last_tokens_before() -> None:
    assert PromptLookup().propose([1, 2, 3, 4, 5, 9, 1, 2, 3], 2, 0.1) == [4, 5]


def test_the_latest_occurrence_counts() -> None:
    ids = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]
    assert PromptLookup().propose(ids, 1, 0.1) == [5]


def test_no_draft_where_nothing_is_repeated() -> None:
    assert PromptLookup().propose([1, 2, 3, 4, 5, 6], 4, 0.1) == []
    assert PromptLookup().propose([1] * NGRAM, 4, 0.1) == []
    assert PromptLookup().propose([1], 4, 0.1) == []


def test_never_more_than_asked_for() -> None:
    assert PromptLookup().propose([1, 2, 3] * 5, 1, 0.1) == [1]
    assert PromptLookup().propose([1, 2, 3] * 5, 0, 0.1) == []


def test_tokens_that_come_one_by_one_are_found_as_well() -> None:
    lookup, ids = PromptLookup(), [1, 2, 3]
    for token in (4, 5, 6, 1, 2):
        assert lookup.propose(ids, 4, 0.1) == []
        ids.append(token)
    assert lookup.propose([*ids, 3], 2, 0.1) == [4, 5]


def test_drafting_rests_while_it_does_not_pay_and_tries_again() -> None:
    lookup, ids = PromptLookup(), [1, 2, 3] * 5
    while lookup.propose(ids, 4, 0.3):
        lookup.learn(4, 0)
    rest = 1
    while not lookup.propose(ids, 4, 0.3):
        rest += 1
    assert 16 < rest < 200


def test_longer_drafts_where_they_are_right_and_where_they_are_cheap() -> None:
    lookup, ids = PromptLookup(), list(range(20)) * 2
    cheap, dear = len(lookup.propose(ids, 8, 0.2)), len(lookup.propose(ids, 8, 0.6))
    assert cheap > dear > 0
    for _ in range(20):
        lookup.learn(4, 4)
    assert len(lookup.propose(ids, 8, 0.6)) > dear
    assert len(lookup.propose(ids, 8, 0.0)) == LONGEST
    assert lookup.propose(ids, 8, 1.0) == []


@pytest.mark.parametrize(("cost", "sequences", "least"), [(0.3, 1, 0.3), (1.0, 1, 1), (0.0, 9, 0)])
def test_a_draft_pays_from_the_chance_that_it_costs(
    cost: float, sequences: int, least: float
) -> None:
    assert least_right(cost, sequences) == pytest.approx(least)


def test_in_larger_steps_fewer_drafts_pay() -> None:
    costs = [least_right(0.3, n) for n in range(1, 64)]
    assert costs == sorted(costs) and costs[-1] < 1
