"""Delivery whose lives end between its two writes: forked, connected, and killed with -9 by itself."""

import asyncio
import multiprocessing
import os
import random
import signal
from collections.abc import Collection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from pipeline import logs
from pipeline.clock import WallClock
from pipeline.kafka import connect
from pipeline.load_settings import load_settings
from pipeline.log import Log, Outgoing
from pipeline.member import Member, new_epoch
from pipeline.topics import Topics
from stages.delivery.role import run
from tests.flow.installation import Installation

SPARE_ALL = "all"


class MortalLog:
    """The log of a process that dies when it is about to close the stream of somebody not spared."""

    def __init__(self, log: Log, tokens: str, spared: Collection[str], last: Connection) -> None:
        self._log, self._tokens, self._spared, self._last = log, tokens, spared, last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def writer(self, *arguments: Any, **options: Any) -> Any:
        return MortalWriter(await self._log.writer(*arguments, **options), self)

    def meet(self, record: Outgoing) -> None:
        request_id = (record.key or b"").decode()
        if record.topic != self._tokens or SPARE_ALL in self._spared or request_id in self._spared:
            return
        self._last.send(request_id)  # its result is acknowledged, its `end` is not sent
        os.kill(os.getpid(), signal.SIGKILL)


class MortalWriter:
    def __init__(self, writer: Any, log: MortalLog) -> None:
        self._writer, self._log = writer, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def send(self, record: Outgoing) -> Any:
        self._log.meet(record)
        return self._writer.send(record)


def life(
    bootstrap: str, environment: dict[str, str], spared: Collection[str], last: Connection
) -> None:
    asyncio.run(_live(bootstrap, environment, spared, last))


async def _live(
    bootstrap: str, environment: dict[str, str], spared: Collection[str], last: Connection
) -> None:
    flags = {"kafka.bootstrap": bootstrap, "kafka.static_members": True}
    settings = load_settings(flags, environment=environment)
    topics, clock = Topics.of(settings), WallClock()
    chance = random.Random(os.urandom(16))
    log: Any = MortalLog(
        await connect(settings.kafka, clock, client_id="delivery-1"), topics.tokens, spared, last
    )
    member = Member(
        id="delivery-1", role="delivery", epoch=new_epoch(chance), log=log, clock=clock,
        chance=chance, settings=settings, topics=topics,
    )  # fmt: skip
    logs.configure(member=member.id, role=member.role, epoch=member.epoch, clock=clock)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, member.draining.set)
    await run(member)
    await log.close()


class Lives:
    """One life after the other, each a fork of a process that has imported everything."""

    def __init__(self, headrace: Installation) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._headrace = headrace

    def until_killed(self, spared: Collection[str], limit: float = 60) -> str:
        """A life up to its kill; gives whose result it had written and whose stream it left open."""
        process, last = self.begin(spared)
        try:
            if not last.poll(limit):
                raise TimeoutError(f"delivery lived {limit:.0f} s and closed no new stream")
            request_id: str = last.recv()
            process.join(limit)
            assert process.exitcode == -signal.SIGKILL
            return request_id
        finally:
            process.kill()

    def begin(self, spared: Collection[str]) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=life,
            args=(self._headrace.kafka, self._headrace.environment, list(spared), theirs),
        )
        process.start()
        theirs.close()
        return process, ours
