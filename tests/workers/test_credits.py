"""Credits: cumulative, never taken back, shared evenly, and never so many that work piles up."""

from hypothesis import given
from hypothesis import strategies as st

from workers.credits import Credits


def test_free_slots_are_shared_evenly_and_the_rest_in_turn() -> None:
    credits = Credits()
    assert credits.grant(["a", "b"], 8) == {"a": 4, "b": 4}
    assert sorted(Credits().grant(["a", "b"], 5).values()) == [2, 3]
    lone = Credits()
    seen = set()
    for _ in range(3):
        seen |= {epoch for epoch, total in lone.grant(["a", "b", "c"], 1).items() if total}
    assert seen == {"a", "b", "c"}, "at least one in turn"


def test_a_total_never_sinks_and_counts_what_was_spent() -> None:
    credits = Credits()
    credits.grant(["a"], 4)
    assert all(credits.spend("a", count) for count in (1, 2, 3))
    assert credits.grant(["a"], 1) == {"a": 4}, "one is still on offer"
    assert credits.grant(["a"], 4) == {"a": 7}


def test_an_order_that_was_never_offered_is_told_from_one_that_was() -> None:
    credits = Credits()
    credits.grant(["a"], 2)
    assert not credits.spend("a", 3)
    assert not credits.spend("b", 1)
    assert credits.spend("a", 2)
    assert credits.spend("a", 1), "a late one of lower count was offered too"
    assert credits.grant(["a"], 2) == {"a": 5}, "three were sent, and two more may be"


def test_a_lost_order_does_not_cost_a_credit_for_ever() -> None:
    credits = Credits()
    credits.grant(["a"], 2)
    credits.spend("a", 2)  # order 1 never came
    assert credits.grant(["a"], 2) == {"a": 4}


def test_an_orchestrator_that_was_silent_goes_on_with_its_count() -> None:
    credits = Credits()
    credits.grant(["a", "b"], 8)
    assert all(credits.spend("b", count) for count in (1, 2, 3, 4))
    assert credits.grant(["a"], 8) == {"a": 8}, "it is taken for dead, and the other one has it all"
    assert not credits.spend("b", 5), "what it sends on old news was not offered"
    assert credits.grant(["a", "b"], 8)["b"] == 9, "begun anew, it could never send again"


def test_epochs_of_long_ago_are_forgotten() -> None:
    credits = Credits()
    for life in range(2_000):
        credits.grant([f"epoch {life}"], 8)
        credits.spend(f"epoch {life}", 1)
    assert len(credits.total) <= 256
    assert len(credits.used) <= 256


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(-2, 12)),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_on_offer_is_bounded_by_the_slots(
    steps: list[tuple[int, int, int]],
) -> None:
    """However orchestrators come, go and spend: nobody is ever offered more than was free at once."""
    credits, most, totals = Credits(), 0, dict[str, int]()
    for live, spend, free in steps:
        epochs = [f"e{i}" for i in range(live)]
        most = max(most, free)
        wanted = credits.wanted(epochs, free)
        before = {epoch: totals.get(epoch, 0) for epoch in epochs}
        totals |= credits.grant(epochs, free)
        assert sum(totals[e] - before.get(e, 0) for e in epochs) == wanted
        assert all(totals[epoch] >= before[epoch] for epoch in epochs)
        assert all(credits.outstanding(epoch) <= max(0, most) for epoch in epochs)
        for epoch in epochs:
            for _ in range(min(spend, credits.outstanding(epoch))):
                assert credits.spend(epoch, credits.used.get(epoch, 0) + 1)
