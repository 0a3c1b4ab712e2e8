"""What turns an engine's crank: a thread that blocks when idle, or, for the simulation, a task.

Whatever an engine says is handed to `deliver` in the event loop, step by step and in order.
"""

import abc
import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from workers.job import Capacity, Emission, Engine, Failure, Job

Event = Emission | Failure
Deliver = Callable[[list[Event]], None]
Command = Callable[[Engine], object]

BACKLOG = 64  # steps that the loop may be behind before the engine waits for it
IDLE = Capacity(
    running=0,
    waiting=0,
    slots=0,
    blocks_total=0,
    blocks_used=0,
    blocks_cached=0,
    batch_tokens=0,
    steps=0,
    tokens=0,
)


class Driver(Protocol):
    """All methods are called in the event loop."""

    capacity: Capacity  # as of the last step
    failed: "asyncio.Future[None]"  # holds what ended the engine

    async def start(self) -> None:
        """Returns once the engine is warm. Raises what building it raised."""

    def add(self, job: Job) -> None: ...
    def cancel(self, request_id: str, attempt: int) -> None: ...
    def pause(self, reason: str) -> None:
        """No step until every reason was taken back; sequences keep their KV."""

    def resume(self, reason: str) -> None: ...
    def step_age(self) -> float:
        """Seconds since the last step, 0 without work in hand or while paused."""

    def token_text(self, token_id: int) -> bytes: ...
    async def close(self) -> None: ...


class _Crank(abc.ABC):
    """What both forms share; in the event loop only."""

    def __init__(self, build: Callable[[], Engine], deliver: Deliver) -> None:
        self._loop = asyncio.get_running_loop()
        self._build = build
        self._deliver = deliver
        self._engine: Engine | None = None
        self._reasons: set[str] = set()
        self._busy = False
        self._stepped = self._loop.time()
        self.capacity = IDLE
        self.failed: asyncio.Future[None] = self._loop.create_future()

    def add(self, job: Job) -> None:
        if not self._busy:
            self._busy, self._stepped = True, self._loop.time()
        self._post(lambda engine: engine.add(job))

    def cancel(self, request_id: str, attempt: int) -> None:
        self._post(lambda engine: engine.cancel(request_id, attempt))

    def pause(self, reason: str) -> None:
        self._reasons.add(reason)
        self._changed()

    def resume(self, reason: str) -> None:
        self._reasons.discard(reason)
        self._stepped = self._loop.time()
        self._changed()

    def step_age(self) -> float:
        if not self._busy or self._reasons:
            return 0.0
        return self._loop.time() - self._stepped

    def token_text(self, token_id: int) -> bytes:
        """A look-up in the vocabulary: no state of the step loop is touched."""
        assert self._engine is not None, "started before anything was said"
        return self._engine.token_text(token_id)

    @abc.abstractmethod
    def _post(self, command: Command) -> None:
        """Have `command` done before the next step."""

    @abc.abstractmethod
    def _changed(self) -> None:
        """A reason to pause came or went."""

    def _said(self, events: list[Event], capacity: Capacity, busy: bool) -> None:
        self.capacity, self._busy, self._stepped = capacity, busy, self._loop.time()
        if events:
            self._deliver(events)

    def _died(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


class ThreadDriver(_Crank):
    """The engine's own thread: no step ever waits for the event loop, nor the loop for a step."""

    def __init__(self, build: Callable[[], Engine], deliver: Deliver) -> None:
        super().__init__(build, deliver)
        self._wake = threading.Condition()
        self._commands: list[Command] = []
        self._paused = self._closing = False
        self.behind = 0  # steps that the loop has not taken yet
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    async def start(self) -> None:
        self._thread.start()
        await self._started

    async def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():  # a step cannot be interrupted, but none takes long
            await self._ended.wait()

    def _post(self, command: Command) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _changed(self) -> None:
        with self._wake:
            self._paused = bool(self._reasons)
            self._wake.notify()

    def _said(self, events: list[Event], capacity: Capacity, busy: bool) -> None:
        with self._wake:
            self.behind -= 1
            self._wake.notify()
        super()._said(events, capacity, busy)

    def _run(self) -> None:
        try:
            engine = self._engine = self._build()
        except BaseException as error:  # noqa: BLE001 - it belongs to who awaits start()
            self._tell(self._fail_start, error)
            return
        self._tell(self._started.set_result, None)
        try:
            while self._turn(engine):
                pass
            engine.close()
        except BaseException as error:  # noqa: BLE001 - the loop decides how the process ends
            self._tell(self._died, error)
        self._tell(self._ended.set)

    def _turn(self, engine: Engine) -> bool:
        """Commands, then a step if there is one to do. False: closed."""
        with self._wake:
            while not (self._commands or self._closing or self._may_step(engine)):
                self._wake.wait()
            commands, self._commands = self._commands, []
            if self._closing:
                return False
        for command in commands:
            command(engine)
        if commands and not engine.has_work():
            self._report(engine, [])  # what was cancelled holds nothing any more
        if not engine.has_work() or self._paused:
            return True
        wait = engine.wait_ms()
        if wait > 0:
            with self._wake:
                if not (self._commands or self._closing):
                    self._wake.wait(wait / 1000)
                if self._commands or self._closing:
                    return True
        self._report(engine, engine.step())
        return True

    def _report(self, engine: Engine, events: list[Event]) -> None:
        with self._wake:
            self.behind += 1
        self._tell(self._said, events, engine.capacity(), engine.has_work())

    def _may_step(self, engine: Engine) -> bool:
        return not self._paused and self.behind < BACKLOG and engine.has_work()

    def _tell(self, say: Callable[..., object], *args: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(say, *args)

    def _fail_start(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)


class InlineDriver(_Crank):
    """The same without a thread: deterministic, in virtual time."""

    def __init__(self, build: Callable[[], Engine], deliver: Deliver) -> None:
        super().__init__(build, deliver)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._engine = self._build()
        self._task = self._loop.create_task(self._run(self._engine))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._engine is not None:
            self._engine.close()

    def _post(self, command: Command) -> None:
        assert self._engine is not None, "started before it is given work"
        command(self._engine)
        if not self._engine.has_work():
            self._said([], self._engine.capacity(), False)
        self._wake.set()

    def _changed(self) -> None:
        self._wake.set()

    async def _run(self, engine: Engine) -> None:
        try:
            while True:
                self._wake.clear()
                if self._reasons or not engine.has_work():
                    await self._wake.wait()
                elif (wait := engine.wait_ms()) > 0:
                    await self._sleep(wait / 1000)
                else:
                    events = engine.step()
                    self._said(events, engine.capacity(), engine.has_work())
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - the role decides how the process ends
            self._died(error)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
