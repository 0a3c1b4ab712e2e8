"""The runs: one per order, from `open` to the acknowledged `output` or `released`."""

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from pipeline import logs, metrics, tracing
from pipeline.attempt import decided
from pipeline.log import LogUnavailable, OffsetGone, Placed
from pipeline.lookup import ScanBudget
from pipeline.member import Member
from schemas.work import Order
from workers.driver import Driver, Event
from workers.endings import COMPLETED, SUPERSEDED, Ending, expired, failed
from workers.job import Failure, Prefix
from workers.jobs import job_of
from workers.outbox import Outbox
from workers.outcome import measure, output_of, tokens_of
from workers.prefix import Superseded, read_prefix
from workers.run import Key, Run

READERS = 4  # slots read at once: a hundred connections made in one moment silence the worker
RETRY = 0.5  # s until a slot is read again after a broker error


class Runs:
    """Every run of this worker. `changed` is called whenever one has left."""

    def __init__(
        self, member: Member, driver: Driver, outbox: Outbox, changed: Callable[[], None]
    ) -> None:
        self._member = member
        self._driver = driver
        self._outbox = outbox
        self._changed = changed
        self._runs: dict[Key, Run] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order, as a set is not
        self._idle = asyncio.Event()
        self._idle.set()
        self._readers = asyncio.Semaphore(READERS)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def running(self) -> list[Key]:
        """What it holds: everything whose output or release is not acknowledged."""
        return list(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, order: Order, span: tracing.Span, refusal: Ending | None = None) -> None:
        """Take an order; with `refusal`, only to answer it. A lower attempt of it is superseded."""
        if order.attempt > 1:
            self.stop(order.request_id, order.attempt - 1, SUPERSEDED)
        loop, now = asyncio.get_running_loop(), self._member.clock.ms()
        run = Run(order, self._outbox.speaker(order, now), span, now, loop.create_future())
        if refusal is not None:
            run.end(refusal)
        elif now >= order.ready.deadline:
            run.end(expired("the deadline passed before it ran"))
        self._runs[run.key] = run
        self._idle.clear()
        metrics.requests_running.set(len(self._runs))
        task = loop.create_task(self._live(run))
        self._tasks[task] = None
        task.add_done_callback(self._left)

    def deliver(self, events: list[Event]) -> None:
        """What one engine step said."""
        for event in events:
            run = self._runs.get((event.request_id, event.attempt))
            if run is None or run.ending.done():
                continue
            if isinstance(event, Failure):
                run.computing = False
                run.end(failed(event))
                continue
            self._outbox.say(run.speaker, event)
            if event.finish is not None and run.speaker.finished:
                run.computing = False
                run.end(COMPLETED)

    def stop(self, request_id: str, attempt: int, ending: Ending) -> None:
        """End every attempt of a request up to `attempt`."""
        for key, run in self._runs.items():
            if key[0] == request_id and key[1] <= attempt:
                run.end(ending)

    def stop_all(self, ending: Ending) -> None:
        for run in self._runs.values():
            run.end(ending)

    async def idle(self) -> None:
        """Wait until nothing is held."""
        await self._idle.wait()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self, run: Run) -> None:
        with run.span:
            await self._write(run, await self._until_ended(run))
        del self._runs[run.key]
        run.speaker.cleared.set()
        metrics.requests_running.set(len(self._runs))
        if not self._runs:
            self._idle.set()
        self._changed()

    async def _until_ended(self, run: Run) -> Ending:
        """What an earlier attempt said is read first, whatever ends this one: an output carries it."""
        attempt = run.order.attempt
        if run.order.alone:
            await self._turn(run)
        if run.ending.done() and (attempt == 1 or run.ending.result().kind == "released"):
            return run.ending.result()
        prefix: tuple[Prefix, ...] = ()
        if attempt == 1:  # there is no lower attempt to wait for
            self._open(run)
        else:
            async with self._readers:
                prefix = await self._prefix(run, await self._open(run))
        if not run.ending.done() and run.speaker.finished:
            run.end(COMPLETED)  # the log holds the whole answer: compute nothing
        if not run.ending.done():
            await self._generate(run, prefix)
        return run.ending.result()

    def _open(self, run: Run) -> "asyncio.Future[Placed]":
        return self._outbox.open(
            run.speaker, silent=run.ending.done(), trace=tracing.headers_of(run.span)
        )

    async def _generate(self, run: Run, prefix: tuple[Prefix, ...]) -> None:
        """From its entry into the engine's steps until it ends."""
        parent = run.span
        with tracing.span("generate", "internal", parent.traceparent, parent.tracestate) as span:
            self._driver.add(job_of(run.order, prefix))
            run.computing = True
            await self._wait(run)
            span.set(**tokens_of(run))

    async def _turn(self, run: Run) -> None:
        """A suspect opens when each before it has said a token: if one kills this process, it alone is
        struck. A whole answer each would keep the last of many waiting for all the others."""
        ahead = list(takewhile(lambda other: other is not run, self._runs.values()))
        for other in ahead:
            if other.order.alone and not run.ending.done():
                cleared: asyncio.Future[Any] = asyncio.ensure_future(other.speaker.cleared.wait())
                left = (run.order.ready.deadline - self._member.clock.ms()) / 1000
                await asyncio.wait(
                    {cleared, run.ending},
                    timeout=max(0.0, left),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                cleared.cancel()

    async def _prefix(self, run: Run, opened: Placed) -> tuple[Prefix, ...]:
        order = run.order
        while True:
            try:
                spoken = await read_prefix(
                    self._member.log, order.request_id, order.attempt, opened, order.slot_from
                )
            except Superseded:
                run.end(SUPERSEDED)
                return ()
            except (LogUnavailable, OffsetGone, ScanBudget) as error:
                if run.ending.done() and run.ending.result().kind != "output":
                    return ()
                logs.warn("slot_unread", request_id=order.request_id, error=error)
                await asyncio.sleep(RETRY)
                continue
            prefix = spoken.prefix(order.ready.n)
            run.speaker.resume(prefix)
            run.first = spoken.first
            return prefix

    async def _wait(self, run: Run) -> None:
        """Until something ends it; its deadline and the limit of a run do."""
        left = (run.order.ready.deadline - self._member.clock.ms()) / 1000
        limit = self._member.settings.worker.run_limit
        over = expired() if left <= limit else expired(f"a run may take {limit:g} s at most")
        timer = asyncio.get_running_loop().call_later(max(0.0, min(left, limit)), run.end, over)
        try:
            await decided(run.ending)
        finally:
            timer.cancel()

    async def _write(self, run: Run, ending: Ending) -> None:
        if run.computing:
            self._driver.cancel(*run.key)
        if ending.kind == "superseded":
            logs.info("superseded", request_id=run.order.request_id, attempt=run.order.attempt)
            return
        finished = self._member.clock.ms()
        await self._outbox.settled(run.speaker)
        if ending.kind == "released":
            logs.info("released", request_id=run.order.request_id, why=ending.why)
            await self._outbox.released(run.order, ending.why, ending.detail)
            return
        output = output_of(run, ending, finished)
        await self._outbox.output(output, tracing.headers_of(run.span))
        measure(output)

    def _left(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
