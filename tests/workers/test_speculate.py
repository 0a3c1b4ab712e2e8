"""Drafts are what followed the same words before, and stop where they are wrong."""

from workers.speculate import NGRAM, PromptLookup


def test_a_draft_is_what_followed_the_last_tokens_before() -> None:
    assert PromptLookup().propose([1, 2, 3, 4, 5, 9, 1, 2, 3], 2) == [4, 5]


def test_the_latest_occurrence_counts() -> None:
    ids = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]
    assert PromptLookup().propose(ids, 1) == [5]


def test_no_draft_where_nothing_is_repeated() -> None:
    assert PromptLookup().propose([1, 2, 3, 4, 5, 6], 4) == []
    assert PromptLookup().propose([1] * NGRAM, 4) == []
    assert PromptLookup().propose([1], 4) == []


def test_never_more_than_asked_for() -> None:
    assert PromptLookup().propose([1, 2, 3] * 5, 1) == [1]
    assert PromptLookup().propose([1, 2, 3] * 5, 0) == []


def test_tokens_that_come_one_by_one_are_found_as_well() -> None:
    lookup, ids = PromptLookup(), [1, 2, 3]
    for token in (4, 5, 6, 1, 2):
        assert lookup.propose(ids, 4) == []
        ids.append(token)
    assert lookup.propose([*ids, 3], 2) == [4, 5]


def test_drafting_rests_while_it_does_not_pay_and_tries_again() -> None:
    lookup, ids = PromptLookup(), [1, 2, 3] * 5
    while lookup.propose(ids, 4):
        lookup.learn(4, 0)
    rest = 1
    while not lookup.propose(ids, 4):
        rest += 1
    assert 16 < rest < 200


def test_longer_drafts_where_they_are_right() -> None:
    lookup, ids = PromptLookup(), list(range(20)) * 2
    first = len(lookup.propose(ids, 8))
    for _ in range(10):
        lookup.learn(4, 4)
    assert len(lookup.propose(ids, 8)) > first
