"""Orders for this life of this worker: read from one partition of `hr.work`, each taken once.

The partition is anybody's; orders name (worker, epoch). The position is known at the broker before the
first status announces it, so no order written for us can lie before it.
"""

import asyncio
import hashlib
from collections.abc import Callable

import msgspec

from pipeline import logs, metrics, tracing
from pipeline.dead_letter import dead_letter
from pipeline.log import LogUnavailable, OffsetGone, Outgoing, Reader, Record, TopicPartition
from pipeline.member import Member
from pipeline.stage import DeadLetter
from schemas.codec import Unreadable, decode, int_header, text_header
from schemas.work import Order

RETRY = 0.5  # s after a broker error
REMEMBERED = 65_536  # orders taken, at which those past their deadline are forgotten

Take = Callable[[Order, tracing.Span], None]
Refuse = Callable[[str, int, Outgoing, str], None]  # request id, attempt, dead letter, why


class Addressee(msgspec.Struct):
    """All that must be readable of an order to know that it is somebody else's."""

    worker: str
    epoch: str


def inbox_of(member_id: str, partitions: int) -> int:
    """The partition a worker reads: the same in every life, spread over workers."""
    digest = hashlib.sha256(member_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % partitions


class Inbox:
    """`take` gets every new order, `again` one that was taken before, `refuse` what cannot be read."""

    def __init__(
        self, member: Member, take: Take, refuse: Refuse, again: Callable[[Order], object]
    ) -> None:
        topics = member.topics
        self.at = TopicPartition(topics.work, inbox_of(member.id, topics.work_partitions))
        self.position = 0  # everything before it has been taken or was not ours
        self._member = member
        self._take = take
        self._refuse = refuse
        self._again = again
        self._taken: dict[tuple[str, int], int] = {}  # (request, attempt) → its deadline, ms
        self._reader: Reader | None = None

    async def open(self) -> None:
        """Stand at the end of the partition. Raises LogUnavailable."""
        self._reader = await self._member.log.reader({self.at: "end"}, name="inbox")
        self.position = await self._reader.position(self.at)

    async def run(self) -> None:
        """Until cancelled; outages are waited out."""
        assert self._reader is not None, "open() comes first"
        try:
            while True:
                try:
                    records = await self._reader.poll()
                except LogUnavailable as error:
                    logs.warn("inbox", error=error)
                    await asyncio.sleep(RETRY)
                    continue
                except OffsetGone as error:
                    # what is lost is found missing by who sent it, and sent again
                    logs.warn("inbox_gap", error=error)
                    self._reader.seek(self.at, error.start)
                    continue
                for record in records:
                    self.read(record)
        finally:
            await self._reader.close()

    def read(self, record: Record) -> None:
        """One record of the partition."""
        try:
            order: Order = decode(record.value, Order)
        except Unreadable as error:
            if self._may_be_ours(record):
                self._give_back(record, str(error))
        else:
            if order.worker == self._member.id and order.epoch == self._member.epoch:
                self._once(order, record)
        self.position = record.offset + 1

    def _once(self, order: Order, record: Record) -> None:
        """An order may be sent again under the same count: the same work, taken once."""
        key = order.request_id, order.attempt
        if key in self._taken:
            self._again(order)
            return
        if len(self._taken) >= REMEMBERED:
            now = self._member.clock.ms()
            self._taken = {k: until for k, until in self._taken.items() if until > now}
        self._taken[key] = order.ready.deadline
        self._take(order, tracing.of_record("process", record))

    def _may_be_ours(self, record: Record) -> bool:
        try:
            to: Addressee = decode(record.value, Addressee)
        except Unreadable:
            return True
        return to.worker == self._member.id and to.epoch == self._member.epoch

    def _give_back(self, record: Record, why: str) -> None:
        metrics.unreadable.labels(record.topic).inc()
        topic = self._member.topics.dead("worker")
        letter = dead_letter(topic, record, DeadLetter("unreadable", why), group="", tries=1)
        request_id = text_header(record.headers, "request-id")
        attempt = int_header(record.headers, "attempt")
        if request_id is None or attempt is None:
            request_id, attempt = "", 0
        self._refuse(request_id, attempt, letter, why)
