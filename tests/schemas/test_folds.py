"""The two folds under random schedules: zombies, repeats, holes, restarts, readers that begin anywhere.

A model of one request: orchestrators that own nothing and declare death at whim, workers whose tokens
differ per process, buffers that land after a kill, repeats of any append. Whatever the schedule, one
outcome, and every reader sees the tokens of the result, once and in order.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.folds import Effect, LedgerFold, SlotFold

# the ledger fold


def test_leases_count_in_order_and_the_first_of_a_number_wins() -> None:
    fold = LedgerFold()
    assert not fold.apply("lease", 2, 0)
    assert fold.apply("lease", 1, 1)
    assert not fold.apply("lease", 1, 2)
    assert fold.apply("lease", 2, 3)
    assert fold.n == 2


def test_an_output_of_a_superseded_attempt_is_void() -> None:
    fold = LedgerFold()
    for offset, (kind, attempt) in enumerate([("lease", 1), ("lease", 2)]):
        assert fold.apply(kind, attempt, offset)
    assert not fold.apply("output", 1, 2)
    assert fold.apply("output", 2, 3)
    assert (fold.ended, fold.output) == (True, 3)
    assert not fold.apply("output", 2, 4), "a repeat is not another outcome"
    assert not fold.apply("lease", 3, 5)
    assert not fold.apply("cancel", 0, 6)


def test_ingress_ends_before_any_lease_or_not_at_all() -> None:
    assert LedgerFold().apply("output", 0, 0)
    fold = LedgerFold()
    fold.apply("lease", 1, 0)
    assert not fold.apply("output", 0, 1)


def test_a_release_is_of_the_current_attempt_and_the_next_lease_takes_it_over() -> None:
    fold = LedgerFold()
    assert not fold.apply("released", 0, 0)
    fold.apply("lease", 1, 1)
    assert fold.apply("released", 1, 2)
    assert fold.released
    fold.apply("lease", 2, 3)
    assert not fold.released
    assert not fold.apply("released", 1, 4)


def test_an_unknown_kind_counts_for_nothing() -> None:
    fold = LedgerFold()
    assert not fold.apply("promise", 1, 0)
    assert fold == LedgerFold()


KINDS = st.sampled_from(["lease", "output", "released", "cancel", "other"])


@given(st.lists(st.tuples(KINDS, st.integers(0, 4)), max_size=60))
def test_whatever_is_written_there_is_one_outcome_and_attempts_only_rise(
    records: list[tuple[str, int]],
) -> None:
    fold, outputs, last = LedgerFold(), [], 0
    for offset, (kind, attempt) in enumerate(records):
        counts = fold.apply(kind, attempt, offset)
        assert fold.n in (last, last + 1)
        last = fold.n
        if counts and kind == "output":
            outputs.append(offset)
            assert attempt == fold.n
    assert len(outputs) <= 1
    assert fold.ended == bool(outputs)
    assert fold.output == (outputs[0] if outputs else None)


@given(st.lists(st.tuples(KINDS, st.integers(0, 4)), max_size=40), st.data())
def test_a_repeat_of_any_record_at_any_later_place_changes_no_outcome(
    records: list[tuple[str, int]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(records)))
    earlier = records[:at]
    repeat = data.draw(st.sampled_from(earlier)) if earlier else None
    plain, repeated = LedgerFold(), LedgerFold()
    for offset, (kind, attempt) in enumerate(records):
        plain.apply(kind, attempt, offset)
    if repeat is None or repeat[0] == "cancel":
        return
    first = LedgerFold()
    counted = [first.apply(kind, attempt, i) for i, (kind, attempt) in enumerate(earlier)]
    if not counted[earlier.index(repeat)]:
        return  # it was void where it stood: what it says is said for the first time
    for offset, (kind, attempt) in enumerate(earlier):
        repeated.apply(kind, attempt, offset)
    before = (repeated.n, repeated.ended, repeated.output)
    repeated.apply(*repeat, at)
    assert (repeated.n, repeated.ended, repeated.output) == before


# the slot fold


def test_only_the_first_open_of_an_attempt_shows_that_it_started() -> None:
    fold = SlotFold()
    assert fold.admitted() is Effect.ADMITTED
    assert fold.open(1) is Effect.STARTED
    assert fold.open(1) is Effect.NOTHING
    assert fold.open(3) is Effect.STARTED
    assert fold.open(2) is Effect.NOTHING
    assert fold.admitted() is Effect.NOTHING


def test_queued_is_shown_only_if_it_is_the_first_record() -> None:
    fold = SlotFold()
    fold.open(1)
    assert fold.admitted() is Effect.NOTHING


def test_chunks_after_a_higher_open_are_void() -> None:
    fold = SlotFold()
    fold.open(1)
    assert fold.chunk(1, 0, 0, 10) is Effect.TOKENS
    fold.open(2)
    assert fold.chunk(1, 0, 10, 4) is Effect.NOTHING, "the zombie's buffer landed late"
    assert fold.chunk(2, 0, 10, 8) is Effect.TOKENS
    assert fold.seq == 18


def test_chunks_of_an_attempt_that_has_not_opened_are_void() -> None:
    fold = SlotFold()
    fold.open(1)
    assert fold.chunk(2, 0, 0, 4) is Effect.NOTHING
    assert fold.seq == 0


def test_a_hole_is_waited_for_and_a_repeat_is_dropped_whole() -> None:
    fold = SlotFold()
    fold.open(1)
    fold.chunk(1, 0, 0, 3)
    assert fold.chunk(1, 0, 5, 2) is Effect.HOLE
    assert fold.chunk(1, 0, 1, 5) is Effect.NOTHING, "straddling: dropped, not sliced"
    assert fold.chunk(1, 0, 3, 2) is Effect.TOKENS
    assert fold.chunk(1, 0, 5, 2) is Effect.TOKENS
    assert fold.seq == 7


def test_an_empty_last_chunk_finishes_its_choice_once() -> None:
    fold = SlotFold()
    fold.open(1)
    fold.chunk(1, 0, 0, 3)
    assert fold.chunk(1, 0, 3, 0) is Effect.NOTHING
    assert fold.chunk(1, 0, 3, 0, "stop") is Effect.TOKENS
    assert fold.chunk(1, 0, 3, 0, "stop") is Effect.NOTHING
    assert fold.finishes == {0: "stop"}


def test_choices_have_their_own_counts() -> None:
    fold = SlotFold()
    fold.open(1)
    assert fold.chunk(1, 0, 0, 3) is Effect.TOKENS
    assert fold.chunk(1, 1, 0, 2) is Effect.TOKENS
    assert fold.chunk(1, 1, 3, 1) is Effect.HOLE
    assert fold.seq == 5


def test_nothing_counts_after_the_end() -> None:
    fold = SlotFold()
    fold.open(1)
    assert fold.end() is Effect.CLOSED
    assert fold.end() is Effect.NOTHING
    assert fold.chunk(1, 0, 0, 3) is Effect.NOTHING
    assert fold.open(2) is Effect.NOTHING


def test_who_resumes_at_admitted_still_sees_started() -> None:
    fold = SlotFold.resume(1, 0, opened=0)
    assert fold.open(1) is Effect.STARTED
    assert SlotFold.resume(1, 0).open(1) is Effect.NOTHING


# a request's whole life: the model of the protocol review


@dataclass
class Life:
    """One request on its two partitions, by a seed."""

    chance: random.Random
    vary: bool  # tokens depend on the attempt
    length: int
    ledger: list[tuple[str, int, list[int]]] = field(default_factory=list)  # kind, attempt, tokens
    slot: list[tuple[str, int, int, list[int]]] = field(
        default_factory=list
    )  # kind, attempt, k, ids
    late: list[tuple[str, object]] = field(default_factory=list)  # buffers of the dead

    def token(self, attempt: int, k: int) -> int:
        return 1000 * attempt * self.vary + k

    def fold(self) -> LedgerFold:
        fold = LedgerFold()
        for offset, (kind, attempt, _) in enumerate(self.ledger):
            fold.apply(kind, attempt, offset)
        return fold

    def spoken(self, upto: int | None = None) -> tuple[SlotFold, list[int]]:
        return read(self.slot[:upto])

    def land(self) -> None:
        """Something of the dead lands, or an append is repeated."""
        if self.late and self.chance.random() < 0.5:
            where, record = self.late.pop(self.chance.randrange(len(self.late)))
            (self.slot if where == "slot" else self.ledger).append(record)  # type: ignore[arg-type]
        elif self.slot and self.chance.random() < 0.3:
            kind, *rest = self.chance.choice(self.slot)
            if kind != "end":
                self.slot.append((kind, *rest))  # type: ignore[arg-type]

    def attempt(self, n: int) -> None:
        """A worker takes order n, at whim dies or is only paused, and may wake later."""
        self.slot.append(("open", n, 0, []))
        self.land()
        fold, said = self.spoken()
        if fold.attempt > n:
            return
        said = list(said)
        while len(said) < self.length:
            size = min(self.chance.randint(1, 4), self.length - len(said))
            ids = [self.token(n, len(said) + i) for i in range(size)]
            record = ("chunk", n, len(said), ids)
            said += ids
            if self.chance.random() < 0.12:  # dies, or sleeps: what was in its buffer lands later
                self.late.append(("slot", record))
                if self.chance.random() < 0.5:
                    self.late.append(("ledger", ("output", n, said[: len(said) - size])))
                return
            self.slot.append(record)
            if self.chance.random() < 0.1:
                self.slot.append(record)
            self.land()
            if self.fold().n > n and self.chance.random() < 0.3:
                return  # it heard that it was superseded
        self.ledger.append(("output", n, said))
        if self.chance.random() < 0.2:
            self.ledger.append(("output", n, said))

    def live(self) -> None:
        for _ in range(40):
            fold = self.fold()
            if fold.ended:
                break
            n = fold.n + 1
            self.ledger.append(("lease", n, []))
            if self.chance.random() < 0.3:
                self.ledger.append(("lease", n, []))  # another orchestrator, a moment too late
            last = n == 39
            if last or self.chance.random() < 0.1:  # an orchestrator ends it itself
                if n > 1:
                    self.slot.append(("open", n, 0, []))
                    self.land()
                said = self.spoken()[1] if n > 1 else []
                if self.spoken()[0].attempt <= n:
                    self.ledger.append(("output", n, said))
            else:
                self.attempt(n)
        while self.late:
            self.land()
        outcome = self.fold().output
        assert outcome is not None
        self.slot.append(("end", 0, len(self.ledger[outcome][2]), []))
        for _ in range(3):
            self.land()


def read(
    records: list[tuple[str, int, int, list[int]]], fold: SlotFold | None = None
) -> tuple[SlotFold, list[int]]:
    fold, said = fold or SlotFold(), []
    for kind, attempt, k, ids in records:
        if kind == "open":
            fold.open(attempt)
        elif kind == "end":
            fold.end()
        else:
            effect = fold.chunk(attempt, 0, k, len(ids))
            if effect is Effect.TOKENS:
                said += ids
    return fold, said


@pytest.mark.parametrize("block", range(20))
def test_one_outcome_and_the_stream_is_the_result_whatever_happens(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        chance = random.Random(seed)
        life = Life(chance, vary=bool(seed % 2), length=chance.randint(1, 20))
        life.live()
        outcome = life.fold().output
        assert outcome is not None
        result = life.ledger[outcome][2]
        fold, said = life.spoken()
        assert said == result, f"seed {seed}"
        assert fold.closed


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_a_reader_that_resumes_at_any_record_sees_the_rest_and_nothing_twice(seed: int) -> None:
    chance = random.Random(seed)
    life = Life(chance, vary=bool(seed % 2), length=chance.randint(1, 16))
    life.live()
    whole = life.spoken()[1]
    fold, seen = SlotFold(), 0
    for offset, (kind, attempt, k, ids) in enumerate(life.slot):
        if kind == "open":
            told = fold.open(attempt) is Effect.STARTED
        elif kind == "chunk":
            told = fold.chunk(attempt, 0, k, len(ids)) is Effect.TOKENS
            seen += len(ids) if told else 0
        else:
            break
        if told:  # a client may have this record's frame as its last
            resumed, rest = read(life.slot[offset:], SlotFold.resume(fold.attempt, seen))
            assert whole[:seen] + rest == whole
            assert resumed.closed
