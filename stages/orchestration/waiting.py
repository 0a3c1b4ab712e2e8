"""Models without a live worker: beyond the parked ones a request waits on `hr.waiting.<model>`."""

import asyncio
from collections.abc import Callable

from pipeline import logs, tracing
from pipeline.log import LogUnavailable, Outgoing
from schemas.codec import encode, headers_of, tag_of

from .desk import Desk
from .pull import Source
from .queue import Waiting

RETRY = 0.5  # s between tries while no broker answers


class WaitingTopics:
    def __init__(self, desk: Desk, add: Callable[[str], Source]) -> None:
        self.desk = desk
        self._add = add
        self._prefix = desk.member.topics.waiting("")
        self._known: set[str] = set()
        self._moving: list[Waiting] = []
        self._wake = asyncio.Event()
        self._look = True

    def holds(self, topic: str) -> bool:
        return topic.startswith(self._prefix)

    def look(self) -> None:
        """Other partitions are ours: their former owner may have made topics we do not know."""
        self._look = True
        self._wake.set()

    def put(self, item: Waiting) -> None:
        """Its ready record is complete when the waiting topic has it."""
        self._moving.append(item)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self._look:
                    self._look = False
                    await self._discover()
                while self._moving:
                    await self._make(self._moving[0].ready.model)
                    self._move(self._moving.pop(0))
            except LogUnavailable as error:
                logs.warn("waiting_topics", error=error)
                self._look = True
                await asyncio.sleep(RETRY)
                continue
            self._wake.clear()
            if not self._look and not self._moving:
                await self._wake.wait()

    async def _discover(self) -> None:
        for topic in sorted(await self.desk.member.log.admin.describe_topics()):
            if self.holds(topic) and topic not in self._known:
                self._known.add(topic)
                self._add(topic)

    async def _make(self, model: str) -> None:
        topics = self.desk.member.topics
        topic = topics.waiting(model)
        if topic not in self._known:
            await self.desk.member.log.admin.create_topics([topics.waiting_spec(model)])
            self._known.add(topic)
            self._add(topic)
            logs.info("waiting_topic", model=model, topic=topic)

    def _move(self, item: Waiting) -> None:
        ready = item.ready
        headers = headers_of(
            tag_of(ready),
            request_id=ready.request_id,
            tenant=ready.tenant,
            lane=ready.lane,
            deadline=ready.deadline,
            correlation_id=ready.correlation_id,
        )
        record = Outgoing(
            self.desk.member.topics.waiting(ready.model),
            encode(ready),
            ready.request_id.encode(),
            item.partition,
            headers + tracing.headers_of(item.span),
        )
        item.span.end()
        self.desk.send(record).add_done_callback(
            lambda ack: None if ack.cancelled() or ack.exception() else item.complete()
        )
