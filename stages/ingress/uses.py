"""One id, one request: what an id was used for before.

An edge mints ids that nobody else can know, so only ids that publishers supply are looked up in the
log; whatever passes here is remembered for a while as well, which costs nothing. Two records of one id
that two processes take within the same moment both pass: the second lease of one id is void anyway.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    NEW = "new"
    AGAIN = "again"  # the same request; what became of it is in the log
    CONFLICT = "conflict"  # another tenant's, or another body


@dataclass(slots=True, eq=False)
class _Passing:
    """A record whose traces are being written."""

    use: Use
    place: tuple[TopicPartition, int]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Uses:
    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._recent: dict[str, Use] = {}  # their traces are in the log
        self._passing: dict[str, _Passing] = {}

    async def find(self, request_id: str, use: Use, record: Record, *, look_up: bool) -> Found:
        """NEW has to go through `passing` at once. A copy of what passes just now waits for it: were it
        done before, and the other never written, nobody would owe the request.

        Raises ScanBudget, LogUnavailable where the log does not tell in time.
        """
        known = self._recent.get(request_id)
        if known is None and look_up:
            trace = await self._trail.find(request_id)
            known = None if trace is None else _use_of(trace)
        if known is None:
            place = (record.at, record.offset)
            while (first := self._passing.get(request_id)) and first.place != place:
                if first.use != use:
                    return Found.CONFLICT
                await first.ended.wait()
            # no await from here on: of two that looked at the same time the second sees the first
            known = self._recent.get(request_id)
        if known is not None:
            return Found.AGAIN if known == use else Found.CONFLICT
        self._passing.setdefault(request_id, _Passing(use, place))
        return Found.NEW

    @contextmanager
    def passing(self, request_id: str, use: Use, record: Record) -> Iterator[None]:
        """While its traces are written; when this ends well, they are acked."""
        try:
            yield
            self._recent[request_id] = use
            if len(self._recent) > REMEMBERED:
                del self._recent[next(iter(self._recent))]
        finally:
            first = self._passing.get(request_id)
            if first is not None and first.place == (record.at, record.offset):
                del self._passing[request_id]
                first.ended.set()


def _use_of(record: Record) -> Use | None:
    kind = _KINDS.get(name_of(text_header(record.headers, "type") or ""))
    if kind is None:
        return None
    try:
        message = decode(record.value, kind)
    except Unreadable:  # it is the runner's of its topic to dead-letter it
        return None
    return Use(message.tenant, message.body_hash)
