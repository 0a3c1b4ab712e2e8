"""Which output is the outcome: the ledger fold of one partition, by headers alone. Pure.

It begins at the oldest request whose result, `end` and account are not all acked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.history import History, id_of, spoken_of_since
from pipeline.log import Record
from pipeline.tracker import Tracker
from schemas.codec import Unreadable, decode, int_header, name_of, text_header
from schemas.folds import LedgerFold
from schemas.ids import InvalidId, birth
from schemas.ledger import Lease

ID_SKEW = 310_000  # ms: an id's time may be 5 minutes off, and clocks differ
ENDED_LIMIT = 2_000  # ended ids remembered exactly; the history knows the older ones


@dataclass(slots=True, eq=False)
class Open:
    """A request whose records have not all been done."""

    request_id: str
    offset: int  # of its first ledger record: a commit may not pass it
    fold: LedgerFold = field(default_factory=LedgerFold)
    accepted: int = 0  # ms; a lower bound


@dataclass(frozen=True, slots=True, eq=False)
class Winner:
    """The output that counts."""

    opened: Open
    record: Record


class Winners:
    """One ledger partition."""

    def __init__(
        self,
        partition: int,
        tracker: Tracker,
        done: Callable[[int], None],
        belongs: Callable[[str], bool],  # whether the records of a request lie here
    ) -> None:
        self.partition = partition
        self._belongs = belongs
        self.tracker = tracker
        self.target: int | None = None
        self.active = False
        self.began = tracker.next  # what lies before it has been delivered
        self.history = History()
        self.delivered: dict[str, int] = {}  # id → output offset, as hr.results had it at the start
        self.void = 0
        self.unsure: list[
            Open
        ] = []  # begun by what may be a repeat of a lease whose request has ended
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
        # and one of another partition would stay open for ever
        known = first and (
            request_id in self._ended or kind == "cancel" or not self._belongs(request_id)
        )
        if known or not opened.fold.apply(kind, attempt, record.offset):
            self.void += 1
            self._done(record.offset)
            return None
        if first:
            self._open[request_id] = opened
            if kind == "lease":
                self._opened(opened, record)
        else:
            self._done(record.offset)
        if not opened.fold.ended:
            return None
        del self._open[request_id]
        self._ended[request_id] = None
        if len(self._ended) > ENDED_LIMIT:
            del self._ended[next(iter(self._ended))]
        return Winner(opened, record)

    def _opened(self, opened: Open, record: Record) -> None:
        """A repeat that lands late must not stay open for ever: no output would ever end it."""
        bound = _birth(opened.request_id) - ID_SKEW
        if self.history.doubtful(opened.request_id, bound):
            opened.accepted = max(bound, _accepted(record))
            if self.history.doubtful(opened.request_id, opened.accepted):
                self.unsure.append(opened)

    def stray(self, opened: Open) -> None:
        """Its request had ended before: nothing is open because of it."""
        if self._open.get(opened.request_id) is opened:
            del self._open[opened.request_id]
            self._ended[opened.request_id] = None
            self.void += 1
            self._done(opened.offset)

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


def _birth(request_id: str) -> int:
    try:
        return birth(request_id)
    except InvalidId:
        return 0


def _accepted(record: Record) -> int:
    """What a lease says of the request's acceptance; 0 where it knows nothing."""
    try:
        lease: Lease = decode(record.value, Lease)
    except Unreadable:
        return 0
    return spoken_of_since(lease.request_id, lease.accepted) if lease.ready.partition >= 0 else 0
