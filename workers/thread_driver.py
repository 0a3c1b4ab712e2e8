"""The engine's own thread."""

import asyncio
import threading
from collections.abc import Callable

from workers.driver import Command, Crank, Deliver, Event
from workers.job import Capacity, Engine

BACKLOG = 64  # steps that the loop may be behind before the engine waits for it


class ThreadDriver(Crank):
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
