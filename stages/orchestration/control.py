"""Reads `hr.control` from its beginning, and turns "nobody reads it any more" into a cancel."""

import asyncio

from pipeline import logs, metrics
from pipeline.log import LogUnavailable, OffsetGone, Reader, TopicPartition
from schemas.codec import Unreadable, decode
from schemas.control import Attach, ControlRecord, Detach
from schemas.ledger import Cancel

from .attachments import Attachments
from .desk import Desk

TICK = 0.25  # s: how coarse a grace is counted
PAUSE = 0.05  # s between polls: attachments come one by one, and a grace is far coarser
RETRY = 0.5  # s between tries while no broker answers


class Control:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.attachments = Attachments()
        self._attached = asyncio.Event()  # there may be somebody to count
        self.complete = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        at = TopicPartition(self.desk.member.topics.control, 0)
        start: int | str = "start"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count())
            while True:
                try:
                    end = (await self.desk.member.log.admin.end_offsets([at]))[at]
                    reader = await self.desk.member.log.reader({at: start}, name="control")
                    try:
                        start = await reader.position(at)
                        while True:
                            start = await self._step(reader, at, end)
                    finally:
                        await reader.close()
                except OffsetGone as error:
                    start = error.start
                except LogUnavailable as error:
                    logs.warn("control_reader", error=error)
                    await asyncio.sleep(RETRY)

    async def _step(self, reader: Reader, at: TopicPartition, end: int) -> int:
        now = asyncio.get_running_loop().time()
        if not self.complete.is_set() and await reader.position(at) >= end:
            self.attachments.caught_up(now)
            self.complete.set()
        records = await reader.poll(timeout=1.0)
        for record in records:
            try:
                self._take(decode(record.value, ControlRecord))
            except Unreadable as error:
                metrics.unreadable.labels(record.topic).inc()
                logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
        if records and self.complete.is_set():
            await asyncio.sleep(PAUSE)
        return await reader.position(at)

    def _take(self, message: ControlRecord) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(message, Attach):
            self.attachments.attach(message, now)
            self._attached.set()
        elif isinstance(message, Detach):
            self.attachments.detach(message, now)
            if self.complete.is_set():
                self._cancel_due(now)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        await self.complete.wait()
        while True:
            if not self.attachments.requests:
                self._attached.clear()
                await self._attached.wait()
            await asyncio.sleep(TICK)
            self.attachments.gone(self.desk.members.dead, loop.time())
            self._cancel_due(loop.time())

    def _cancel_due(self, now: float) -> None:
        for attach in self.attachments.due(now):
            partition = self.desk.partition(attach.request_id)
            if not self.desk.owns(partition):
                self._ask_again(attach)  # its owner cancels it; who owns it later counts anew
                continue
            books = self.desk.books[partition]
            if attach.request_id in books.ended:  # before its attach was read
                self.attachments.forget(attach.request_id)
                continue
            case = books.cases.get(attach.request_id)
            if case is not None and case.fold.cancelled:
                continue
            cancel = Cancel(
                request_id=attach.request_id,
                why="client_gone",
                by=self.desk.member.id,
                tenant=attach.tenant,
                lane=attach.lane,
                encoding=attach.encoding,
                correlation_id=attach.correlation_id,
            )
            self.desk.write_ledger(cancel)
            logs.info("client_gone", request_id=attach.request_id, grace_ms=attach.grace)

    def _ask_again(self, attach: Attach) -> None:
        readers = self.attachments.requests.get(attach.request_id)
        if readers is not None:
            readers.asked = False
            readers.empty_since = asyncio.get_running_loop().time()
