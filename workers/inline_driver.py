"""An engine without a thread, for the simulation."""

import asyncio
from collections.abc import Callable

from workers.driver import Command, Crank, Deliver
from workers.job import Engine


class InlineDriver(Crank):
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
        timer = self._loop.call_later(seconds, self._wake.set)
        await self._wake.wait()
        timer.cancel()
