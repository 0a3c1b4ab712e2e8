"""Open requests whose attempt is over: the next one, or their end.

One task takes all that wait at a time: their slots are read back together, since the death of a worker
brings many at once.
"""

import asyncio
from collections.abc import Sequence

from pipeline import logs, tracing
from pipeline.log import LogUnavailable, OffsetGone, TopicPartition
from schemas.codec import Unreadable, decode
from schemas.work import Place, Ready

from .books import Case
from .desk import Desk, Ending
from .dispatch import Dispatch
from .endings import Endings, cancelled, expired, kills_workers, unreadable
from .judge import needs_slot, strikes
from .queue import Waiting
from .slots import Spoken, read_back
from .subject import NOWHERE, Subject, of_cancel, of_headers, of_lease, of_ready

RETRY = 0.5  # s between tries while no broker answers
FETCH_LIMIT = 10.0  # s to read one ready record again


class Recovery:
    def __init__(self, desk: Desk, dispatch: Dispatch, endings: Endings) -> None:
        self.desk = desk
        self.dispatch = dispatch
        self.endings = endings
        self._cases: dict[str, Case] = {}
        self._wake = asyncio.Event()

    def busy(self, case: Case) -> bool:
        return case.request_id in self._cases

    def put(self, case: Case) -> None:
        """Nobody has its attempt any more."""
        self._cases.setdefault(case.request_id, case)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            cases = [case for case in self._cases.values() if self._open(case)]
            try:
                await self._recover(cases)
            except (LogUnavailable, TimeoutError) as error:
                logs.warn("recovery", requests=len(cases), error=error)
                await asyncio.sleep(RETRY)
            self._cases = {
                key: case
                for key, case in self._cases.items()
                if self._open(case) and case not in cases
            }
            # what is still open and not taken care of is found by the next look at it

    def _open(self, case: Case) -> bool:
        return self.desk.case(case.request_id) is case and not case.fold.ended

    async def _recover(self, cases: Sequence[Case]) -> None:
        member = self.desk.member
        attempts = {case.request_id: case.fold.n for case in cases}
        wanted = {
            case.request_id: case.first.slot_from
            for case in cases
            if case.first is not None and needs_slot(case)
        }
        spoken = await read_back(member.log, member.topics, wanted) if wanted else {}
        for case in cases:
            ready, place = await self.ready_of(case)
            current = self._open(case) and case.fold.n == attempts[case.request_id]
            if current and case.request_id not in self.desk.pending:
                self._decide(case, ready, place, spoken.get(case.request_id, Spoken()))
        self.dispatch.place()

    def _decide(self, case: Case, ready: Ready | None, place: Place, spoken: Spoken) -> None:
        now = self.desk.member.clock.ms()
        subject = of_ready(ready, place) if ready is not None else subject_of(case)
        trace = tracing.passed_on(case.headers)
        if case.fold.cancelled:
            why = case.cancel.why if case.cancel is not None else "asked"
            self.endings.begin(Ending(subject, "cancelled", cancelled(why), trace=trace))
        elif now > subject.deadline:
            self.endings.begin(
                Ending(subject, "expired", expired("between two attempts"), trace=trace)
            )
        elif ready is None:
            self.endings.begin(
                Ending(subject, "failed", unreadable("its ready record"), trace=trace)
            )
        elif (against := strikes(case, spoken, self.desk.members.dead)).poison(
            self.desk.fleet.deaths()
        ):
            logs.error(
                "poison", request_id=case.request_id, model=ready.model, attempts=case.fold.n
            )
            self.endings.begin(Ending(subject, "failed", kills_workers(), trace=trace))
        else:
            gave_back = case.lease is not None and case.fold.n in case.given_back
            item = Waiting(
                ready,
                place,
                case.partition,
                None,
                self.span(case),
                now,
                avoid=case.lease.epoch if gave_back and case.lease is not None else None,
                alone=against.count > 0,
            )
            logs.info(
                "next_attempt",
                request_id=case.request_id,
                model=ready.model,
                attempt=case.fold.n + 1,
                why=case.given_back.get(case.fold.n, "died"),
            )
            self.desk.queue.push_front(item)

    def span(self, case: Case) -> tracing.Span:
        """A later attempt belongs to the trace of the first."""
        return tracing.span("continue attempt", "internal", case.headers)

    async def ready_of(self, case: Case) -> tuple[Ready | None, Place]:
        """The ready record that its first lease names: from an order of ours, or read again."""
        lease = case.first or case.lease
        place = lease.ready if lease is not None else NOWHERE
        for hand in self.desk.fleet.hands.values():
            sent = hand.orders.get((case.request_id, case.fold.n))
            if sent is not None:
                return sent.order.ready, place
        if place.partition < 0:
            return None, place
        return await self._fetch(place), place

    async def _fetch(self, place: Place) -> Ready | None:
        at = TopicPartition(place.topic, place.partition)
        reader = await self.desk.member.log.reader({at: place.offset}, name="ready")
        try:
            async with asyncio.timeout(FETCH_LIMIT):
                while True:
                    for record in await reader.poll(1):
                        if record.offset > place.offset:
                            return None
                        ready: Ready = decode(record.value, Ready)
                        return ready
        except (OffsetGone, Unreadable) as error:
            logs.warn("ready_gone", topic=place.topic, offset=place.offset, error=error)
            return None
        finally:
            await reader.close()


def subject_of(case: Case) -> Subject:
    """What is known of a request whose ready record is not in hand."""
    lease = case.lease or case.first
    if lease is not None:
        return of_lease(lease)
    if case.cancel is not None:
        return of_cancel(case.cancel)
    return of_headers(case.request_id, case.headers, b"", NOWHERE)
