"""The runs: one per order, from `open` to the acknowledged `output` or `released`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from pipeline import logs, metrics, tracing
from pipeline.log import LogUnavailable, OffsetGone, Placed
from pipeline.lookup import ScanBudget
from pipeline.member import Member
from schemas.ledger import Output, Usage
from schemas.request import LANES
from schemas.work import Order, SamplingParams
from workers.driver import Driver, Event
from workers.endings import COMPLETED, SUPERSEDED, Ending, expired, failed
from workers.job import Failure, Job, Prefix, Sampling
from workers.outbox import Outbox, Speaker
from workers.prefix import Superseded, read_prefix

Key = tuple[str, int]  # request id, attempt
RETRY = 0.5  # s until a slot is read again after a broker error


@dataclass(slots=True, eq=False)
class Run:
    order: Order
    speaker: Speaker
    span: tracing.Span
    taken: int  # ms
    ending: "asyncio.Future[Ending]"
    first: dict[str, int] = field(default_factory=dict)  # of an earlier attempt: stage → ms
    computing: bool = False  # the engine has it
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # it has left

    @property
    def key(self) -> Key:
        return self.order.request_id, self.order.attempt

    def end(self, ending: Ending) -> None:
        """The first ending stays."""
        if not self.ending.done():
            self.ending.set_result(ending)


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
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def running(self) -> list[Key]:
        """What it holds: everything whose output or release is not acknowledged."""
        return list(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, order: Order, span: tracing.Span, refusal: Ending | None = None) -> None:
        """Take an order; with `refusal`, only to answer it. A lower attempt of it is superseded."""
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
        run.gone.set()
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
        opened = self._outbox.open(
            run.speaker, silent=run.ending.done(), trace=tracing.headers_of(run.span)
        )
        prefix: tuple[Prefix, ...] = ()
        if attempt > 1:  # there is no lower attempt than 1 to wait for
            prefix = await self._prefix(run, await opened)
        if not run.ending.done() and run.speaker.finished:
            run.end(COMPLETED)  # the log holds the whole answer: compute nothing
        if not run.ending.done():
            self._driver.add(_job(run.order, prefix))
            run.computing = True
            await self._wait(run)
        return run.ending.result()

    async def _turn(self, run: Run) -> None:
        """A suspect opens when no other has: if it kills this process, it alone is struck."""
        ahead = list(takewhile(lambda other: other is not run, self._runs.values()))
        for other in ahead:
            if other.order.alone and not run.ending.done():
                gone: asyncio.Future[Any] = asyncio.ensure_future(other.gone.wait())
                left = (run.order.ready.deadline - self._member.clock.ms()) / 1000
                await asyncio.wait(
                    {gone, run.ending}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
                )
                gone.cancel()

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
        await asyncio.wait({run.ending}, timeout=max(0.0, min(left, limit)))
        run.end(expired() if left <= limit else expired(f"a run may take {limit:g} s at most"))

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
        output = _output(run, ending, finished)
        await self._outbox.output(output)
        _measure(output)

    def _left(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)


def _job(order: Order, prefix: tuple[Prefix, ...]) -> Job:
    ready = order.ready
    return Job(
        request_id=order.request_id,
        attempt=order.attempt,
        prompt_ids=ready.prompt_ids,
        max_tokens=ready.max_tokens,
        n=ready.n,
        sampling=_sampling(ready.sampling),
        prefix=prefix,
        salt=ready.salt,
        lane=LANES.index(ready.lane) if ready.lane in LANES else 1,
        deadline_ms=ready.deadline,
        alone=order.alone,
    )


def _sampling(params: SamplingParams) -> Sampling:
    return Sampling(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=tuple(params.logit_bias),
        logprobs=params.logprobs,
        top_logprobs=params.top_logprobs,
        stop=tuple(params.stop),
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        seed=params.seed,
    )


def _output(run: Run, ending: Ending, finished: int) -> Output:
    """All that its result needs. An earlier attempt's first token stays the first."""
    order, ready, speaker = run.order, run.order.ready, run.speaker
    said = sum(len(voice.ids) for voice in speaker.voices)
    given = len(ready.prompt_ids)
    return Output(
        request_id=order.request_id,
        attempt=order.attempt,
        outcome=ending.outcome,
        error=ending.error,
        kind=ready.kind,
        model=ready.model,
        revision=ready.revision,
        choices=[voice.said(i) for i, voice in enumerate(speaker.voices)],
        usage=Usage(
            prompt_tokens=given,
            completion_tokens=said,
            total_tokens=given + said,
            cached_tokens=speaker.cached_tokens,
        ),
        same_answer=order.same_answer,
        tenant=ready.tenant,
        lane=ready.lane,
        encoding=ready.encoding,
        correlation_id=ready.correlation_id,
        service_tier=ready.service_tier,
        metadata=ready.metadata,
        echoed=ready.echoed,
        worker=order.worker,
        epoch=order.epoch,
        created=ready.created,
        accepted=ready.accepted,
        finished=finished,
        body_hash=ready.body_hash,
        entered={**ready.entered, **order.entered, **speaker.first, **run.first},
    )


def _measure(output: Output) -> None:
    first = output.entered.get("first_token")
    if first is None or output.outcome != "completed":
        return
    labels = ("chat" if output.kind == "chat" else "text_completion", output.model or "")
    labels = (labels[0], metrics.capped("model", labels[1]))
    metrics.time_to_first_token.labels(*labels).observe((first - output.accepted) / 1000)
    after = output.usage.completion_tokens - 1
    if after > 0:
        pace = (output.finished - first) / 1000 / after
        metrics.time_per_output_token.labels(*labels).observe(pace)
