"""Every member writes what and how it is to `hr.status`; `Members` reads everybody's."""

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from schemas.codec import encode, headers_of, tag_of
from schemas.status import Status

from . import logs
from .log import LogUnavailable, Outgoing, Writer
from .member import Member
from .members import Members, Seen

__all__ = ["VERSION", "Members", "Presence", "Seen"]

GAP = 0.02  # s between two statuses: announcements in a burst share one

try:
    VERSION = version("headrace")
except PackageNotFoundError:  # run from a checkout that is not installed
    VERSION = "0"


class Presence:
    """Writes this member's status: every heartbeat, and at once after `announce`.

    At most one status is on its way: while the broker is away they do not pile up.
    `figures` gives the fields of `Status` that are the role's own (`worker=…`, `slots=…`, `state=…`).
    """

    def __init__(
        self, member: Member, writer: Writer, figures: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        beat = member.settings.worker.heartbeat
        self.member = member
        self.writer = writer
        self.figures = figures
        self.every = beat if member.role == "worker" else 2 * beat  # s; only workers hold credits
        self.counter = 0
        self.last_ack = asyncio.get_running_loop().time()  # loop time of the last acked status
        self._wake = asyncio.Event()
        self._left = False

    def announce(self) -> None:
        """Something changed that others wait for: write now instead of at the next beat."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled or left. Raises what the writer raises: without a status nobody gives us
        work."""
        loop = asyncio.get_running_loop()
        while not self._left:
            self._wake.clear()
            written = loop.time()
            await self._write({})
            try:
                async with asyncio.timeout_at(written + self.every):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(written + GAP - loop.time())

    async def leave(self, limit: float = 2.0) -> None:
        """The last status of this life, so that nobody has to count silence."""
        self._left = True
        self._wake.set()
        try:
            async with asyncio.timeout(limit):
                await self._write({"state": "stopped"})
        except (TimeoutError, LogUnavailable) as error:
            logs.info("leave_unacked", member=self.member.id, error=repr(error))

    async def _write(self, last: Mapping[str, Any]) -> None:
        self.counter += 1
        member = self.member
        known: dict[str, Any] = {"state": self._state(), "version": VERSION, "http": member.http}
        status = Status(
            member=member.id,
            role=member.role,
            epoch=member.epoch,
            counter=self.counter,
            time=member.clock.ms(),
            **{**known, **self.figures(), **last},
        )
        record = Outgoing(
            member.topics.status,
            encode(status),
            key=member.id.encode(),
            partition=0,
            headers=headers_of(tag_of(status)),
        )
        await self.writer.send(record)
        self.last_ack = asyncio.get_running_loop().time()

    def _state(self) -> str:
        if self.member.draining.is_set():
            return "draining"
        return "ready" if self.member.ready else "starting"
