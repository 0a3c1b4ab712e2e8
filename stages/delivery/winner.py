"""Which output is the outcome: the ledger fold of one partition, by headers alone. Pure.

It begins at the oldest request whose result, `end` and account are not all acked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.history import History, id_of
from pipeline.log import Record
from pipeline.tracker import Tracker
from schemas.codec import int_header, name_of, text_header
from schemas.folds import LedgerFold

ENDED_LIMIT = 2_000  # ended ids remembered exactly; the history knows the older ones


@dataclass(slots=True, eq=False)
class Open:
    """A request whose records have not all been done."""

    request_id: str
    offset: int  # of its first ledger record: a commit may not pass it
    fold: LedgerFold = field(default_factory=LedgerFold)


@dataclass(frozen=True, slots=True, eq=False)
class Winner:
    """The output that counts."""

    opened: Open
    record: Record


class Winners:
    """One ledger partition."""

    def __init__(self, partition: int, tracker: Tracker, done: Callable[[int], None]) -> None:
        self.partition = partition
        self.tracker = tracker
        self.target: int | None = None
        self.active = False
        self.began = tracker.next  # what lies before it has been delivered
        self.history = History()
        self.delivered: dict[str, int] = {}  # id → output offset, as hr.results had it at the start
        self.void = 0
        self._done = done
        self._open: dict[str, Open] = {}
        self._ended: dict[str, None] = {}
        self._begun = False

    def read(self, record: Record) -> Winner | None:
        """Fold one record, in offset order; the tracker has begun it."""
        if not self._begun:
            self._begun = True
            self.history.begin(record)
        request_id, kind, attempt = _headline(record)
        opened = self._open.get(request_id)
        first = opened is None
        if opened is None:
            opened = Open(request_id, record.offset)
        # a cancel opens nothing: its request has no lease yet, or had ended before we began
        known = first and (request_id in self._ended or kind == "cancel")
        if known or not opened.fold.apply(kind, attempt, record.offset):
            self.void += 1
            self._done(record.offset)
            return None
        if first:
            self._open[request_id] = opened
        else:
            self._done(record.offset)
        if not opened.fold.ended:
            return None
        del self._open[request_id]
        self._ended[request_id] = None
        if len(self._ended) > ENDED_LIMIT:
            del self._ended[next(iter(self._ended))]
        return Winner(opened, record)

    def doubtful(self, winner: Winner, accepted: int) -> bool:
        """Whether the request may have ended before we began, so that this output is void."""
        return self.history.doubtful(winner.opened.request_id, accepted)

    def conclude(self, winner: Winner) -> None:
        """Result, `end` and account are acked, or it was void after all."""
        self.history.add(winner.opened.request_id, winner.record.timestamp)
        self._done(winner.opened.offset)


def _headline(record: Record) -> tuple[str, str, int]:
    """(request id, kind, attempt); what has no usable header counts for nothing."""
    kind = name_of(text_header(record.headers, "type") or "")
    attempt = int_header(record.headers, "attempt")
    return id_of(record) or "", kind, -1 if attempt is None else attempt
