"""One worker process: an event loop for Kafka, and an engine with a thread of its own."""

import asyncio
from collections.abc import Callable

from pipeline import logs, tracing
from pipeline.log import LogUnavailable, Outgoing
from pipeline.member import Fatal, Member
from pipeline.members import REST, Members
from pipeline.presence import Presence
from pipeline.table import Table
from pipeline.watchdog import Watchdog
from schemas.codec import decode
from schemas.models import Model
from schemas.work import Order
from workers.control import Control
from workers.driver import Driver, Event
from workers.endings import SUPERSEDED, Ending, released
from workers.engines import choose_model, engine_of
from workers.heartbeat import Heartbeat
from workers.inbox import Inbox
from workers.inline_driver import InlineDriver
from workers.job import Engine
from workers.outbox import Outbox
from workers.runner import DeviceLost
from workers.runs import Runs
from workers.telemetry import memory_gauge
from workers.thread_driver import ThreadDriver

Build = Callable[[Member, Model], Callable[[], Engine]]

DEVICE_LOST = 70  # exit code
FAULT_LIMIT = 2.0  # s to give work back when the engine has died
HAND_OVER = 6.0  # s of the drain limit kept for giving back what is not finished
OUTBOX_FULL = "the outbox is full"
BACKLOG = 10_000  # records on their way at which the engine waits


async def run(member: Member, *, inline: bool = False, build: Build = engine_of) -> None:
    """Until drained. `inline`: the engine has no thread, for the simulation, which watches what `build`
    makes.

    Raises Fatal (exit code 70) when the device is lost, and whatever else ends a process.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            model = await _model(member, tasks)
            if model is None:
                return  # drained before there was one
            worker = Worker(member, model, tasks, inline=inline, build=build)
            await worker.start()
            await member.draining.wait()
            await worker.stop()
    except* DeviceLost as lost:
        logs.error("device_lost", error=lost.exceptions[0])
        raise Fatal(f"the device is lost: {lost.exceptions[0]}", DEVICE_LOST) from lost


async def _model(member: Member, tasks: asyncio.TaskGroup) -> Model | None:
    member.missing["model"] = "reading the model registry"
    member.missing.pop("start", None)
    models = Table(member.log, member.topics.models, lambda value: decode(value, Model))
    table = tasks.create_task(models.run())
    try:
        return await choose_model(member, models)
    finally:
        table.cancel()


class Worker:
    """Wires inbox, control, engine, outbox and heartbeat together."""

    def __init__(
        self,
        member: Member,
        model: Model,
        tasks: asyncio.TaskGroup,
        *,
        inline: bool,
        build: Build = engine_of,
    ) -> None:
        self._member = member
        self._model = model
        self._group = tasks
        self._inline = inline
        form = InlineDriver if inline else ThreadDriver
        self._driver: Driver = form(build(member, model), self._deliver)
        self._making_room = False

    async def start(self) -> None:
        """Ready once the engine is warm and nothing written for us from now on can be missed."""
        member, log = self._member, self._member.log
        member.missing["engine"] = f"loading {self._model.name}"
        await self._driver.start()
        self._tokens = await log.writer("tokens")
        self._ledger = await log.writer("ledger")
        self._outbox = Outbox(member, self._tokens, self._ledger, self._driver.token_text)
        self._inbox = Inbox(member, self._take, self._give_back, self._spend)
        self._members = Members(log, member.topics, rest=REST)
        memory = (lambda: 0.0) if self._inline else memory_gauge(member.settings.worker.device)
        self._heartbeat = Heartbeat(
            member, self._model, self._members, self._driver, self._inbox, memory
        )
        self._runs = Runs(member, self._driver, self._outbox, self._heartbeat.changed)
        self._control = Control(member, self._runs)
        self._presence = Presence(member, self._ledger, self._heartbeat.figures)
        self._heartbeat.bind(self._runs, self._presence)
        await self._control.open()
        await self._inbox.open()
        member.missing.pop("engine", None)
        work = (
            self._members.run(),
            self._control.run(),
            self._inbox.run(),
            self._presence.run(),
            self._heartbeat.watch(),
            Watchdog(log.admin, writers=[self._tokens, self._ledger]).run(),
            self._until_engine_dies(),
            self._until_a_run_fails(),
        )
        self._background = [self._group.create_task(each) for each in work]

    async def stop(self) -> None:
        """No new work; what runs is finished, or given back when the limit comes."""
        self._presence.announce()
        limit = self._member.settings.runner.drain_limit
        if not await self._idle(limit - HAND_OVER):
            self._runs.stop_all(released("drain"))
            await self._idle(HAND_OVER / 3)
        for task in self._background:
            task.cancel()
        await self._presence.leave(HAND_OVER / 3)
        await self._runs.close()
        await self._driver.close()
        await self._tokens.close()
        await self._ledger.close()

    async def _idle(self, limit: float) -> bool:
        try:
            async with asyncio.timeout(limit):
                await self._runs.idle()
        except TimeoutError:
            return False
        return True

    # callbacks of inbox and engine

    def _take(self, order: Order, span: tracing.Span) -> None:
        self._heartbeat.took(order)
        self._runs.begin(order, span, self._refusal(order))

    def _refusal(self, order: Order) -> Ending | None:
        offered = self._spend(order)
        ready, model = order.ready, self._model
        if self._control.over(order.request_id, order.attempt):
            return SUPERSEDED
        if ready.model != model.name or (order.same_answer and ready.revision != model.revision):
            return released("wrong_model", f"{model.name} {model.revision} is served here")
        if not offered:
            return released("full", f"order {order.count} was never offered")
        if self._member.draining.is_set():
            return released("drain")
        return None

    def _spend(self, order: Order) -> bool:
        """An order costs its credit also when it is a repeat: its sender counts it."""
        return self._heartbeat.credits.spend(order.orchestrator_epoch, order.count)

    def _give_back(self, request_id: str, attempt: int, letter: Outgoing, why: str) -> None:
        self._group.create_task(self._outbox.unreadable(request_id, attempt, letter, why))

    def _deliver(self, events: list[Event]) -> None:
        self._runs.deliver(events)
        if self._tokens.pending > BACKLOG and not self._making_room:
            self._making_room = True
            self._driver.pause(OUTBOX_FULL)
            self._background.append(self._group.create_task(self._make_room()))

    async def _make_room(self) -> None:
        while self._making_room:
            try:
                await self._tokens.flush()
            except LogUnavailable as error:
                logs.warn("outbox_full", error=error)
            else:
                self._making_room = False
        self._driver.resume(OUTBOX_FULL)

    # what ends the process

    async def _until_engine_dies(self) -> None:
        try:
            await asyncio.shield(self._driver.failed)
        except Exception as error:
            logs.error("engine_died", error=repr(error))
            self._runs.stop_all(released("fault", f"the engine died: {error!r}"))
            await self._idle(FAULT_LIMIT)
            raise

    async def _until_a_run_fails(self) -> None:
        await asyncio.shield(self._runs.failed)
