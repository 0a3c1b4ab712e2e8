"""One id, one request: what an id was used for before.

An edge mints ids that nobody else can know, so only ids that publishers supply are looked up in the
log; whatever passes here is remembered for a while as well, which costs nothing. Two records of one id
that two processes take within the same moment both pass: the second lease of one id is void anyway.
"""

from enum import Enum
from typing import NamedTuple

from pipeline.log import Record, TopicPartition
from schemas.codec import Unreadable, decode, name_of, text_header
from schemas.ledger import Output
from schemas.work import Ready

from .trail import Trail

REMEMBERED = 16_384  # ids that passed here, some 4 MB
_KINDS: dict[str, type[Output] | type[Ready]] = {"output": Output, "ready": Ready}


class Use(NamedTuple):
    tenant: str
    body_hash: str


class Found(Enum):
    NEW = "new"  # or this very record, read again
    AGAIN = "again"  # the same request in another record
    CONFLICT = "conflict"  # another tenant's, or another body


class Uses:
    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._recent: dict[str, tuple[Use, tuple[TopicPartition, int]]] = {}

    async def find(self, request_id: str, use: Use, record: Record, *, look_up: bool) -> Found:
        """Raises ScanBudget, LogUnavailable where the log does not tell in time."""
        place = (record.at, record.offset)
        if request_id not in self._recent and look_up:
            trace = await self._trail.find(request_id)
            known = None if trace is None else _use_of(trace)
            if known is not None:
                return Found.AGAIN if known == use else Found.CONFLICT
        # no await from here on: of two that looked at the same time the second sees the first
        first, where = self._recent.setdefault(request_id, (use, place))
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]
        if where == place:
            return Found.NEW
        return Found.AGAIN if first == use else Found.CONFLICT


def _use_of(record: Record) -> Use | None:
    kind = _KINDS.get(name_of(text_header(record.headers, "type") or ""))
    if kind is None:
        return None
    try:
        message = decode(record.value, kind)
    except Unreadable:  # it is the runner's of its topic to dead-letter it
        return None
    return Use(message.tenant, message.body_hash)
