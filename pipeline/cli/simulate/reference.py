"""The two folds once more, written apart from `schemas.folds`: a fold that is wrong must not judge itself.

Of a simulated request, that is one choice. docs/architecture.md says them in words.
"""

from dataclasses import dataclass, field

from schemas.tokens import Admitted, Chunk, End, Event, Open


@dataclass(slots=True)
class Ledger:
    """Who runs a request, and how it ended."""

    n: int = 0
    output: int | None = None  # offset of the outcome

    @property
    def ended(self) -> bool:
        return self.output is not None

    def read(self, kind: str, attempt: int, offset: int) -> bool:
        """Whether the record counts."""
        if self.ended:
            return False
        if kind == "lease" and attempt == self.n + 1:
            self.n = attempt
            return True
        if kind == "output" and attempt == self.n:
            self.output = offset
            return True
        return kind == "cancel" or (kind == "released" and attempt == self.n > 0)


@dataclass(slots=True)
class Slot:
    """What was said."""

    a: int = 1
    opened: int = 0
    closed: bool = False
    finished: bool = False
    ids: list[int] = field(default_factory=list)

    def read(self, event: Event) -> bool:
        """Whether a client that reads from the beginning is shown something of it."""
        if isinstance(event, Admitted):
            return True
        if self.closed:
            return False
        if isinstance(event, End):
            self.closed = True
            return True
        if isinstance(event, Open):
            fresh = event.attempt > self.opened and event.attempt >= self.a
            if fresh:
                self.a = self.opened = event.attempt
            return fresh
        return self._chunk(event)

    def _chunk(self, chunk: Chunk) -> bool:
        if chunk.attempt != self.a or chunk.k != len(self.ids) or self.finished:
            return False
        self.ids += chunk.ids
        self.finished = chunk.finish is not None
        return True
