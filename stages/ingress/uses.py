"""One id, one request: what an id was used for before.

An edge mints ids that nobody else can know, so only ids that publishers supply are looked up in the
log; whatever passes here is remembered for a while as well, which costs nothing. Two records of one id
that two processes take at the same moment both pass: the second lease of one id is void anyway.
"""

from contextlib import aclosing
from enum import Enum
from typing import NamedTuple

from pipeline.log import Log, Record, TopicPartition
from pipeline.lookup import scan
from pipeline.topics import LANES, Topics
from schemas.codec import Unreadable, decode, name_of, text_header
from schemas.ids import birth, partition_of
from schemas.ledger import Lease, Output
from schemas.result import Result
from schemas.work import Ready

from .arrival import SKEW

REMEMBERED = 16_384  # ids of the last minutes, some 4 MB
_KINDS = {"result": Result, "lease": Lease, "output": Output, "ready": Ready}


class Use(NamedTuple):
    tenant: str
    body_hash: str


class Found(Enum):
    NEW = "new"  # or this very record, read again
    AGAIN = "again"  # the same request in another record
    CONFLICT = "conflict"  # another tenant's, or another body


class Uses:
    def __init__(self, log: Log, topics: Topics) -> None:
        self._log = log
        self._topics = topics
        self._recent: dict[str, tuple[Use, tuple[TopicPartition, int]]] = {}

    async def find(self, request_id: str, use: Use, record: Record, *, look_up: bool) -> Found:
        """Raises ScanBudget, LogUnavailable where the log does not tell in time."""
        place = (record.at, record.offset)
        if request_id not in self._recent and look_up:
            known = await self._in_log(request_id)
            if known is not None:
                return Found.AGAIN if known == use else Found.CONFLICT
        # no await from here on: of two that looked at the same time the second sees the first
        first, where = self._recent.setdefault(request_id, (use, place))
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]
        if where == place:
            return Found.NEW
        return Found.AGAIN if first == use else Found.CONFLICT

    async def _in_log(self, request_id: str) -> Use | None:
        """Wherever a request that was let pass, or ended, must have left a trace."""
        topics = self._topics
        partition = partition_of(request_id, topics.ledger_partitions)
        key = request_id.encode()
        since = birth(request_id) - 2 * SKEW  # its record's time and its writer's may both be off
        for topic in (topics.results, topics.ledger, *map(topics.ready, LANES)):
            at = TopicPartition(topic, partition)
            async with aclosing(scan(self._log, at, since_ms=since)) as records:
                async for record in records:
                    if record.key == key and (use := _use_of(record)) is not None:
                        return use
        return None


def _use_of(record: Record) -> Use | None:
    kind = _KINDS.get(name_of(text_header(record.headers, "type") or ""))
    if kind is None:
        return None
    try:
        message = decode(record.value, kind)
    except Unreadable:  # it is the runner's of its topic to dead-letter it
        return None
    return Use(message.tenant, message.body_hash)
