"""Idempotent producers: is a batch the next one, a repeat of one of the last five, or a gap?

Pure. The rules are those of Kafka's `ProducerStateManager`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pipeline.embedded.errors import Code, Refused

_KEPT = 5  # batches a producer may have in flight, so repeats reach back that far
_LAST_SEQUENCE = 2**31 - 1  # after it comes 0


class Sequence(NamedTuple):
    """One batch: its first and last sequence number, and the offset of its first record."""

    first: int
    last: int
    base_offset: int


class Window(NamedTuple):
    """What one partition knows of one producer: its epoch and its last batches, oldest first."""

    epoch: int
    sequences: tuple[Sequence, ...]

    def to_json(self) -> str:
        return json.dumps(self.sequences)

    @classmethod
    def from_json(cls, epoch: int, sequences: str) -> Window:
        return cls(epoch, tuple(Sequence._make(item) for item in json.loads(sequences)))


def admit(window: Window | None, epoch: int, first: int, count: int) -> Sequence | None:
    """The earlier batch that this one repeats, or None if it is the next one.

    Raises `Refused`: an older epoch, or a gap.
    """
    if window is None:
        return None  # unknown here: a producer may start anywhere, as its history may be deleted
    if epoch < window.epoch:
        raise Refused(Code.invalid_producer_epoch, f"epoch {epoch} is older than {window.epoch}")
    last = _plus(first, count - 1)
    if epoch > window.epoch:
        if first != 0:
            raise Refused(
                Code.out_of_order_sequence_number, f"a new epoch starts at 0, not at {first}"
            )
        return None
    for sequence in window.sequences:
        if (sequence.first, sequence.last) == (first, last):
            return sequence
    expected = _plus(window.sequences[-1].last, 1)
    if first != expected:
        raise Refused(Code.out_of_order_sequence_number, f"sequence {first}, expected {expected}")
    return None


def advanced(window: Window | None, epoch: int, first: int, count: int, base_offset: int) -> Window:
    """The window after the batch went into the log at `base_offset`."""
    sequence = Sequence(first, _plus(first, count - 1), base_offset)
    earlier = window.sequences if window is not None and window.epoch == epoch else ()
    return Window(epoch, (*earlier[1 - _KEPT :], sequence))


def _plus(sequence: int, increment: int) -> int:
    return (sequence + increment) % (_LAST_SEQUENCE + 1)
