"""From the queue to a worker's inbox: lease → read back as counted → order, under cumulative credits."""

import asyncio
from collections.abc import Callable

from pipeline import metrics, tracing
from pipeline.log import Outgoing
from schemas.codec import encode, headers_of, tag_of
from schemas.ledger import Lease
from schemas.work import Order

from .books import Case, Entry
from .desk import Desk, Ending, Pending
from .endings import Endings, expired
from .fleet import Hand, Sent
from .plan import Plan, choose, too_late
from .queue import Waiting
from .subject import of_ready
from .wakes import Wakes

ASIDE = 64  # items that may wait for a pinned worker before a line stops for them


class Dispatch:
    """Synchronous: it is called by whatever changes what can be placed."""

    def __init__(self, desk: Desk, endings: Endings, wakes: Wakes) -> None:
        self.desk = desk
        self.wakes = wakes
        self.endings = endings
        self._soon = False
        self.room: Callable[[], None] = lambda: None  # told when the queue has shrunk
        self.leased: Callable[[str], None] = lambda lane: None  # told at every first lease

    def soon(self) -> None:
        """Place once more before the loop sleeps, however often this is said."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self.place)

    def place(self) -> None:
        """Lease out what can be placed now."""
        self._soon = False
        desk = self.desk
        if not desk.members.complete.is_set() or desk.member.draining.is_set():
            return
        for model in desk.queue.models:
            self._place_model(model)

    def _place_model(self, model: str) -> None:
        desk, epoch = self.desk, self.desk.member.epoch
        hands = desk.fleet.of_model(model)
        entry = desk.models.items.get(model)
        devices = entry.devices if entry is not None else ()
        aside: list[Waiting] = []
        placed = False
        while len(aside) < ASIDE and any(hand.free(epoch) > 0 for hand in hands):
            item = desk.queue.pop(model)
            if item is None:
                break
            placed = True
            if not desk.owns(item.partition):
                aside.append(item)  # a rebalance is under way: it may come back to us
                continue
            if self._ended(item, hands):
                continue
            case = desk.case(item.ready.request_id)
            pin = case.first.device_type if case is not None and case.first is not None else None
            plan = choose(
                item.ready,
                hands,
                epoch,
                device_type=pin,
                devices=devices,
                avoid=item.avoid,
                kept=case is None or case.kept,
            )
            if plan is None:
                aside.append(item)
            else:
                self._lease(item, case, plan)
        for item in reversed(aside):
            desk.queue.push_front(item)
        if placed:
            self.room()

    def _ended(self, item: Waiting, hands: list[Hand]) -> bool:
        """Whether its time is over: then it ends here, and no device spends a step on it."""
        ready, now = item.ready, self.desk.member.clock.ms()
        late = now > ready.deadline
        if not late and not (
            self.desk.member.settings.orchestration.refuse_late and too_late(ready, hands, now)
        ):
            return False
        item.leased = True
        why = "in the queue" if late else "before it could have been decoded"
        self.endings.begin(Ending.of(item, "expired", expired(why)))
        return True

    def _lease(self, item: Waiting, case: Case | None, plan: Plan) -> None:
        desk, ready, hand = self.desk, item.ready, plan.hand
        first = case.first if case is not None else None
        nonce = desk.nonce()
        attempt = case.fold.n + 1 if case is not None else 1
        lease = of_ready(ready, item.place).lease(
            attempt,
            hand.id,
            hand.epoch,
            orchestrator=desk.member.id,
            slot_from=first.slot_from if first else desk.slots.of(ready.request_id),
            nonce=nonce,
            device_type=hand.figures.device_type,
            why=plan.why,
            alone=item.alone,
            same_answer=plan.same_answer,
        )
        item.leased, item.taken = True, desk.member.clock.ms()
        hand.reserved += 1
        desk.pending[ready.request_id] = Pending(nonce, item.partition, item, hand)
        trace = tracing.headers_of(item.span)
        desk.write_ledger(lease, attempt=attempt, deadline=ready.deadline, trace=trace)
        metrics.leases.labels("first" if attempt == 1 else "again").inc()
        if attempt == 1:
            self.leased(ready.lane)

    def read_back(self, entry: Entry) -> None:
        """A lease was read: ours that counts becomes an order, any that counts completes its item."""
        desk = self.desk
        lease: Lease | None = entry.message
        if lease is None:
            return
        pending = desk.pending.get(lease.request_id)
        if pending is None or pending.nonce != lease.nonce:
            if entry.counts:
                desk.queue.done(lease.request_id)
            return
        desk.take_pending(lease.request_id)
        desk.queue.done(lease.request_id)  # where ours is void, another counts, or it has ended
        ending = pending.ending
        if ending is not None and ending.complete is not None:
            ending.complete()
        case = entry.case
        if not entry.counts or case is None:
            return
        case.doubtful = False  # it was asked before ours was written
        if lease.attempt > 1:
            self.wakes.superseded(case)
        if pending.item is not None and pending.hand is not None:
            self.order(case, lease, pending.item, pending.hand)
        elif ending is not None:
            self.endings.read_back(case, lease, ending)

    def order(self, case: Case, lease: Lease, item: Waiting, hand: Hand) -> None:
        """Write the order of a lease that counts: once, under the next count."""
        hand.sent += 1
        now = self.desk.member.clock.ms()
        order = Order(
            request_id=lease.request_id,
            attempt=lease.attempt,
            worker=hand.id,
            epoch=hand.epoch,
            orchestrator=self.desk.member.id,
            orchestrator_epoch=self.desk.member.epoch,
            count=hand.sent,
            slot_from=lease.slot_from,
            why=lease.why,
            alone=lease.alone,
            same_answer=lease.same_answer,
            ready=item.ready,
            entered={**item.ready.entered, "orchestration": item.taken, "dispatch": now},
        )
        sent = Sent(order, case.partition)
        hand.orders[lease.request_id, lease.attempt] = sent
        item.span.set(worker=hand.id, attempt=lease.attempt)
        self.send(sent, hand, tracing.headers_of(item.span))
        item.span.end()

    def send(self, sent: Sent, hand: Hand, trace: tuple[tuple[str, bytes], ...] = ()) -> None:
        """Write an order, the first time or again under the same count."""
        order, ready = sent.order, sent.order.ready
        headers = headers_of(
            tag_of(order),
            request_id=order.request_id,
            attempt=order.attempt,
            tenant=ready.tenant,
            lane=ready.lane,
            deadline=ready.deadline,
            correlation_id=ready.correlation_id,
        )
        future = self.desk.send(
            Outgoing(
                self.desk.member.topics.work,
                encode(order),
                order.request_id.encode(),
                hand.figures.inbox,
                headers + trace,
            )
        )
        sent.offset = None

        def placed(done: "object") -> None:
            if not future.cancelled() and future.exception() is None:
                sent.offset = future.result().offset

        future.add_done_callback(placed)
