"""An event loop that never waits: when nobody can go on, time jumps to the next timer.

No threads, no sockets, no signals. The order of callbacks is asyncio's own, or, with a `chance`, any
order that the seed draws among those that could run now: code that needs more order than its awaits
give it is found out.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TaskOf = Generator[Any, None, T] | Coroutine[Any, Any, T]

OWNER: ContextVar[str | None] = ContextVar("owner", default=None)  # whose process a callback is
BASE_MS = 1_764_547_200_000  # 2025-12-01: where every simulated wall clock begins


class Deadlock(RuntimeError):
    """Everybody waits, and no timer is set."""


class OutOfTime(RuntimeError):
    """The virtual time limit was reached."""


class VirtualHandle(asyncio.TimerHandle):
    """asyncio's handles without what they do for debuggers: a seed makes twenty thousand."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop.dropped()


class VirtualTask(asyncio.Task[T]):
    """asyncio keeps tasks in sets and cancels them in the sets' order, which is that of their hashes:
    by number it is the same in every process; by address, asyncio's own, it is not."""

    def __init__(self, number: int, coro: TaskOf[T], **options: Any) -> None:
        self.number = number  # before asyncio puts the task into a set
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Time is a number: 0 at the start, in seconds. Timers of one moment run in the order they were set."""

    def __init__(
        self,
        chance: random.Random | None = None,
        *,
        limit: float = 7 * 86_400,
        turns: float = float("inf"),
    ) -> None:
        super().__init__()
        self.steps = 0  # rounds of callbacks so far
        self.limit = limit  # s: a livelock is an error, not a hang
        self.turns = turns  # rounds of callbacks: also of one in which no time passes
        self._now = 0.0
        self._chance = chance
        self._timers: list[tuple[float, int, VirtualHandle]] = []  # a heap
        self._set = 0  # timers so far
        self._tasks = 0  # tasks so far
        self._dropped = 0  # timers in the heap that were cancelled
        self._frozen: dict[str | None, list[VirtualHandle]] = {}  # owner → what waits for its thaw
        self._ready: Any  # asyncio's own deque of what can run now
        self._stopping: bool

    def time(self) -> float:
        return self._now

    def create_task(
        self,
        coro: TaskOf[T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._tasks += 1
        named = str(name or f"task-{self._tasks}")
        return VirtualTask(self._tasks, coro, loop=self, name=named, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = VirtualHandle(when, callback, args, self, context)
        self._set += 1
        heapq.heappush(self._timers, (when, self._set, timer))
        return timer

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> VirtualHandle:
        handle = VirtualHandle(self._now, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def freeze(self, owner: str) -> None:
        """SIGSTOP: nothing runs whose context says that it is this owner's, until `thaw`."""
        self._frozen.setdefault(owner, [])

    def thaw(self, owner: str) -> None:
        """SIGCONT: all that came due meanwhile runs now."""
        self._ready.extend(self._frozen.pop(owner, ()))

    def dropped(self) -> None:
        """A handle was cancelled; when most timers may be, the heap is made anew without them."""
        self._dropped += 1
        if self._dropped > 1000 and self._dropped > len(self._timers) // 2:
            self._timers = [each for each in self._timers if not each[2].cancelled()]
            heapq.heapify(self._timers)
            self._dropped = 0

    def _run_once(self) -> None:
        """One round: what can run now; if nothing can, time jumps to the next timer first."""
        self.steps += 1
        if self.steps > self.turns:
            raise OutOfTime(f"{self.turns:g} rounds by {self._now:.3f} s: {_waiting(self)}")
        ready = self._ready
        if not ready and not self._stopping:
            self._jump()
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        if self._chance is not None and len(ready) > 1:
            self._shuffle(self._chance.random)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self._frozen:
                held = self._frozen.get(handle._context.get(OWNER))
                if held is not None:
                    held.append(handle)
                    continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio has it: told, and the loop goes on
                self.call_exception_handler({"message": f"in {handle!r}", "exception": error})

    def _shuffle(self, draw: Callable[[], float]) -> None:
        """Fisher and Yates, at a third of what `Random.shuffle` costs."""
        ready = self._ready
        for i in range(len(ready) - 1, 0, -1):
            j = int(draw() * (i + 1))
            ready[i], ready[j] = ready[j], ready[i]

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"at {self._now:.3f} s: {_waiting(self)}")
        self._now = max(self._now, timers[0][0])
        if self._now > self.limit:
            raise OutOfTime(f"{self.limit:g} s of virtual time: {_waiting(self)}")

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
    turns: float = float("inf"),
) -> T:
    """Run `main` to its end in virtual time; what it leaves running is cancelled."""
    loop = VirtualLoop(chance, limit=limit, turns=turns)
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
    loop.limit = loop.turns = float("inf")
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
