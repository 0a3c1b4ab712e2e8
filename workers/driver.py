"""What turns an engine's crank: a thread that blocks when idle, or, for the simulation, a task.

Whatever an engine says is handed to `deliver` in the event loop, step by step and in order.
"""

import abc
import asyncio
from collections.abc import Callable
from typing import Protocol

from workers.job import Capacity, Emission, Engine, Failure, Job

Event = Emission | Failure
Deliver = Callable[[list[Event]], None]
Command = Callable[[Engine], object]

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

    @property
    def device_type(self) -> str:
        """The engine's, once it was started."""

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


class Crank(abc.ABC):
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

    @property
    def device_type(self) -> str:
        assert self._engine is not None, "started before anything is said of it"
        return self._engine.device_type

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
