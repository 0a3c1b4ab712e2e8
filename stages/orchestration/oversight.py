"""Looks at every open request of our partitions, at every record and once a second, and has done what
it needs next: level-triggered, as a controller is."""

import asyncio
from collections.abc import Sequence

from pipeline import logs, metrics
from pipeline.members import Seen

from .arrivals import Arrivals
from .books import Case, Entry
from .control import Control
from .desk import Desk, Ending
from .dispatch import Dispatch
from .doubts import Doubts
from .endings import Endings, cancelled, expired
from .fleet import Hand
from .judge import Holder, Step, for_itself, next_step
from .missing import Missing
from .recovery import Recovery, subject_of
from .wakes import Wakes

EVERY = 1.0  # s between looks at everything: the cadence of statuses


class Oversight:
    """Set the parts after making them: they all look at one another."""

    desk: Desk
    arrivals: Arrivals
    control: Control
    dispatch: Dispatch
    doubts: Doubts
    endings: Endings
    missing: Missing
    recovery: Recovery
    wakes: Wakes

    def entries(self, entries: Sequence[Entry]) -> None:
        """What one poll of the ledger brought."""
        for entry in entries:
            if entry.kind == "lease":
                self._lease(entry)
            elif entry.counts and entry.case is not None:
                if entry.kind == "output":
                    self._ended(entry.case)
                elif entry.kind == "released":
                    self._take_order(entry.case, entry.case.fold.n)
                    self.look(entry.case)
                else:
                    self.look(entry.case)
        self.dispatch.place()
        self.arrivals.wake()  # what was leased or has ended made room

    def _lease(self, entry: Entry) -> None:
        if entry.counts and entry.case is not None:
            self._take_order(entry.case, entry.case.fold.n - 1)
        self.dispatch.read_back(entry)
        case = entry.case
        # an attempt that just began needs nothing, unless somebody wants it ended
        if case is not None and entry.counts and _needs_look(case):
            self.look(case)

    def _ended(self, case: Case) -> None:
        request_id = case.request_id
        for attempt in case.holders:
            self._take_order(case, attempt)
            self.endings.active.discard((request_id, attempt))
        self.desk.queue.done(request_id)
        self.control.attachments.forget(request_id)
        self.wakes.forget(request_id)

    def _take_order(self, case: Case, attempt: int) -> None:
        """The attempt is over: its order is no longer on its way or at work."""
        lease = case.holders.get(attempt)
        if lease is not None:
            hand = self.desk.fleet.hands.get((lease.worker, lease.epoch))
            if hand is not None:
                hand.orders.pop((case.request_id, attempt), None)

    def owned_changed(self) -> None:
        """Partitions came or went: look at what is open in them, read their ready records."""
        if hasattr(self, "arrivals"):
            self.arrivals.waiting.look()
            self.arrivals.wake()
            self.sweep()

    def heard(self, seen: Seen) -> None:
        """A status: credits, positions, a death by leaving."""
        known = len(self.desk.fleet.hands)
        hand = self.desk.fleet.heard(seen)
        if hand is None:
            return
        if len(self.desk.fleet.hands) > known or seen.status.state == "stopped":
            self.sweep()  # an earlier life is over
        self.missing.heard(hand)
        self.dispatch.soon()
        self.arrivals.wake()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self.sweep()

    def sweep(self) -> None:
        """Look at everything."""
        if not self.desk.members.complete.is_set():
            return
        for books in list(self.desk.books.values()):
            if books.active:
                for case in list(books.cases.values()):
                    self.look(case)
        self._expire_waiting()
        for hand in self.desk.fleet.dead():
            self.desk.fleet.buried(hand)
            if hand.status.state != "stopped":
                metrics.deaths.labels("worker").inc()
                logs.warn("worker_died", worker=hand.id, life=hand.epoch, orders=len(hand.orders))
        self.desk.fleet.forget()
        self.dispatch.place()

    def look(self, case: Case) -> None:
        """What one open request needs next."""
        desk, request_id = self.desk, case.request_id
        if not desk.owns(case.partition) or not desk.members.complete.is_set():
            return
        if request_id in desk.pending or self.recovery.busy(case):
            return
        if case.doubtful:
            self.doubts.resolve(case, self.look)
            return
        holder, hand = self._holder(case)
        subject = subject_of(case)
        step = next_step(case, holder, subject.deadline, desk.member.clock.ms())
        now = asyncio.get_running_loop().time()
        if step is Step.WAKE_CANCELLED or step is Step.WAKE_EXPIRED:
            self.wakes.stop(case, step.value, now)
        elif step is Step.END and case.fold.n == 0:
            self._cancel_waiting(case)
        elif step in (Step.END, Step.CONTINUE) and request_id not in desk.queue.by_id:
            self.recovery.put(case)
        elif step is Step.END:
            self._end_waiting(case)
        if holder is Holder.ALIVE and hand is not None:
            self.missing.foreign(case, hand)

    def _holder(self, case: Case) -> tuple[Holder, Hand | None]:
        """Who has the current attempt."""
        desk, lease = self.desk, case.lease
        gone = case.fold.released or case.fold.n in case.given_back
        if case.fold.n == 0 or gone or lease is None:
            return Holder.NOBODY, None
        if for_itself(lease):
            ending = (case.request_id, case.fold.n) in self.endings.active
            return (Holder.ENDING if ending else Holder.ORCHESTRATOR), None
        if desk.members.dead(lease.worker, lease.epoch):
            return Holder.DEAD, None
        return Holder.ALIVE, desk.fleet.hands.get((lease.worker, lease.epoch))

    def _cancel_waiting(self, case: Case) -> None:
        """Nobody has run it: it ends now, not when its lane gets there."""
        item = self.desk.queue.by_id.get(case.request_id)
        if item is not None:
            item.dropped = True
        error = cancelled(case.cancel.why if case.cancel is not None else "asked")
        if item is not None:
            self.endings.begin(Ending.of(item, "cancelled", error))
        else:
            self.endings.begin(Ending(subject_of(case), "cancelled", error))

    def _end_waiting(self, case: Case) -> None:
        """Its next attempt is in the queue, and is not wanted any more."""
        item = self.desk.queue.by_id[case.request_id]
        if not item.dropped:
            del self.desk.queue.by_id[case.request_id]
            item.dropped = True
            self.recovery.put(case)

    def _expire_waiting(self) -> None:
        now = self.desk.member.clock.ms()
        for item in list(self.desk.queue.items()):
            if now > item.ready.deadline:
                item.leased = item.dropped = True
                self.endings.begin(Ending.of(item, "expired", expired("in the queue")))


def _needs_look(case: Case) -> bool:
    return case.doubtful or case.fold.cancelled or case.lease is None
