"""What is committed never passes a record that is not done, and what is done is not done again."""

import base64
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pipeline.log import Commit
from pipeline.tracker import MAP_LIMIT, Notes, Tracker, read_notes, write_notes


def test_nothing_read_commits_where_it_began() -> None:
    assert Tracker(7).commit().offset == 7


def test_the_lowest_incomplete_offset_is_committed() -> None:
    tracker = Tracker(0)
    for offset in range(5):
        assert tracker.begin(offset)
    for offset in (4, 0, 2):
        tracker.done(offset)
    assert tracker.watermark == 1
    tracker.done(1)
    assert tracker.watermark == 3
    tracker.done(3)
    assert tracker.commit() == Commit(5, "1")


def test_offsets_may_have_holes() -> None:
    tracker = Tracker(10)
    tracker.begin(12)
    tracker.begin(20)
    assert tracker.watermark == 12
    tracker.done(12)
    assert tracker.watermark == 20
    tracker.done(20)
    assert tracker.watermark == 21


def test_what_was_completed_out_of_order_is_skipped_after_a_restart() -> None:
    tracker = Tracker(100)
    for offset in range(100, 110):
        tracker.begin(offset)
    for offset in (103, 107, 109):
        tracker.done(offset)
    commit = tracker.commit()
    assert commit.offset == 100
    again = Tracker.restore(commit)
    assert [offset for offset in range(100, 112) if again.begin(offset)] == [
        *(100, 101, 102, 104, 105, 106, 108, 110, 111),
    ]


def test_a_record_in_hand_is_not_begun_again_when_it_is_redelivered() -> None:
    tracker = Tracker(0)
    assert tracker.begin(0)
    assert not tracker.begin(0)
    tracker.done(0)
    assert not tracker.begin(0)


def test_a_span_too_long_stops_reading_until_the_oldest_is_done() -> None:
    tracker = Tracker(0, span=10)
    for offset in range(10):
        tracker.begin(offset)
    for offset in range(1, 10):
        tracker.done(offset)
    assert tracker.full
    tracker.done(0)
    assert not tracker.full


def test_the_number_of_a_try_outlives_the_process() -> None:
    tracker = Tracker(5)
    tracker.begin(5)
    tracker.trying = (5, 2)
    again = Tracker.restore(tracker.commit())
    assert (again.tries(5), again.tries(6)) == (2, 0)
    assert not again.notes.clean


def test_an_orderly_hand_over_says_so() -> None:
    assert read_notes(Tracker(5).commit(clean=True)).clean


def test_metadata_of_another_program_says_nothing() -> None:
    bomb = base64.b64encode(zlib.compress(b"\xff" * 1_000_000)).decode()
    for text in ("", "AAAA", "2;c", "1;d=%%%", "1;d=AAAA", "1;t=x:y", "1;t=5"):
        assert read_notes(Commit(3, text)) == Notes(), text
    assert len(read_notes(Commit(3, f"1;d={bomb}")).done) <= 65_536


@given(st.sets(st.integers(1, 20_000), max_size=2000))
@settings(max_examples=50, deadline=None)
def test_notes_are_read_as_they_were_written_or_left_out_when_too_long(above: set[int]) -> None:
    done = [1000 + each for each in above]
    text = write_notes(1000, done, (1000, 1))
    notes = read_notes(Commit(1000, text))
    assert len(text) <= MAP_LIMIT + 64
    assert notes.trying == (1000, 1)
    assert notes.done in (frozenset(done), frozenset())
    if max(above, default=0) < 16_000:  # 2,000 bytes fit however little they compress
        assert notes.done == frozenset(done)


def test_a_span_without_limit_commits_without_a_map() -> None:
    tracker = Tracker(0)
    for offset in range(70_000):
        tracker.begin(offset)
        if offset:
            tracker.done(offset)
    assert tracker.commit() == Commit(0, "1")


class Lives(RuleBasedStateMachine):
    """Any order of reading, finishing, committing and dying: nothing is ever lost."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = Tracker(0, span=64)
        self.committed = self.tracker.commit()
        self.finished: set[int] = set()
        self.known: set[int] = set()  # everything that was ever read
        self.in_hand: list[int] = []

    @rule(count=st.integers(1, 20))
    def read(self, count: int) -> None:
        for offset in range(self.tracker.next, self.tracker.next + count):
            if self.tracker.full:
                return
            if offset % 7 == 3:
                continue  # a hole: compacted, or a transaction's marker
            self.known.add(offset)
            if self.tracker.begin(offset):
                self.in_hand.append(offset)
            else:
                assert offset in self.finished

    @rule(chance=st.randoms(use_true_random=False))
    def finish(self, chance: object) -> None:
        if self.in_hand:
            offset = self.in_hand.pop(chance.randrange(len(self.in_hand)))  # type: ignore[attr-defined]
            self.tracker.done(offset)
            self.finished.add(offset)

    @rule()
    def commit(self) -> None:
        self.committed = self.tracker.commit()

    @rule()
    def die(self) -> None:
        self.tracker = Tracker.restore(self.committed, span=64)
        self.in_hand = []

    @invariant()
    def nothing_incomplete_is_passed(self) -> None:
        assert all(self.tracker.watermark <= offset for offset in self.in_hand)
        assert len(self.tracker) == len(self.in_hand)
        assert {each for each in self.known if each < self.committed.offset} <= self.finished


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
