"""One fault under load: what was in flight when it came, and what was wrong afterwards."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.load import Load
from tests.flow.installation import Installation
from tests.pipeline.brokers import ApacheKafka

READY_LIMIT = 150.0  # s; a crash loop's longest back-off and a group's session timeout fit in


@dataclass
class Hit:
    at: float  # monotonic
    member: str
    streams: int  # in flight at that moment
    published: int


@dataclass
class Scene:
    fleet: Installation
    load: Load
    cluster: ApacheKafka | None
    seconds: float  # how long a fault goes on that repeats itself
    hits: list[Hit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def members(self) -> dict[str, dict[str, Any]]:
        return {role["id"]: role for role in self.fleet.state()["roles"]}

    def present(self) -> list[str]:
        """Members whose process runs."""
        return [name for name, m in self.members().items() if m["state"] in ("starting", "ready")]

    def mark(self, member: str = "") -> None:
        """A fault comes now: count what it meets."""
        self.hits.append(Hit(time.monotonic(), member, *self.load.in_flight()))

    async def hit(self, member: str, number: int) -> int:
        """Signal a member's process; its pid."""
        pid = int(self.members()[member]["pid"])
        self.mark(member)
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it had just died of the one before
            self.hits.pop()
        return pid

    async def until(self, holds: Callable[[], bool]) -> None:
        """Raises TimeoutError."""
        async with asyncio.timeout(READY_LIMIT):
            while not holds():  # noqa: ASYNC110 - what clients hear has many sources
                await asyncio.sleep(0.1)

    async def until_at_work(self) -> None:
        """Half as many streams as there should be were heard from since now. Raises TimeoutError."""
        since, enough = time.monotonic(), self.load.shape.streams / 2
        await self.until(
            lambda: sum(bool(s.signs) and s.signs[-1] > since for s in self.load.streams) >= enough
        )

    async def until_served(self) -> None:
        """A stream that was begun after this speaks. Raises TimeoutError."""
        since = time.monotonic()
        await self.until(lambda: any(s.frames and s.signs[0] > since for s in self.load.streams))

    async def until_ready(self, member: str, other_than: int | None = None) -> None:
        await asyncio.to_thread(
            self.fleet.until_ready, member, other_than=other_than, limit=READY_LIMIT
        )
