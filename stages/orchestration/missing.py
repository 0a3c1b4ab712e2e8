"""Orders that never arrived.

An order at offset o of an inbox is missing if a status of that worker life with a position beyond o does
not list it, and the ledger, read to the end captured after that status, still holds neither an output
nor a release of it. Then it is sent again under the same count; the worker takes each attempt once.
"""

import asyncio
from dataclasses import dataclass

from pipeline import logs
from pipeline.log import LogUnavailable, TopicPartition

from .books import Case
from .desk import Desk
from .dispatch import Dispatch
from .fleet import Hand, Sent
from .ledger import Ledger
from .queue import Waiting
from .recovery import Recovery

RETRY = 0.5  # s between tries while no broker answers
SUSPECTS = 1_024  # asked about at once; the rest at the next status


@dataclass(frozen=True, slots=True, eq=False)
class _Suspect:
    case: Case
    attempt: int
    hand: Hand
    sent: Sent | None  # None: the lease of another orchestrator, whose order we never saw


class Missing:
    def __init__(self, desk: Desk, ledger: Ledger, dispatch: Dispatch, recovery: Recovery) -> None:
        self.desk = desk
        self.ledger = ledger
        self.dispatch = dispatch
        self.recovery = recovery
        self._suspects: dict[tuple[str, int], _Suspect] = {}
        self._wake = asyncio.Event()

    def heard(self, hand: Hand) -> None:
        """A status of this life came: which of our orders should it have listed?"""
        for key, sent in hand.orders.items():
            if sent.offset is None or hand.figures.position <= sent.offset or key in hand.running:
                continue
            case = self.desk.case(key[0])
            if case is not None and case.fold.n == key[1]:
                self._suspect(key, _Suspect(case, key[1], hand, sent))

    def foreign(self, case: Case, hand: Hand) -> None:
        """An attempt whose order was never ours, and its worker does not list it."""
        key = (case.request_id, case.fold.n)
        if key not in hand.running and key not in hand.orders:
            self._suspect(key, _Suspect(case, case.fold.n, hand, None))

    def _suspect(self, key: tuple[str, int], suspect: _Suspect) -> None:
        if key not in self._suspects and len(self._suspects) < SUSPECTS:
            self._suspects[key] = suspect
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            suspects = list(self._suspects.values())
            try:
                await self._ask(suspects)
            except LogUnavailable as error:
                logs.warn("missing_orders", suspects=len(suspects), error=error)
                await asyncio.sleep(RETRY)
            for suspect in suspects:
                self._suspects.pop((suspect.case.request_id, suspect.attempt), None)

    async def _ask(self, suspects: list[_Suspect]) -> None:
        topic = self.desk.member.topics.ledger
        at = {TopicPartition(topic, suspect.case.partition) for suspect in suspects}
        ends = await self.desk.member.log.admin.end_offsets(sorted(at))
        for each, end in ends.items():
            await self.ledger.reached(each.partition, end)
        for suspect in suspects:
            case = suspect.case
            key = (case.request_id, suspect.attempt)
            if (
                self.desk.case(case.request_id) is case
                and case.fold.n == suspect.attempt
                and case.held
                and key not in suspect.hand.running
                and self.desk.fleet.alive(suspect.hand)
            ):
                await self._again(suspect)

    async def _again(self, suspect: _Suspect) -> None:
        case, hand, sent = suspect.case, suspect.hand, suspect.sent
        limit = self.desk.member.settings.orchestration.resend_limit
        logs.info(
            "order_missing",
            request_id=case.request_id,
            attempt=suspect.attempt,
            worker=hand.id,
            tries=sent.tries if sent else 0,
        )
        if case.fold.cancelled or (sent is not None and sent.tries > limit):
            case.given_back[suspect.attempt] = "lost"
            if sent is not None and sent.order.count == hand.sent:
                hand.sent -= 1  # a later order would heal the count; there is none yet
            self.recovery.put(case)
        elif sent is not None:
            sent.tries += 1
            self.dispatch.send(sent, hand)
        elif case.lease is not None and hand.free(self.desk.member.epoch) > 0:
            lease = case.lease
            ready, place = await self.recovery.ready_of(case)
            if ready is None:
                self.recovery.put(case)
            elif (
                case.fold.n == lease.attempt and case.held and hand.free(self.desk.member.epoch) > 0
            ):
                item = Waiting(
                    ready, place, case.partition, None, self.recovery.span(case), lease.accepted
                )
                self.dispatch.order(case, lease, item, hand)
