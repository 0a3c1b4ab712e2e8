"""The workers as one orchestrator sees them: statuses, credits, orders on their way.

A credit is cumulative: a worker's status says how many orders in all this orchestrator epoch may have
sent to that worker epoch. Loss and repeats of a status or an order change nothing.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from pipeline.members import Members, Seen
from schemas.status import Status, WorkerFigures
from schemas.work import Order

from .judge import Life

KEEP_AWAY = ("drain", "quarantine")
LATELY = 60.0  # s in which the deaths of others are remembered
DEATHS_KEPT = 64
QUIET = 3.0  # s: a worker beats every second; who missed three gets nothing new


@dataclass(slots=True, eq=False)
class Sent:
    """An order that this orchestrator wrote to a worker's inbox."""

    order: Order
    partition: int  # of hr.ledger
    offset: int | None = None  # in the inbox; None: not acked yet
    tries: int = 1
    asked: bool = False  # whether it is missing is being found out


@dataclass(slots=True, eq=False)
class Hand:
    """One life of one worker."""

    status: Status
    figures: WorkerFigures
    sent: int = 0  # orders, cumulative
    reserved: int = 0  # leases written and not read back yet
    orders: dict[tuple[str, int], Sent] = field(default_factory=dict)
    others: int = 0  # in its list and not of our orders: another orchestrator's
    running: frozenset[tuple[str, int]] = frozenset()
    gone: bool = False  # its death has been dealt with

    @property
    def id(self) -> str:
        return self.status.member

    @property
    def epoch(self) -> str:
        return self.status.epoch

    def free(self, orchestrator: str) -> int:
        """Orders that may still be sent by that orchestrator epoch."""
        return self.figures.credits.get(orchestrator, 0) - self.sent - self.reserved

    @property
    def load(self) -> float:
        """Share of its slots that is taken, on its way or promised; above 1 when work waits there."""
        return (len(self.orders) + self.others + self.reserved) / max(1, self.figures.slots)

    def hear(self, status: Status, figures: WorkerFigures) -> None:
        self.status, self.figures = status, figures
        self.running = frozenset(figures.running)
        self.others = sum(1 for key in self.running if key not in self.orders)


class Fleet:
    """Every worker life that was heard, by (member id, epoch)."""

    def __init__(self, members: Members, epoch: str) -> None:
        self.members = members
        self.epoch = epoch  # of this orchestrator
        self.hands: dict[tuple[str, str], Hand] = {}
        self._served: dict[str, float] = {}  # model → loop time at which a worker of it was heard
        self._deaths: deque[tuple[float, Life]] = deque(maxlen=DEATHS_KEPT)
        self._since: float | None = None  # loop time from which on the living are heard

    def heard(self, seen: Seen) -> Hand | None:
        """Take a status; the hand it belongs to, if it is a worker's."""
        status = seen.status
        if status.worker is None:
            return None
        hand = self.hands.get((status.member, status.epoch))
        if hand is None:
            hand = self.hands[status.member, status.epoch] = Hand(status, status.worker)
        hand.hear(status, status.worker)
        self._served[status.worker.model] = seen.heard
        return hand

    def usable(self, hand: Hand) -> bool:
        """Whether it may get new work."""
        wanted = self.members.wanted.get(hand.id)
        return (
            hand.status.state == "ready"
            and not hand.figures.paused
            and self.alive(hand)
            and self.members.silence(hand.id) < QUIET
            and (wanted is None or wanted.state not in KEEP_AWAY)
        )

    def alive(self, hand: Hand) -> bool:
        seen = self.members.members.get(hand.id)
        return (
            seen is not None
            and seen.fresh
            and seen.status.epoch == hand.epoch
            and not self.members.dead(hand.id, hand.epoch)
        )

    def of_model(self, model: str) -> list[Hand]:
        """Workers of a model that may get new work, credit or not."""
        return [
            hand
            for hand in self.hands.values()
            if hand.figures.model == model and self.usable(hand)
        ]

    def serves(self, model: str) -> bool:
        """Whether any worker of the model lives, even one that can take nothing just now.

        A model is given up only after a moment without one: we may have just begun to listen, and a
        worker that restarts is soon back.
        """
        if any(
            hand.figures.model == model and self.alive(hand) and hand.status.state != "stopped"
            for hand in self.hands.values()
        ):
            return True
        last = self._served.get(model, self._since)
        return last is None or asyncio.get_running_loop().time() - last < QUIET

    def listening(self) -> None:
        """All statuses that were there have been read: from now on the living are heard."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def dead(self) -> list[Hand]:
        """Lives that are over and not dealt with yet."""
        return [
            hand
            for hand in self.hands.values()
            if not hand.gone and self.members.dead(hand.id, hand.epoch)
        ]

    def buried(self, hand: Hand) -> None:
        """Its death has been dealt with."""
        hand.gone = True
        if hand.status.state != "stopped":
            self._deaths.append((asyncio.get_running_loop().time(), (hand.id, hand.epoch)))

    def deaths(self) -> list[Life]:
        """Worker lives that ended in the last minute, other than by leaving."""
        since = asyncio.get_running_loop().time() - LATELY
        dealt_with = [life for at, life in self._deaths if at >= since]
        return dealt_with + [
            (hand.id, hand.epoch) for hand in self.dead() if hand.status.state != "stopped"
        ]

    def forget(self) -> None:
        """Drop lives that are over, dealt with and without orders."""
        for key, hand in list(self.hands.items()):
            if hand.gone and not hand.orders and not hand.reserved:
                del self.hands[key]
