"""What becomes of a ready record that was read: queued, set aside, looked up first, or ended."""

import asyncio
from functools import partial

from pipeline import logs, metrics, tracing
from pipeline.dead_letter import dead_letter
from pipeline.history import spoken_of_since
from pipeline.log import LogUnavailable, Record
from pipeline.stage import DeadLetter
from pipeline.topics import LANES
from schemas.codec import Unreadable, decode, text_header
from schemas.ids import is_id
from schemas.work import Place, Ready

from .desk import Desk, Ending
from .dispatch import Dispatch
from .doubts import Doubts
from .endings import Endings, cancelled, unreadable
from .pull import Source
from .queue import Waiting
from .subject import of_headers
from .waiting import WaitingTopics

WINDOW = 64  # records of a lane in hand beyond the free credits: enough for tenants to take turns
COMMIT_EVERY = 0.5  # s


class Arrivals:
    def __init__(self, desk: Desk, dispatch: Dispatch, endings: Endings, doubts: Doubts) -> None:
        self.desk = desk
        self.dispatch = dispatch
        self.endings = endings
        self.doubts = doubts
        settings = desk.member.settings.orchestration
        self.parked = settings.parked
        self.sources: dict[str, Source] = {}
        for lane in LANES:
            self.add(desk.member.topics.ready(lane), lane)
        self.waiting = WaitingTopics(desk, self.add)
        dispatch.room = self.wake

    def add(self, topic: str, lane: str = "") -> Source:
        """A topic more to read."""
        source = self.sources[topic] = Source(self.desk, topic, lane, self.take, self.open)
        return source

    def wake(self) -> None:
        """There may be room again, or other partitions are ours."""
        for source in self.sources.values():
            source.wake.set()

    def open(self, source: Source) -> int:
        """How many more records of a source may come into hand."""
        desk = self.desk
        if desk.member.draining.is_set() or not desk.members.complete.is_set():
            return 0
        if not source.lane:
            return self.parked - source.in_hand
        away = sum(
            desk.queue.in_lane(model, source.lane)
            for model in desk.queue.models
            if not desk.fleet.serves(model)
        )
        return WINDOW + self._free() - (source.in_hand - away)

    def _free(self) -> int:
        epoch = self.desk.member.epoch
        return sum(max(0, hand.free(epoch)) for hand in self.desk.fleet.hands.values())

    def take(self, source: Source, record: Record) -> None:
        """One record, in the order of its partition."""
        tracker = source.trackers[record.partition]
        place = Place(record.topic, record.partition, record.offset)
        try:
            ready: Ready = decode(record.value, Ready)
        except Unreadable as error:
            self._unreadable(source, record, place, str(error))
            return
        item = Waiting(
            ready,
            place,
            record.partition,
            tracker,
            tracing.of_record("process", record, group=self.desk.ready_group),
            self.desk.member.clock.ms(),
        )
        books = self.desk.books[record.partition]
        if self.doubts.known(books, ready.request_id):
            item.complete()
            metrics.void_records.labels("ready").inc()
        elif books.history.doubtful(
            ready.request_id, spoken_of_since(ready.request_id, ready.accepted)
        ):
            self.doubts.ask(item, source.lane or ready.lane, self.accept)
        else:
            self.accept(item, source.lane or ready.lane)

    def accept(self, item: Waiting, lane: str) -> None:
        """It is certain that nobody has run it: queue it, unless its model is away and much waits."""
        desk, ready = self.desk, item.ready
        if (again := desk.queue.by_id.get(ready.request_id)) is not None:
            if again.place == item.place:
                again.source = item.source  # read anew after a rebalance
            else:
                again.copies.append(item)
            return
        case = desk.case(ready.request_id)
        if case is not None and case.fold.cancelled:
            desk.queue.by_id[ready.request_id] = item
            item.leased = True
            why = case.cancel.why if case.cancel else "asked"
            self.endings.begin(Ending.of(item, "cancelled", cancelled(why)))
            return
        away = not desk.fleet.serves(ready.model)
        if (
            away
            and not self.waiting.holds(item.place.topic)
            and desk.queue.length(ready.model) >= self.parked
        ):
            self.waiting.put(item)
            return
        desk.queue.push(item, lane)
        self.dispatch.soon()

    def _unreadable(self, source: Source, record: Record, place: Place, error: str) -> None:
        """To the dead letters; and where it says whose it is, the request ends."""
        why = DeadLetter("unreadable", error)
        topic = self.desk.member.topics.dead("orchestration")
        letter = dead_letter(topic, record, why, group=self.desk.ready_group, tries=1)
        tracker = source.trackers[record.partition]
        request_id = text_header(record.headers, "request-id")
        if request_id is None and record.key is not None:
            request_id = record.key.decode("utf-8", "replace")
        metrics.dead_letters.labels("orchestration", "unreadable").inc()
        logs.warn("dead_letter", topic=record.topic, offset=record.offset, error=error)
        buried = self.desk.bury(letter)
        # of another partition: no ingress wrote it, and its request is not ours to end
        if (
            request_id is None
            or not is_id(request_id)
            or self.desk.partition(request_id) != record.partition
        ):
            buried.add_done_callback(lambda _: tracker.done(record.offset))
            return
        subject = of_headers(request_id, record.headers, record.value or b"", place)
        done = partial(tracker.done, record.offset)
        self.doubts.end(Ending(subject, "failed", unreadable(error), done))

    async def run(self) -> None:
        """Read every source, commit what moved; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.waiting.run())
            running: set[str] = set()
            while True:
                for topic, source in list(self.sources.items()):
                    if topic not in running:
                        running.add(topic)
                        tasks.create_task(source.run())
                await self._commit()
                await asyncio.sleep(COMMIT_EVERY)

    async def _commit(self) -> None:
        moved = {at: c for source in self.sources.values() for at, c in source.moved().items()}
        if not moved:
            return
        try:
            await self.desk.member.log.admin.commit(self.desk.ready_group, moved)
        except LogUnavailable as error:
            logs.warn("commit_failed", group=self.desk.ready_group, error=error)
            for source in self.sources.values():
                source.uncommitted()
