"""What may go wrong with a write, and what state a connection is in."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..log import LogUnavailable, Outgoing, TopicPartition


class Fate(NamedTuple):
    """What becomes of one batch on its way; the default is that all goes well.

    A batch whose answer does not come within the cluster's `request_timeout` has failed for its writer,
    which sends it again; it may still land later, after newer records and after its writer's death.
    """

    delay: float = 0.0  # s until it lands
    lands: bool = True
    acked: bool = True  # False: it lands, and the answer is lost
    again: float | None = None  # s until it lands a second time


FateOf = Callable[
    [str, TopicPartition, Sequence[Outgoing]], Fate
]  # connection's name, place, batch


class Line:
    """A connection's state: open, slow, paused (of a stopped process, or of one that gets no answers), lost
    (it knows), or cut (of a killed one)."""

    def __init__(self) -> None:
        self.cut = False
        self.paused = False
        self.lost = False
        self.delay = 0.0  # s that every operation takes longer
        self.silent_since = 0.0  # loop time
        self._changed: asyncio.Future[None] | None = None

    @property
    def impeded(self) -> bool:
        return self.silent or self.delay > 0

    @property
    def silent(self) -> bool:
        return self.cut or self.paused or self.lost

    def fall_silent(self, *, cut: bool = False, lost: bool = False) -> None:
        if not self.silent:
            self.silent_since = asyncio.get_running_loop().time()
        self.cut = self.cut or cut
        self.lost = self.lost or lost
        self.paused = self.paused or not (cut or lost)

    def change(self) -> None:
        """Tell those that wait: something of the state is new."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def changed(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    async def gate(self) -> None:
        """Every operation passes here: at once, later, or (of a killed process) never. Raises
        LogUnavailable."""
        while self.silent:
            if self.lost and not self.cut:
                raise LogUnavailable("the connection was lost")
            await self.changed()
        if self.delay:
            await asyncio.sleep(self.delay)
