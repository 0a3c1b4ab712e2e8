"""An event loop that never waits: when nobody can go on, time jumps to the next timer.

No threads, no sockets, no signals. The order of callbacks is asyncio's own, or, with a `chance`, any
order that the seed draws among those that could run now: code that needs more order than its awaits
give it is found out.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

BASE_MS = 1_764_547_200_000  # 2025-12-01: where every simulated wall clock begins


class Deadlock(RuntimeError):
    """Everybody waits, and no timer is set."""


class OutOfTime(RuntimeError):
    """The virtual time limit was reached."""


class _Jump:
    """Where a real loop waits for its selector, this one moves its clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Time is a number: 0 at the start, in seconds."""

    def __init__(self, chance: random.Random | None = None, *, limit: float = 7 * 86_400) -> None:
        super().__init__()
        self.steps = 0  # rounds of callbacks so far
        self.limit = limit  # s: a livelock is an error, not a hang
        self._now = 0.0
        self._chance = chance
        self._selector = _Jump(self)
        self._ready: Any  # asyncio's own deques of what can run now and heap of timers
        self._scheduled: Any

    def time(self) -> float:
        return self._now

    def jump(self, timeout: float | None) -> None:
        """asyncio has nothing to run for `timeout` seconds (None: for ever)."""
        self.steps += 1
        if timeout is None:
            raise Deadlock(f"at {self._now:.3f} s: {_waiting(self)}")
        if timeout > 0:
            # to the timer itself: a sum of floats may miss it
            self._now = max(self._now, self._scheduled[0].when())
            if self._now > self.limit:
                raise OutOfTime(f"{self.limit:g} s of virtual time: {_waiting(self)}")
        if self._chance is not None and len(self._ready) > 1:
            drawn = list(self._ready)
            self._chance.shuffle(drawn)
            self._ready.clear()
            self._ready.extend(drawn)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else could wake it: there are no threads."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(f"a simulated process has no threads: {func!r}")


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    names = sorted(repr(task.get_coro()) for task in asyncio.all_tasks(loop))
    return f"{len(names)} tasks wait: " + "; ".join(names[:20])


class VirtualClock:
    """A process's wall clock: the loop's time, off by `skew` ms."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew: int = 0) -> None:
        self.loop = loop
        self.skew = skew

    def ms(self) -> int:
        return BASE_MS + int(self.loop.time() * 1000) + self.skew


def run_virtual(
    main: Coroutine[Any, Any, T],
    *,
    chance: random.Random | None = None,
    limit: float = 7 * 86_400,
) -> T:
    """Run `main` to its end in virtual time; what it leaves running is cancelled."""
    loop = VirtualLoop(chance, limit=limit)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    loop.limit = float("inf")
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
