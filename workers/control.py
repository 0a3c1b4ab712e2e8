"""`hr.control`, from its beginning: what must stop, within one step."""

import asyncio

from pipeline import logs, metrics
from pipeline.log import LogUnavailable, OffsetGone, Reader, Record, TopicPartition
from pipeline.member import Member
from schemas.codec import Unreadable, decode
from schemas.control import ControlRecord, Load, Unload, Wake
from workers.endings import SUPERSEDED, cancelled, expired
from workers.runs import Runs

RETRY = 0.5  # s after a broker error
PAUSE = 0.02  # s between polls: every stream's attach comes here too, and none wakes us for itself
REMEMBERED = 4096  # superseded requests whose late orders are recognised


class Control:
    def __init__(self, member: Member, runs: Runs) -> None:
        self.at = TopicPartition(member.topics.control, 0)
        self._member = member
        self._runs = runs
        self._superseded: dict[str, int] = {}  # request → highest attempt that is over
        self._reader: Reader | None = None

    async def open(self) -> None:
        self._reader = await self._member.log.reader({self.at: "start"}, name="control")

    async def run(self) -> None:
        """Until cancelled; outages are waited out."""
        assert self._reader is not None, "open() comes first"
        try:
            while True:
                try:
                    records = await self._reader.poll()
                    for record in records:
                        self.read(record)
                    if records:
                        await asyncio.sleep(PAUSE)
                except LogUnavailable as error:
                    logs.warn("control", error=error)
                    await asyncio.sleep(RETRY)
                except OffsetGone as error:
                    self._reader.seek(self.at, error.start)
        finally:
            await self._reader.close()

    def read(self, record: Record) -> None:
        try:
            message: ControlRecord = decode(record.value, ControlRecord)
        except Unreadable as error:
            metrics.unreadable.labels(record.topic).inc()
            logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
            return
        if isinstance(message, Load | Unload) and message.member == self._member.id:
            metrics.void_records.labels(type(message).__name__.lower()).inc()
            why = "a worker serves the model that it was started with: start one with --model"
            logs.warn(
                "refused", record=type(message).__name__.lower(), model=message.model, why=why
            )
        if not isinstance(message, Wake):
            return
        if message.superseded:
            self._remember(message)
            self._runs.stop(message.request_id, message.attempt, SUPERSEDED)
        else:
            ending = expired() if message.outcome == "expired" else cancelled()
            self._runs.stop(message.request_id, message.attempt, ending)

    def over(self, request_id: str, attempt: int) -> bool:
        """Whether a higher lease of the request is known to count."""
        return attempt <= self._superseded.get(request_id, 0)

    def _remember(self, wake: Wake) -> None:
        before = self._superseded.pop(wake.request_id, 0)
        self._superseded[wake.request_id] = max(before, wake.attempt)
        if len(self._superseded) > REMEMBERED:
            del self._superseded[next(iter(self._superseded))]
