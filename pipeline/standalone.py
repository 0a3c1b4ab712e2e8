"""A stage of your own as a process of its own; docs/write-a-stage.md shows it."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from typing import Any

from . import logs, tracing
from .clock import WallClock
from .declare import declare_specs
from .health import serve_health
from .load_settings import load_settings
from .log import Log, TopicSpec
from .member import Member, new_epoch
from .runner import Runner
from .settings import Settings
from .stage import Stage
from .topics import Topics


async def run_stage(
    stage: Stage,
    *,
    topics: Sequence[str],
    kind: Any,
    bootstrap: str | None = None,
    name: str | None = None,
    id: str | None = None,
    declare: Sequence[TopicSpec] = (),
    health_port: int = 0,
    settings: Settings | None = None,
    log: Log | None = None,
    draining: asyncio.Event | None = None,
    **options: Any,
) -> None:
    """Run `stage` until SIGTERM or Ctrl-C: then it finishes what it has in hand, commits and returns.

    `id`, the same in every life and another for each copy, lets a process that was killed rejoin its group
    at once; without one the group waits for it for 45 s.
    `settings`: where none are given, those of the environment and `headrace.toml`; `bootstrap` goes before.
    `name` (the function's own name) is its consumer group and, behind `hr.dlq.`, its dead-letter topic.
    `declare` names the topics to make where they are missing. `options` go to the Runner
    (`concurrency`, `observe`, `on_dead` …). `log` and `draining` are for tests: a log that is already
    connected, and an event instead of a signal. Raises what ends a process: restart it.
    """
    name = name or str(getattr(stage, "__name__", type(stage).__name__))
    settings = settings or load_settings()
    settings.kafka.bootstrap = bootstrap or settings.kafka.bootstrap
    settings.kafka.static_members = id is not None
    clock = WallClock()
    member_id = id or f"{name}-{os.getpid()}"
    if log is None:
        from .kafka import connect

        log = await connect(settings.kafka, clock, client_id=member_id)
    chance = random.Random(int.from_bytes(os.urandom(16), "big"))
    member = Member(
        id=member_id,
        role=name,
        epoch=new_epoch(chance),
        log=log,
        clock=log.clock,
        chance=chance,
        settings=settings,
        topics=Topics.of(settings),
        draining=draining or _drain_on_signals(),
    )
    if draining is None:
        logs.configure(member=member.id, role=name, epoch=member.epoch, clock=clock)
    tracing.configure(os.environ, role=name, member=member_id)
    try:
        await declare_specs(log, [*declare, member.topics.dead_spec(name)])
        await serve_health(member, settings.host, health_port)
        member.missing.clear()
        await Runner(
            member, stage, topics=topics, group=options.pop("group", name), kind=kind, **options
        ).run()
    finally:
        await log.close()
        tracing.stop()


def _drain_on_signals() -> asyncio.Event:
    draining = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, draining.set)
    return draining
