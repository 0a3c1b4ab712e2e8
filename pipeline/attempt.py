"""One try of a stage at one record: what it yields is sent, and acked before the verdict counts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.codec import Unreadable, decode

from . import logs, metrics, tracing
from .log import (
    LogUnavailable,
    NotAuthorized,
    Outgoing,
    Placed,
    Record,
    RecordTooLarge,
    Writer,
)
from .member import Member
from .stage import Context, DeadLetter, Retry, Stage, Verdict
from .tracker import Tracker


@dataclass(slots=True, eq=False)
class InHand:
    """A record that was read and is not complete."""

    record: Record
    tracker: Tracker  # of the assignment under which it was read
    began: float  # loop time
    message: Any = None
    seen: Any = None
    fault: DeadLetter | None = None  # it cannot be read: the stage never sees it
    tries: int = 0
    exception: str = ""  # class of what the last try raised


class Sent:
    """The records that one try has yielded, and their acks."""

    def __init__(self, writer: Writer, span: tracing.Span, stage: str) -> None:
        self.writer = writer
        self.span = span
        self.stage = stage
        self.futures: list[asyncio.Future[Placed]] = []
        self.placed: list[Placed] = []

    def send(self, record: Outgoing) -> None:
        if self.span.traceparent and not any(name == "traceparent" for name, _ in record.headers):
            record = record._replace(headers=record.headers + tracing.headers_of(self.span))
        self.futures.append(self.writer.send(record))

    async def acked(self) -> list[Placed]:
        """Wait for all acks so far; raises the first failure."""
        if self.futures:
            loop = asyncio.get_running_loop()
            began = loop.time()
            self.placed += await acked(self.futures)
            self.futures.clear()
            metrics.send_seconds.labels(self.stage).observe(loop.time() - began)
        return self.placed


def decided(future: "asyncio.Future[Any]") -> "asyncio.Future[None]":
    """Done when `future` is, whatever became of it.

    A task that waits for it and is cancelled does not cancel what the writer still sends; asyncio.wait
    says the same of many at ten times the cost.
    """
    waiter: asyncio.Future[None] = future.get_loop().create_future()

    def wake(done: "asyncio.Future[Any]") -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(wake)
    return waiter


async def acked(futures: Sequence["asyncio.Future[Placed]"]) -> list[Placed]:
    """Where the records lie, in order. Raises the first failure once every one is decided."""
    for future in futures:
        if not future.done():
            await decided(future)
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]


def read(record: Record, kind: Any) -> Any:
    """`record` as the stage wants it: `kind` is a record type, a union, `Record`, or a function.

    Raises Unreadable.
    """
    if kind is Record:
        return record
    if isinstance(kind, type) or not callable(kind):
        return decode(record.value, kind)
    return kind(record)


async def attempt(
    stage: Stage, item: InHand, member: Member, writer: Writer, *, name: str, group: str
) -> Verdict | None:
    """Run the stage once. None: done. Raises NotAuthorized: no record can get through then.

    A log that is away is no fault of the record: that try does not count.
    """
    item.tries += 1
    item.exception = ""
    with tracing.of_record("process", item.record, group=group) as span:
        sent = Sent(writer, span, name)
        context = Context(
            record=item.record,
            clock=member.clock,
            chance=member.chance,
            tries=item.tries,
            traceparent=span.traceparent,
            tracestate=span.tracestate,
            seen=item.seen,
            placed=sent.placed,
            flush=sent.acked,
        )
        verdict: Verdict | None = None
        try:
            await writer.room()
            async for emit in stage(item.message, context):
                if isinstance(emit, Outgoing):
                    sent.send(emit)
                else:
                    verdict = emit
            await sent.acked()
        except NotAuthorized:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # not we were cancelled: the stage waited for something that was
            verdict = _failed(item, error, Retry("cancelled inside the stage"))
        except LogUnavailable as error:
            item.tries -= 1
            verdict = Retry(f"log_unavailable: {error}")
        except RecordTooLarge as error:
            verdict = _failed(item, error, DeadLetter("record_too_large", str(error)))
        except Unreadable as error:
            verdict = _failed(item, error, DeadLetter("unreadable", str(error)))
        except Exception as error:  # noqa: BLE001 - a stage is foreign code: its fault is a record's
            verdict = _failed(item, error, Retry(f"{type(error).__name__}: {error}"))
            logs.error("stage_error", **where(item.record), error=repr(error), tries=item.tries)
        if isinstance(verdict, Retry | DeadLetter):
            span.set(**{"error.type": verdict.reason[:100]})
        return verdict


def _failed(item: InHand, error: BaseException, verdict: Verdict) -> Verdict:
    item.exception = f"{type(error).__module__}.{type(error).__qualname__}"
    return verdict


def where(record: Record) -> dict[str, Any]:
    """Fields of a log line that name a record."""
    parent = next((value for name, value in record.headers if name == "traceparent"), b"")
    request = next((value for name, value in record.headers if name == "request-id"), None)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "request_id": None if request is None else request.decode("utf-8", "replace"),
        "traceparent": parent.decode("utf-8", "replace"),
    }
