"""One attempt at one request, as this worker holds it."""

import asyncio
from dataclasses import dataclass, field

from pipeline import tracing
from schemas.work import Order
from workers.endings import Ending
from workers.speaker import Speaker

Key = tuple[str, int]  # request id, attempt


@dataclass(slots=True, eq=False)
class Run:
    order: Order
    speaker: Speaker
    span: tracing.Span
    taken: int  # ms
    ending: "asyncio.Future[Ending]"
    first: dict[str, int] = field(default_factory=dict)  # of an earlier attempt: stage → ms
    computing: bool = False  # the engine has it

    @property
    def key(self) -> Key:
        return self.order.request_id, self.order.attempt

    def end(self, ending: Ending) -> None:
        """The first ending stays."""
        if not self.ending.done():
            self.ending.set_result(ending)
