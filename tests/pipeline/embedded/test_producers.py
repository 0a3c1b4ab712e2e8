"""An idempotent producer's batch is the next one, a repeat, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.producers import Window, admit, advanced

LAST = 2**31 - 1


def window_after(counts: list[int], first: int = 0) -> tuple[Window, int]:
    """The window after batches of these sizes, and the next sequence number."""
    window: Window | None = None
    offset = 0
    for count in counts:
        assert admit(window, 0, first, count) is None
        window = advanced(window, 0, first, count, offset)
        first, offset = (first + count) % (LAST + 1), offset + count
    assert window is not None
    return window, first


counts = st.lists(st.integers(1, 100), min_size=1, max_size=20)


@given(counts, st.integers(0, LAST))
def test_each_of_the_last_five_batches_may_be_repeated(sizes: list[int], start: int) -> None:
    window, _ = window_after(sizes, start)
    offset, first = 0, start
    for number, count in enumerate(sizes):
        if number >= len(sizes) - 5:
            repeated = admit(window, 0, first, count)
            assert repeated is not None
            assert repeated.base_offset == offset
        offset, first = offset + count, (first + count) % (LAST + 1)


@given(counts, st.integers(0, LAST), st.integers(1, 1000))
def test_a_gap_is_refused(sizes: list[int], start: int, gap: int) -> None:
    window, following = window_after(sizes, start)
    with pytest.raises(Refused) as refused:
        admit(window, 0, (following + gap) % (LAST + 1), 1)
    assert refused.value.code is Code.out_of_order_sequence_number


@given(counts)
def test_the_window_survives_the_disk(sizes: list[int]) -> None:
    window, _ = window_after(sizes)
    assert Window.from_json(window.epoch, window.to_json()) == window


def test_sequence_numbers_go_on_at_zero_after_the_highest() -> None:
    window, following = window_after([10], first=LAST - 4)
    assert following == 5
    assert admit(window, 0, 5, 1) is None


def test_a_new_epoch_starts_at_zero_and_an_old_one_is_refused() -> None:
    window = advanced(None, 3, 7, 2, 0)
    assert admit(window, 4, 0, 1) is None
    with pytest.raises(Refused) as gap:
        admit(window, 4, 5, 1)
    assert gap.value.code is Code.out_of_order_sequence_number
    with pytest.raises(Refused) as old:
        admit(window, 2, 9, 1)
    assert old.value.code is Code.invalid_producer_epoch


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert admit(None, 0, 12345, 1) is None
