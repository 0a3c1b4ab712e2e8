"""What earlier attempts said of a request: its slot, folded up to this attempt's own `open`."""

from dataclasses import dataclass, field

from pipeline import logs
from pipeline.log import Log, Placed, Record, TopicPartition
from pipeline.lookup import scan
from schemas.codec import Unreadable
from schemas.folds import Effect, SlotFold
from schemas.tokens import Chunk, Open, decode_event
from workers.job import Prefix

READ_LIMIT = 60.0  # s; a slot holds what a dozen workers say in the longest run at most


class Superseded(Exception):
    """A higher attempt has opened: this one is over, and writes nothing."""


@dataclass(slots=True)
class Spoken:
    """The fold of one request's slot, and the tokens it counted."""

    fold: SlotFold = field(default_factory=SlotFold)
    ids: dict[int, list[int]] = field(default_factory=dict)  # choice → token ids
    pieces: dict[int, list[str]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)  # stage → ms, of the earliest that told

    def take(self, event: object) -> None:
        if isinstance(event, Open):
            self.fold.open(event.attempt)
        elif isinstance(event, Chunk):
            effect = self.fold.chunk(
                event.attempt, event.choice, event.k, len(event.ids), event.finish
            )
            if effect is Effect.TOKENS:
                self.ids.setdefault(event.choice, []).extend(event.ids)
                self.pieces.setdefault(event.choice, []).extend(event.pieces)
                self.first = event.first | self.first

    def prefix(self, choices: int) -> tuple[Prefix, ...]:
        return tuple(
            Prefix(
                ids=tuple(self.ids.get(choice, ())),
                pieces=tuple(self.pieces.get(choice, ())),
                finish=self.fold.finishes.get(choice),
            )
            for choice in range(choices)
        )


async def read_prefix(
    log: Log, request_id: str, attempt: int, opened: Placed, slot_from: int
) -> Spoken:
    """Fold the slot from `slot_from` to our own `open`. Raises Superseded, ScanBudget, LogUnavailable.

    What retention has taken away cannot be continued: the fold begins at what is left.
    """
    at = TopicPartition(opened.topic, opened.partition)
    start = max(slot_from, (await log.admin.start_offsets([at]))[at])
    key, spoken = request_id.encode(), Spoken()
    async for record in scan(log, at, start=start, budget=READ_LIMIT):
        if record.key == key and record.offset <= opened.offset:
            spoken.take(_event(record))
    if spoken.fold.attempt > attempt:
        raise Superseded
    return spoken


def _event(record: Record) -> object:
    try:
        return decode_event(record.value)
    except Unreadable as error:
        logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
        return None
