"""The slots of `hr.tokens` as orchestration needs them: their ends, and what an attempt said.

`slot_from` of a lease may be earlier than the slot's end, never later than the attempt's first record.
So one sample of all ends, taken now and then, serves every lease until the next: no look-up is on the
path of a request.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline import logs
from pipeline.log import Log, LogUnavailable, OffsetGone, TopicPartition
from pipeline.topics import Topics
from schemas.codec import Unreadable
from schemas.folds import Effect, SlotFold
from schemas.ids import partition_of
from schemas.ledger import Said
from schemas.tokens import Chunk, Open, decode_event

BUSY = 1.0  # s between samples while leases are written
IDLE = 60.0  # s between them otherwise: far below the retention of the slots
READ_LIMIT = 60.0  # s that reading slots back may take


class SlotEnds:
    """Sampled ends of every slot."""

    def __init__(self, log: Log, topics: Topics) -> None:
        self._log = log
        self._at = [TopicPartition(topics.tokens, p) for p in range(topics.tokens_partitions)]
        self._ends: list[int] = []
        self._used = False

    def of(self, request_id: str) -> int:
        """An offset of the request's slot that nothing said of it from now on lies before."""
        self._used = True
        return self._ends[partition_of(request_id, len(self._at))]

    async def sample(self) -> None:
        ends = await self._log.admin.end_offsets(self._at)
        self._ends = [ends[at] for at in self._at]
        self._used = False

    async def run(self) -> None:
        """Until cancelled; the first sample is the caller's."""
        age = 0.0
        while True:
            await asyncio.sleep(BUSY)
            age += BUSY
            if not self._used and age < IDLE:
                continue
            try:
                await self.sample()
                age = 0.0
            except LogUnavailable as error:
                logs.warn("slot_ends", error=error)  # the last sample is still right


@dataclass(slots=True)
class Spoken:
    """The slot of one request, folded."""

    fold: SlotFold = field(default_factory=SlotFold)
    opened: set[int] = field(default_factory=set)
    added: dict[int, int] = field(default_factory=dict)  # attempt → tokens that count
    ids: dict[int, list[int]] = field(default_factory=dict)  # choice → token ids
    pieces: dict[int, list[str]] = field(default_factory=dict)
    entered: dict[str, int] = field(default_factory=dict)  # of the first chunk that said so

    def take(self, event: object) -> None:
        if isinstance(event, Open):
            if self.fold.open(event.attempt) is Effect.STARTED:
                self.opened.add(event.attempt)
        elif isinstance(event, Chunk):
            effect = self.fold.chunk(
                event.attempt, event.choice, event.k, len(event.ids), event.finish
            )
            if effect is Effect.TOKENS:
                self._add(event)

    def _add(self, chunk: Chunk) -> None:
        self.added[chunk.attempt] = self.added.get(chunk.attempt, 0) + len(chunk.ids)
        self.ids.setdefault(chunk.choice, []).extend(chunk.ids)
        self.pieces.setdefault(chunk.choice, []).extend(chunk.pieces)
        for name, ms in chunk.first.items():
            self.entered.setdefault(name, ms)

    @property
    def choices(self) -> list[Said]:
        return [
            Said(
                index=choice,
                ids=self.ids[choice],
                pieces=self.pieces[choice],
                finish_reason=self.fold.finishes.get(choice),
            )
            for choice in sorted(self.ids)
        ]


async def read_back(log: Log, topics: Topics, wanted: Mapping[str, int]) -> dict[str, Spoken]:
    """Fold the slots of these requests, from their `slot_from` to the ends of now.

    One reader for all of them. Raises LogError, TimeoutError.
    """
    found = {request_id: Spoken() for request_id in wanted}
    starts: dict[TopicPartition, int | str] = {}
    for request_id, slot_from in wanted.items():
        at = TopicPartition(topics.tokens, partition_of(request_id, topics.tokens_partitions))
        starts[at] = min(int(starts.get(at, slot_from)), slot_from)
    ends = await log.admin.end_offsets(starts)
    firsts = await log.admin.start_offsets(starts)
    for at, start in starts.items():
        starts[at] = max(int(start), firsts[at])  # what retention took away cannot be continued
    left = {at: end for at, end in ends.items() if end > int(starts[at])}
    if not left:
        return found
    reader = await log.reader({at: starts[at] for at in left}, name="slots")
    try:
        async with asyncio.timeout(READ_LIMIT):
            while left:
                for record in await reader.poll():
                    if record.at in left and record.offset < ends[record.at]:
                        _take(found, wanted, record.key, record.offset, record.value)
                for at in list(left):
                    if await reader.position(at) >= ends[at]:
                        del left[at]
    except OffsetGone as error:
        raise LogUnavailable(str(error)) from error
    finally:
        await reader.close()
    return found


def _take(
    found: Mapping[str, Spoken],
    wanted: Mapping[str, int],
    key: bytes | None,
    offset: int,
    value: bytes | None,
) -> None:
    request_id = key.decode("utf-8", "replace") if key else ""
    said = found.get(request_id)
    if said is None or offset < wanted[request_id]:
        return
    try:
        said.take(decode_event(value))
    except Unreadable as error:
        logs.warn("unreadable", topic="tokens", offset=offset, request_id=request_id, error=error)
