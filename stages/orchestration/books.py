"""The books of one ledger partition: the ledger fold of every open request. Pure.

A fold begins at its oldest open request: only then may a commit pass a record. Of a lease the whole
value is kept, since it says who holds the request and where its ready record lies; of an output the
headers are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.history import History, spoken_of_since
from pipeline.log import Record
from pipeline.tracker import Tracker
from schemas.codec import Headers, Unreadable, decode, int_header, name_of, text_header
from schemas.folds import LedgerFold
from schemas.ids import InvalidId, birth
from schemas.ledger import Cancel, Lease, Released

ENDED_LIMIT = 2_000  # ended ids remembered exactly, per partition; the history knows the older ones
ID_SKEW = 310_000  # ms: an id's time may be 5 minutes off, and clocks differ
KINDS = {"lease": Lease, "released": Released, "cancel": Cancel}


@dataclass(slots=True, eq=False)
class Case:
    """One open request, as its ledger tells it."""

    request_id: str
    partition: int
    offset: int  # of its first ledger record: a commit may not pass it
    headers: Headers = ()  # of that record
    fold: LedgerFold = field(default_factory=LedgerFold)
    lease: Lease | None = None  # of attempt n; None where it could not be read
    first: Lease | None = None  # of attempt 1: the pins that it fixed
    cancel: Cancel | None = None
    given_back: dict[int, str] = field(default_factory=dict)  # attempt → why
    holders: dict[int, Lease | None] = field(default_factory=dict)  # attempt → its lease
    doubtful: bool = False  # it may have ended before we began: the log is being asked
    accepted: int = 0  # ms; a lower bound

    @property
    def held(self) -> bool:
        """Attempt n has not been given back, and nothing has ended it."""
        return self.fold.n > 0 and not self.fold.released and not self.fold.ended

    @property
    def kept(self) -> bool:
        """No attempt so far broke a pin."""
        return all(lease.same_answer for lease in self.holders.values() if lease is not None)


class Entry(NamedTuple):
    """What one ledger record meant."""

    kind: str  # lease | output | released | cancel | unreadable | void
    case: Case | None
    record: Record
    message: Any = None  # the decoded value, of all but outputs; None where it is unreadable
    counts: bool = False
    error: str = ""  # why the value could not be read


def headline(record: Record) -> tuple[str, str, int]:
    """(kind, request id, attempt) of a ledger record, by its headers alone. Raises Unreadable."""
    tag = text_header(record.headers, "type")
    request_id = text_header(record.headers, "request-id")
    if request_id is None and record.key is not None:
        request_id = record.key.decode("utf-8", "replace")
    if not tag or not request_id:
        raise Unreadable("a ledger record needs the headers type and request-id")
    kind = name_of(tag)
    attempt = int_header(record.headers, "attempt")
    if attempt is None and kind in ("lease", "output", "released"):
        raise Unreadable(f"the header attempt of a {kind} is missing or no number")
    return kind, request_id, attempt or 0


class Books:
    """Open requests of one partition of `hr.ledger`, and the ids that ended lately."""

    def __init__(
        self,
        partition: int,
        tracker: Tracker,
        done: Callable[[int], None] | None = None,
        belongs: Callable[[str], bool] = lambda request_id: True,  # whether its records lie here
    ) -> None:
        self.partition = partition
        self._belongs = belongs
        self.tracker = tracker
        self._done = done or tracker.done
        self.began = tracker.next  # what lies before it has ended
        self.target: int | None = None  # end captured after the assignment
        self.active = False  # ours and read to the target: only then anything is written
        self.history = History()
        self.cases: dict[str, Case] = {}
        self.ended: dict[str, None] = {}
        self._begun = False
        self.leases = 0  # counted ones of attempt 1, for the rate

    @property
    def position(self) -> int:
        return self.tracker.next

    def read(self, record: Record) -> Entry:
        """Fold one record, in offset order; the tracker has begun it."""
        if not self._begun:
            self._begun = True
            self.history.begin(record)
        try:
            kind, request_id, attempt = headline(record)
        except Unreadable as error:
            self._done(record.offset)
            return Entry("unreadable", None, record, error=str(error))
        message, why = _message(kind, record)
        case = self.cases.get(request_id)
        if case is None:
            if request_id in self.ended:
                self._done(record.offset)
                return Entry(kind, None, record, message, error=why)
            if not self._belongs(request_id):  # nobody would ever end it
                self._done(record.offset)
                return Entry("unreadable", None, record, error="its request lies elsewhere")
            case = Case(request_id, self.partition, record.offset, record.headers)
            if not case.fold.apply(kind, attempt, record.offset):
                self._done(record.offset)  # a stray: nothing is open because of it
                return Entry(kind, None, record, message, error=why)
            self.cases[request_id] = case
            case.accepted = accepted_of(request_id, message)
            case.doubtful = self.history.doubtful(request_id, case.accepted)
            counts = True
        else:
            self._done(record.offset)
            counts = case.fold.apply(kind, attempt, record.offset)
        if counts:
            self._note(case, kind, attempt, message)
            if case.fold.ended:
                self.end(case, record.timestamp)
        return Entry(kind, case, record, message, counts, why)

    def _note(self, case: Case, kind: str, attempt: int, message: Any) -> None:
        if kind == "lease":
            case.lease = message
            case.holders[attempt] = message
            if attempt == 1:
                case.first = message
                self.leases += 1
        elif kind == "released":
            case.given_back[attempt] = message.why if message is not None else "unreadable"
        elif kind == "cancel":
            case.cancel = message or case.cancel

    def end(self, case: Case, when: int) -> None:
        """It is over: forget all but the id. `when`: append time of what ended it, ms."""
        self._done(case.offset)
        self.cases.pop(case.request_id, None)
        self.ended[case.request_id] = None
        self.history.add(case.request_id, when)
        if len(self.ended) > ENDED_LIMIT:
            del self.ended[next(iter(self.ended))]


def accepted_of(request_id: str, message: Any) -> int:
    """When the request was accepted, ms, at the earliest that its first record allows."""
    if isinstance(message, Lease) and message.ready.partition >= 0:
        return spoken_of_since(request_id, message.accepted)
    try:
        return birth(request_id) - ID_SKEW
    except InvalidId:
        return 0


def _message(kind: str, record: Record) -> tuple[Any, str]:
    """The decoded value where it is needed, or why it cannot be read."""
    wanted = KINDS.get(kind)
    if wanted is None:
        return None, "" if kind == "output" else f"nobody knows the tag {kind[:64]!r}"
    try:
        return decode(record.value, wanted), ""
    except Unreadable as error:
        return None, str(error)
