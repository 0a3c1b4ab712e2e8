"""One role in the foreground: connect, run, drain, say how it ended."""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pipeline import logs, tracing
from pipeline.clock import WallClock
from pipeline.log import Log, LogError, LogUnavailable
from pipeline.member import Fatal, Member, new_epoch
from pipeline.settings import Settings
from pipeline.supervisor.plan import ROLES
from pipeline.topics import Topics
from pipeline.watchdog import Stuck

WATCH_STARTING = 0.05  # s between looks at what is missing
WATCH_READY = 1.0
GARBAGE = 10_000  # new objects between two looks of the collector, some MB at most; Python's is 700


def supervised() -> bool:
    """Started by `headrace up`, which has declared the topics and hears of readiness."""
    return "HEADRACE_SUPERVISED" in os.environ


def serve_broker(
    directory: Path | None, host: str | None, port: int, advertise: str | None, fsync: bool
) -> NoReturn:
    home = Path(os.environ.get("HEADRACE_HOME", "./.headrace"))
    arguments = ["--dir", str(directory or home / "broker"), "--port", str(port)]
    if host:
        arguments += ["--host", host]
    if advertise:
        arguments += ["--advertise", advertise]
    if fsync:
        arguments.append("--fsync")
    os.execv(sys.executable, [sys.executable, "-m", "pipeline.embedded", *arguments])


def serve_role(role: str, member_id: str, settings: Settings) -> int:
    try:
        with asyncio.Runner(loop_factory=_new_loop()) as runner:
            return runner.run(_serve(role, member_id, settings))
    except Exception as error:  # noqa: BLE001 - its last words, whatever it was
        return _last_words(member_id, error)


def _last_words(member_id: str, error: Exception) -> int:
    """Say in one last line why the process ends; its exit code."""
    cause = next((each for each in _leaves(error) if isinstance(each, Fatal)), None)
    known = [each for each in _leaves(error) if isinstance(each, LogError | Stuck)]
    if cause is None and not known:
        traceback.print_exception(error)  # nobody foresaw it
    said = cause or next(iter(known or _leaves(error)))
    print(f"headrace: {member_id}: {str(said) or type(said).__name__}", file=sys.stderr)
    return cause.exit_code if cause is not None else 1


def _leaves(error: BaseException) -> list[BaseException]:
    """What a task group gathered, however deep."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(role: str, member_id: str, settings: Settings) -> int:
    from pipeline.declare import declare
    from pipeline.kafka import connect

    clock = WallClock()
    chance = random.Random(int.from_bytes(os.urandom(16), "big"))
    log: Log = await connect(settings.kafka, clock, client_id=member_id)
    member = Member(
        id=member_id,
        role=role,
        epoch=new_epoch(chance),
        log=log,
        clock=clock,
        chance=chance,
        settings=settings,
        topics=Topics.of(settings),
    )
    logs.configure(member=member.id, role=role, epoch=member.epoch, clock=clock)
    tracing.configure(os.environ, role=role, member=member_id)
    try:
        if not supervised():
            await declare(log, member.topics)
        return await _live(member)
    finally:
        with contextlib.suppress(LogUnavailable, TimeoutError):
            await asyncio.wait_for(log.close(), 5.0)
        tracing.stop()


async def _live(member: Member) -> int:
    from pipeline.health import serve_health

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, member.draining.set)
    if member.role != "edge":  # the edge serves its own
        await serve_health(member, member.settings.host, member.settings.health_port)
    role = importlib.import_module(ROLES[member.role])
    watch = asyncio.create_task(_say_state(member))
    _calm_collector()
    work = asyncio.create_task(role.run(member))
    try:
        await _until_drained(member, work)
    finally:
        watch.cancel()
    return 0


def _calm_collector() -> None:
    """What is loaded lives as long as the process, and what comes mostly dies by its reference count."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


async def _until_drained(member: Member, work: "asyncio.Task[None]") -> None:
    """The role ends by itself; after the drain limit it is ended."""
    drain = asyncio.create_task(member.draining.wait())
    await asyncio.wait({work, drain}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        await asyncio.wait({work}, timeout=member.settings.runner.drain_limit)
    drain.cancel()
    if not work.done():
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        return
    work.result()


async def _say_state(member: Member) -> None:
    """For the supervisor (a JSON line a change) or for a person (a line when ready)."""
    last: dict[str, Any] | None = None
    while True:
        now = {"http": member.http, "missing": dict(member.missing)}
        if now != last:
            last = now
            if supervised():
                print(json.dumps(now), flush=True)
            elif member.ready:
                print(f"{member.id} is ready: {member.http}", flush=True)
            else:
                print(f"{member.id} waits: {'; '.join(member.missing.values())}", file=sys.stderr)
        await asyncio.sleep(WATCH_READY if member.ready else WATCH_STARTING)
