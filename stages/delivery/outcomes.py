"""Outcomes on their way: the winners of the partitions that are ours, in offset order."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import msgspec

from pipeline import logs, metrics
from pipeline.dead_letter import dead_letter
from pipeline.follow import Follow
from pipeline.history import SKEW, reach, spoken_of_since
from pipeline.log import LogUnavailable, Record, TopicPartition, Writer
from pipeline.lookup import ScanBudget, find_ledger, scan
from pipeline.member import Member
from pipeline.stage import DeadLetter
from pipeline.tracker import Tracker
from schemas.codec import Unreadable, decode, name_of, text_header
from schemas.ids import partition_of
from schemas.ledger import Output

from .deliver import Deliver
from .result import unreadable_output
from .winner import Open, Winner, Winners

RESULTS_LIMIT = 120.0  # s that reading the results of an assignment may take
STRIDE = 60_000  # ms read further back than asked: who asks next is often a little older
RETRY = 0.5  # s between tries while no broker answers
DRAIN = 5.0  # s at most until everything under way is acked


class _Delivered(msgspec.Struct, tag_field="type", tag="result/1"):
    """All that has to be known of a result that is there."""

    id: str
    output: int


@dataclass(frozen=True, slots=True, eq=False)
class _Doubt:
    """A beginning that may be a repeat of what belongs to a request that had ended."""

    winners: Winners
    opened: Open
    accepted: int  # ms; a lower bound
    won: tuple[Winner, Output] | None = None  # what waits for the answer


class Outcomes:
    """The winners of the partitions that are ours, and what is under way of them."""

    def __init__(self, member: Member, deliver: Deliver, dead_writer: Writer) -> None:
        self.member = member
        self.deliver = deliver
        self.dead_writer = dead_writer
        self.under_way = 0
        self._idle = asyncio.Event()
        self._doubts: list[_Doubt] = []
        self._asked = asyncio.Event()
        self.follow: Follow[Winners] = Follow(
            member,
            member.topics.ledger,
            member.topics.group("delivery"),
            begin=self._winners,
            take=self._take,
            changed=self._active,
            room=deliver.writer.room,
        )

    async def _winners(self, at: TopicPartition, tracker: Tracker) -> Winners:
        """A part, knowing what earlier lives delivered from its first record on."""
        log, topics = self.member.log, self.member.topics
        done = partial(self.follow.committer.done, tracker)
        count = topics.ledger_partitions
        belongs = lambda request_id: partition_of(request_id, count) == at.partition  # noqa: E731
        winners = Winners(at.partition, tracker, done, belongs)
        start = (await log.admin.start_offsets([at]))[at]
        if winners.began <= start:
            winners.history.floor = 0  # nothing lies before
        since = await self._time_of(at, winners.began)
        if since is not None:
            results = TopicPartition(topics.results, at.partition)
            stream = scan(log, results, since_ms=since - SKEW, budget=RESULTS_LIMIT)
            async with aclosing(stream) as records:
                async for record in records:
                    _note(winners, record)
        return winners

    async def _time_of(self, at: TopicPartition, offset: int) -> int | None:
        """Append time of the record at the committed offset; None where there is none yet."""
        end = (await self.member.log.admin.end_offsets([at]))[at]
        if offset >= end:
            return None
        async with aclosing(scan(self.member.log, at, start=offset)) as records:
            async for record in records:
                return record.timestamp
        return None

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            winners = self.follow.parts[record.partition]
            winner = winners.read(record)
            if winner is not None:
                self._won(winners, winner)
            elif name_of(text_header(record.headers, "type") or "") == "output":
                self._check_void(record)
            if winners.unsure:
                opens, winners.unsure = winners.unsure, []
                self._ask(*(_Doubt(winners, each, each.accepted) for each in opens))

    def _check_void(self, record: Record) -> None:
        """An output that does not count is kept too where nobody can read it."""
        try:
            decode(record.value, Output)
        except Unreadable as error:
            self._bury(record, str(error))

    def _won(self, winners: Winners, winner: Winner) -> None:
        try:
            output: Output = decode(winner.record.value, Output)
        except Unreadable as error:
            self._bury(winner.record, str(error))
            output = unreadable_output(winner.record, winner.opened.request_id, str(error))
        since = spoken_of_since(output.request_id, output.accepted)
        if winners.doubtful(winner, since):
            self._ask(_Doubt(winners, winner.opened, since, (winner, output)))
        else:
            self._deliver(winners, winner, output)

    def _deliver(self, winners: Winners, winner: Winner, output: Output) -> None:
        request_id, offset = output.request_id, winner.record.offset
        known = winners.delivered.pop(request_id, None)
        if known is not None and known != offset:
            metrics.void_records.labels("output").inc()  # its outcome was another one
            winners.conclude(winner)
            return
        self.under_way += 1

        def done() -> None:
            winners.conclude(winner)
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()

        self.deliver.begin(output, winner.record, known=known is not None, done=done)

    def _bury(self, record: Record, why: str) -> None:
        topics, unreadable = self.member.topics, DeadLetter("unreadable", why)
        group = topics.group("delivery")
        letter = dead_letter(topics.dead("delivery"), record, unreadable, group=group, tries=1)
        metrics.dead_letters.labels("delivery", "unreadable").inc()
        logs.error("unreadable", topic=record.topic, offset=record.offset, error=why)
        self.deliver.watch(self.dead_writer.send(letter))

    def _active(self) -> None:
        """What earlier lives delivered is told: later outputs have no result yet."""
        for winners in self.follow.parts.values():
            if winners.active:
                winners.delivered.clear()

    def _ask(self, *doubts: _Doubt) -> None:
        self._doubts += doubts
        self._asked.set()

    async def answer(self) -> None:
        """Unknown is not none: requests that may have ended before we began. Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            doubts, self._doubts = self._doubts, []
            for doubt in doubts:
                try:
                    void = await self._ended_before(doubt)
                except (LogUnavailable, ScanBudget) as error:
                    logs.warn("look_up", request_id=doubt.opened.request_id, error=error)
                    await asyncio.sleep(RETRY)
                    self._ask(doubt)
                    continue
                if self.follow.parts.get(doubt.winners.partition) is doubt.winners:
                    self._answered(doubt, void)  # else its new owner reads it again

    def _answered(self, doubt: _Doubt, void: bool) -> None:
        if void:
            metrics.void_records.labels("output" if doubt.won else "lease").inc()
            doubt.winners.stray(doubt.opened)
        if doubt.won is not None:
            winner, output = doubt.won
            if void:
                doubt.winners.conclude(winner)
            else:
                self._deliver(doubt.winners, winner, output)

    async def _ended_before(self, doubt: _Doubt) -> bool:
        """Whether another output than one behind this beginning is the outcome."""
        log, topics, winners = self.member.log, self.member.topics, doubt.winners
        at = TopicPartition(topics.ledger, winners.partition)
        if doubt.accepted < winners.history.floor:
            since = doubt.accepted - STRIDE
            await reach(log, at, winners.history, before=winners.began, since_ms=since)
        if not winners.history.maybe(doubt.opened.request_id):
            return False
        since = doubt.accepted - SKEW
        found = await find_ledger(log, topics, doubt.opened.request_id, since_ms=since)
        output = None if found is None else found[0].output
        return output is not None and output < doubt.opened.offset

    async def drain(self) -> None:
        """What is under way is finished; the rest is the next owner's."""
        try:
            async with asyncio.timeout(DRAIN):
                while self.under_way:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            logs.warn("drain_limit", outcomes=self.under_way)


def _note(winners: Winners, record: Record) -> None:
    """The first result of an id is its outcome."""
    try:
        known: _Delivered = decode(record.value, _Delivered)
    except Unreadable as error:
        metrics.unreadable.labels(record.topic).inc()
        logs.warn("unreadable", topic=record.topic, offset=record.offset, error=error)
    else:
        winners.delivered.setdefault(known.id, known.output)
