"""One life of one process: who it is, and what it stands on. Everything is injected."""

import asyncio
import random
from dataclasses import dataclass, field

from .log import Clock, Log
from .settings import Settings
from .topics import Topics


@dataclass(slots=True)
class Member:
    """Roles are `async def run(member: Member) -> None`: they announce readiness through `ready`, end
    when `draining` is set and their work is finished or handed over, and raise to die."""

    id: str  # stable over restarts: `worker-1`
    role: str
    epoch: str  # this life
    log: Log
    clock: Clock
    chance: random.Random
    settings: Settings
    topics: Topics
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    missing: dict[str, str] = field(default_factory=lambda: {"start": "starting"})
    # ^ what /readyz names: key → why; ready when empty
    http: str | None = None  # URL of its health endpoint or edge

    @property
    def ready(self) -> bool:
        return not self.missing and not self.draining.is_set()


class Fatal(Exception):
    """What a role raises to end its process with an exit code of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def new_epoch(chance: random.Random) -> str:
    """Eight random bytes: two lives of one member never share it."""
    return f"{chance.getrandbits(64):016x}"
