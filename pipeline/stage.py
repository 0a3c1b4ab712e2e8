"""A stage is a callable, as an ASGI app is.

It gets a decoded record and its context, and yields records to send. What becomes of the record itself
is a value that it may yield last: nothing (done), `Retry`, `DeadLetter` or `Hold`. Everything else
(decode, trace, concurrency, tries, offsets, metrics, drain) is the runner's.

    async def shout(message: Greeting, context: Context) -> AsyncIterator[Emit]:
        yield Outgoing("loud", message.text.upper().encode(), key=context.record.key)
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from .log import Clock, Outgoing, Placed, Record


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now: parked, tried again after the runner's constant delay, three tries in all."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Never: goes to `hr.dlq.<stage>` byte for byte with this reason."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Done working, but the record stays incomplete until `Runner.release(at, offset)`."""


Verdict = Retry | DeadLetter | Hold
Emit = Outgoing | Verdict


async def _nothing_sent() -> None:
    """A stage that is called outside of a runner: what it yields is sent nowhere."""


@dataclass(slots=True)
class Context:
    """What the runner knows of the record in hand."""

    record: Record
    clock: Clock
    chance: random.Random
    tries: int = 1
    traceparent: str | None = None  # of the span the stage runs in: copy into records made
    tracestate: str | None = None
    seen: Any = None  # what the stage's `observe` returned for this record, in offset order
    placed: list[Placed] = field(default_factory=list)  # acks of what was yielded, after `flush`
    flush: Callable[[], Awaitable[Any]] = _nothing_sent  # all that was yielded so far is acked


Stage = Callable[[Any, Context], AsyncIterator[Emit]]
