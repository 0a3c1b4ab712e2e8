"""Credits: how many orders each orchestrator may send. Pure.

A credit is cumulative: per orchestrator epoch, the total of orders it may ever have sent to this worker
epoch. So a lost, late or repeated status changes nothing, and a new epoch on either side counts anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

REMEMBERED = 256  # orchestrator epochs: whoever was silent for a while goes on with its count


@dataclass(slots=True)
class Credits:
    total: dict[str, int] = field(default_factory=dict)  # orchestrator epoch → may have sent
    used: dict[str, int] = field(default_factory=dict)  # → has sent, as far as we know
    _turn: int = 0

    def spend(self, epoch: str, count: int) -> bool:
        """Take order number `count` of an orchestrator. False: it was never offered so many; they were
        sent all the same, and what is offered next lies beyond them."""
        self.used[epoch] = max(self.used.get(epoch, 0), count)
        return count <= self.total.setdefault(epoch, 0)

    def outstanding(self, epoch: str) -> int:
        return self.total.get(epoch, 0) - self.used.get(epoch, 0)

    def wanted(self, epochs: Sequence[str], free: int) -> int:
        """How many credits `grant` would add."""
        shares = self._shares(epochs, free)
        return sum(max(0, share - self.outstanding(epoch)) for epoch, share in shares.items())

    def grant(self, epochs: Sequence[str], free: int) -> dict[str, int]:
        """New totals for the live orchestrators: each may have an even share of what is free on its way.

        A total never sinks. What an idle one holds is not taken from the others, so together they may
        send up to their shares too many; such orders wait in the engine's queue. One that was silent and
        comes back has kept its count, so its total is kept too: begun anew, it would never reach it.
        """
        for epoch, share in self._shares(epochs, free).items():
            short = max(0, share - self.outstanding(epoch))
            self.total[epoch] = self.total.pop(epoch, 0) + short  # the latest last
        for gone in list(self.total)[: max(0, len(self.total) - max(REMEMBERED, len(epochs)))]:
            del self.total[gone]
            self.used.pop(gone, None)
        self._turn += 1
        return {epoch: self.total[epoch] for epoch in epochs}

    def _shares(self, epochs: Sequence[str], free: int) -> dict[str, int]:
        """Even shares; what does not divide goes to another one each time."""
        count, free = len(epochs), max(0, free)
        return {
            epoch: free // count + ((i - self._turn) % count < free % count)
            for i, epoch in enumerate(sorted(epochs))
        }
