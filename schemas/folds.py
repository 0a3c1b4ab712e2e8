"""The two folds: a request's truth, each partition read in offset order.

`LedgerFold`: who runs it and how it ended. `SlotFold`: what was said. Pure; shared by edge,
orchestration, workers, delivery, console and replay. Why each sentence is there is told in
docs/architecture.md.
"""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(slots=True)
class LedgerFold:
    """From n = 0, not ended. Feed it every ledger record of one request in offset order."""

    n: int = 0
    ended: bool = False
    cancelled: bool = False
    released: bool = False  # attempt n was given back
    output: int | None = None  # offset of the counted output

    def lease(self, attempt: int) -> bool:
        """Counts iff it is the next number and nothing has ended it."""
        if self.ended or attempt != self.n + 1:
            return False
        self.n = attempt
        self.released = False
        return True

    def output_at(self, attempt: int, offset: int) -> bool:
        """Counts iff it is of the current attempt; then that record is the outcome."""
        if self.ended or attempt != self.n:
            return False
        self.ended = True
        self.output = offset
        return True

    def release(self, attempt: int) -> bool:
        if self.ended or attempt != self.n or self.n == 0:
            return False
        self.released = True
        return True

    def cancel(self) -> bool:
        if self.ended:
            return False
        self.cancelled = True
        return True

    def apply(self, kind: str, attempt: int, offset: int) -> bool:
        """Fold by headers alone: `kind` is the tag's name without version. True: it counts."""
        if kind == "lease":
            return self.lease(attempt)
        if kind == "output":
            return self.output_at(attempt, offset)
        if kind == "released":
            return self.release(attempt)
        if kind == "cancel":
            return self.cancel()
        return False


class Effect(Enum):
    """What a slot record means to a reader."""

    NOTHING = "nothing"  # a repeat, a superseded attempt, or after the end
    ADMITTED = "admitted"
    STARTED = "started"  # the first open of this attempt
    TOKENS = "tokens"
    HOLE = "hole"  # tokens before it are missing: wait, never skip
    CLOSED = "closed"


@dataclass(slots=True)
class SlotFold:
    """From a = 1, e = 0. Feed it every slot record of one request in offset order."""

    attempt: int = 1
    ends: dict[int, int] = field(default_factory=dict)  # choice → e
    closed: bool = False
    opened: int = 0  # highest attempt whose open was read
    seen: bool = False  # any record of the request was read
    finishes: dict[int, str] = field(default_factory=dict)  # choice → finish of a counted chunk

    @property
    def seq(self) -> int:
        """Tokens said so far, over all choices: the next token index."""
        return sum(self.ends.values())

    def admitted(self) -> Effect:
        first = not self.seen
        self.seen = True
        return Effect.ADMITTED if first else Effect.NOTHING

    def open(self, attempt: int) -> Effect:
        self.seen = True
        if self.closed or attempt <= self.opened or attempt < self.attempt:
            return Effect.NOTHING
        self.opened = attempt
        self.attempt = attempt
        return Effect.STARTED

    def chunk(
        self, attempt: int, choice: int, k: int, length: int, finish: str | None = None
    ) -> Effect:
        self.seen = True
        e = self.ends.get(choice, 0)
        if self.closed or attempt != self.attempt or k < e:
            return Effect.NOTHING
        if k > e:
            return Effect.HOLE
        if length == 0 and (finish is None or choice in self.finishes):
            return Effect.NOTHING
        self.ends[choice] = e + length
        if finish is not None:
            self.finishes[choice] = finish
        return Effect.TOKENS

    def end(self) -> Effect:
        self.seen = True
        if self.closed:
            return Effect.NOTHING
        self.closed = True
        return Effect.CLOSED

    @classmethod
    def resume(cls, attempt: int, seq: int, *, opened: int | None = None) -> "SlotFold":
        """A reader in the middle (one choice): the attempt of the record at `offset`, e = seq.

        `opened`: the highest attempt whose `started` it was shown; 0 after `admitted`, else the attempt.
        """
        shown = attempt if opened is None else opened
        return cls(attempt=attempt, ends={0: seq}, opened=shown, seen=True)
