"""Unknown is not none: which ids have already ended, for as long as anyone may ask.

A reader that begins in the middle of a partition, or that cannot keep every id for ever, must not take
an id that it does not know for a new one. `History` says "new" only where that is certain; where it is
not, the log is asked: `reach` reads the partition further back, once for all who are in doubt.

Source: B. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970.
"""

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b

from schemas.codec import text_header
from schemas.ids import InvalidId, birth

from .log import Log, Record, TopicPartition
from .lookup import scan

HOLDS = 16_384  # ids of one filter
BITS = 19  # 2^19 bits = 64 KiB: 32 bits an id and 12 of them set, one false alarm in a million
MASK = (1 << BITS) - 1
PROBES = 12
FILTERS = 64  # a million ids, 4 MiB; the oldest go first, and then `floor` rises
SKEW = 10_000  # ms that the clocks of two brokers may differ
REACH_LIMIT = 120.0  # s that reading further back may take


@dataclass(slots=True)
class _Filter:
    bits: bytearray = field(default_factory=lambda: bytearray(1 << (BITS - 3)))
    count: int = 0
    latest: int = 0  # ms: no id in it ended later


def _probes(request_id: str) -> range:
    """Bits of an id, before MASK, by double hashing: its last twelve digits are random, or a hash."""
    try:
        random = int(request_id[-12:], 16)
    except ValueError:  # no id of ours; the log may hold anything
        random = int.from_bytes(blake2b(request_id.encode(), digest_size=6).digest(), "little")
    first, step = random & MASK, (random >> BITS) | 1
    return range(first, first + PROBES * step, step)


def _has(bits: bytearray, probes: range) -> bool:
    for probe in probes:
        probe &= MASK
        if not bits[probe >> 3] >> (probe & 7) & 1:
            return False  # of an id that was not added mostly at the first or second look
    return True


class History:
    """Ids that have ended in one partition."""

    def __init__(self) -> None:
        self.floor: float = float("inf")  # of ids accepted at or after it (ms) everything is known
        self._filters: deque[_Filter] = deque()

    def begin(self, first: Record) -> None:
        """The record with which this reader began: what was accepted after it is known."""
        self.floor = min(self.floor, first.timestamp + SKEW)

    def add(self, request_id: str, ended: int) -> None:
        """`ended`: append time, ms, of the record that ended it."""
        if not self._filters or self._filters[-1].count >= HOLDS:
            self._filters.append(_Filter())
            if len(self._filters) > FILTERS:
                self.floor = max(self.floor, self._filters.popleft().latest + SKEW)
        newest = self._filters[-1]
        newest.count += 1
        newest.latest = max(newest.latest, ended)
        for probe in _probes(request_id):
            probe &= MASK
            newest.bits[probe >> 3] |= 1 << (probe & 7)

    def doubtful(self, request_id: str, accepted: int) -> bool:
        """Whether this id may have ended: then the log has to be asked. False is certain."""
        return accepted < self.floor or self.maybe(request_id)

    def maybe(self, request_id: str) -> bool:
        """Whether the id is among those added, or one of the rare false alarms."""
        if not self._filters:
            return False
        probes = _probes(request_id)
        return any(_has(each.bits, probes) for each in self._filters)


def spoken_of_since(request_id: str, accepted: int) -> int:
    """From when on, ms, the ledger may speak of a request: a cancel, and with it the end, may come before
    its record does, when the edge that published it never heard of an ack."""
    try:
        return min(accepted, birth(request_id))
    except InvalidId:
        return accepted


async def reach(
    log: Log,
    at: TopicPartition,
    history: History,
    *,
    before: int,
    since_ms: int,
) -> None:
    """Read `at` from `since_ms` up to offset `before` into `history`: all those ids have ended.

    `before` is where the reader began, at its oldest open request. Raises ScanBudget, LogError.
    """
    known = history.floor
    if known <= since_ms:
        return
    async with aclosing(scan(log, at, since_ms=since_ms - SKEW, budget=REACH_LIMIT)) as records:
        async for record in records:
            if record.offset >= before or record.timestamp > known + SKEW:
                break  # from there on it was read before
            if (request_id := id_of(record)) is not None:
                history.add(request_id, record.timestamp)
    history.floor = min(history.floor, since_ms)


def id_of(record: Record) -> str | None:
    """The request that a record says it is about."""
    request_id = text_header(record.headers, "request-id")
    if request_id is None and record.key is not None:
        return record.key.decode("utf-8", "replace")
    return request_id
