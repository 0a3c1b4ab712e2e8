"""What an open request needs next, and which deaths count against it."""

import itertools

import pytest

from schemas.ledger import Lease
from schemas.work import Place
from stages.orchestration.books import Case
from stages.orchestration.judge import DEATHS_LIMIT, LATE, Holder, Step, Strikes, next_step, strikes
from stages.orchestration.slots import Spoken


def _lease(attempt: int, worker: str = "w", epoch: str = "") -> Lease:
    return Lease(
        request_id="r",
        attempt=attempt,
        worker=worker,
        epoch=epoch or f"{worker}{attempt}",
        slot_from=0,
        ready=Place("", 0, 0),
        accepted=0,
        tenant="t",
        body_hash="",
        nonce="",
        orchestrator="o",
        lane="gold",
        deadline=1000,
    )


def _case(*leases: Lease) -> Case:
    case = Case("r", 0, 0)
    for lease in leases:
        assert case.fold.lease(lease.attempt)
        case.holders[lease.attempt] = case.lease = lease
    return case


def _spoken(opened: list[int], added: dict[int, int] | None = None) -> Spoken:
    spoken = Spoken()
    spoken.opened, spoken.added = set(opened), added or {}
    return spoken


def _gone(worker: str, epoch: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("holder", "cancelled", "now", "step"),
    [
        (Holder.ALIVE, False, 0, Step.NOTHING),
        (Holder.ALIVE, True, 0, Step.WAKE_CANCELLED),
        (Holder.ALIVE, False, 1001 + LATE, Step.WAKE_EXPIRED),
        (Holder.ALIVE, False, 1001, Step.NOTHING),
        (Holder.ENDING, True, 9999, Step.NOTHING),
        (Holder.DEAD, False, 0, Step.CONTINUE),
        (Holder.NOBODY, False, 0, Step.CONTINUE),
        (Holder.ORCHESTRATOR, False, 0, Step.CONTINUE),
        (Holder.DEAD, True, 0, Step.END),
        (Holder.NOBODY, False, 1001, Step.END),
    ],
)
def test_who_ends_it_depends_on_who_holds_it(
    holder: Holder, cancelled: bool, now: int, step: Step
) -> None:
    case = _case(_lease(1))
    case.fold.cancelled = cancelled
    assert next_step(case, holder, 1000, now) is step


def test_a_cancel_before_any_lease_ends_it_at_once() -> None:
    case = Case("r", 0, 0)
    assert next_step(case, Holder.NOBODY, 1000, 0) is Step.NOTHING
    case.fold.cancel()
    assert next_step(case, Holder.NOBODY, 1000, 0) is Step.END


def test_nothing_follows_from_a_doubtful_or_an_ended_one() -> None:
    for holder in Holder:
        case = _case(_lease(1))
        case.fold.cancelled = case.doubtful = True
        assert next_step(case, holder, 0, 9999) is Step.NOTHING
        case.doubtful, case.fold.ended = False, True
        assert next_step(case, holder, 0, 9999) is Step.NOTHING


def test_three_deaths_in_a_row_without_a_token_are_poison() -> None:
    case = _case(_lease(1), _lease(2))
    assert not strikes(case, _spoken([1, 2]), _gone).poison([])
    case = _case(_lease(1), _lease(2), _lease(3))
    assert strikes(case, _spoken([1, 2, 3]), _gone).poison([("w", "w1"), ("w", "w2"), ("w", "w3")])


def test_each_death_of_others_asks_for_one_more() -> None:
    """In a fleet whose workers are killed, somebody always is about to say its first token."""
    others = [("x", "x1"), ("x", "x1"), ("y", "y1")]
    for own in range(3, DEATHS_LIMIT + 1):
        lives = frozenset(("w", f"w{i}") for i in range(own))
        assert Strikes(lives).poison([*others, *lives]) is (own >= 5)


def test_whatever_else_dies_a_poison_has_an_end() -> None:
    others = [("x", f"x{i}") for i in range(100)]
    lives = frozenset(("w", f"w{i}") for i in range(DEATHS_LIMIT))
    assert Strikes(lives).poison([*others, *lives])


def test_two_faults_that_an_engine_reports_are_no_accident() -> None:
    assert Strikes(faults=2).poison([("x", "x1"), ("y", "y1")])
    assert not Strikes(faults=1).poison([])


def test_a_token_between_them_clears_it() -> None:
    case = _case(_lease(1), _lease(2), _lease(3))
    assert strikes(case, _spoken([1, 2, 3], {2: 4}), _gone).count == 1
    assert strikes(case, _spoken([1, 2, 3], {3: 1}), _gone).count == 0


def test_what_never_opened_does_not_count() -> None:
    assert strikes(_case(_lease(1), _lease(2)), _spoken([2]), _gone).count == 1


@pytest.mark.parametrize("why", ["full", "drain", "wrong_model", "lost"])
def test_given_back_for_other_reasons_is_neither_for_nor_against(why: str) -> None:
    case = _case(_lease(1), _lease(2), _lease(3))
    case.given_back[2] = why
    assert strikes(case, _spoken([1, 2, 3]), _gone).count == 2


def test_a_fault_counts_with_its_open_and_unreadable_without() -> None:
    for why, opened in itertools.product(["fault", "unreadable"], [[], [1, 2]]):
        case = _case(_lease(1, epoch="e"), _lease(2, epoch="e"))
        case.given_back = {1: why, 2: why}
        assert strikes(case, _spoken(opened), _gone).count == (
            2 if opened or why == "unreadable" else 0
        )


def test_an_orchestrators_own_attempts_do_not_count() -> None:
    case = _case(_lease(1), _lease(2, worker="o"), _lease(3))
    assert strikes(case, _spoken([1, 2, 3]), _gone).count == 2


def test_a_process_dies_once_and_who_lives_was_only_silent() -> None:
    twice = _case(_lease(1, epoch="e"), _lease(2, epoch="e"))
    assert strikes(twice, _spoken([1, 2]), _gone).count == 1
    back = _case(_lease(1, epoch="back"), _lease(2))
    assert strikes(back, _spoken([1, 2]), lambda worker, epoch: epoch != "back").count == 1
