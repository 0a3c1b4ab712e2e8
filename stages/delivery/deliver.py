"""Result → `end` → account → done, for each output that counts; a repeat writes what may be missing."""

import asyncio
from collections.abc import Callable

from pipeline import metrics, tracing
from pipeline.log import Outgoing, Placed, Record, Writer
from pipeline.member import Member
from schemas.codec import Headers, encode, headers_of, tag_of
from schemas.ledger import Output
from schemas.result import Result
from schemas.tokens import End

from .result import result_of


class Deliver:
    """Synchronous but for the acks: thousands may be under way without a task for each."""

    def __init__(self, member: Member, writer: Writer) -> None:
        self.member = member
        self.writer = writer
        # set to what no repeat can mend
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(
        self, output: Output, record: Record, *, known: bool, done: Callable[[], None]
    ) -> None:
        """Write all that belongs to an outcome. `known`: hr.results has it already, from an earlier
        life; it is not written again. `done` when everything is acked."""
        span = tracing.of_record("process", record, group=self.member.topics.group("delivery"))
        result = result_of(output, record.offset, record.timestamp)
        trace = tracing.headers_of(span)

        def ended() -> None:
            if not known:
                account(output)
            span.end()
            done()

        def close() -> None:
            self._send(self._end(output, result, trace), ended)

        if known:
            close()
        else:
            self._send(self._result(output, result, trace), close)

    def watch(self, future: "asyncio.Future[Placed]") -> bool:
        """Whether it was acked, once it is done; a record that can never be written ends us."""
        if not future.done():
            future.add_done_callback(self.watch)
            return False
        if future.cancelled():
            return False
        error = future.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
        return error is None

    def _send(self, record: Outgoing, then: Callable[[], None]) -> None:
        def acked(future: "asyncio.Future[Placed]") -> None:
            if self.watch(future):
                then()

        self.writer.send(record).add_done_callback(acked)

    def _result(self, output: Output, result: Result, trace: Headers) -> Outgoing:
        return _outgoing(self.member.topics.results, output, result, trace)

    def _end(self, output: Output, result: Result, trace: Headers) -> Outgoing:
        end = End(
            request_id=output.request_id,
            outcome=output.outcome,
            tokens=sum(len(said.ids) for said in output.choices),
            output=result.output,
        )
        return _outgoing(self.member.topics.tokens, output, end, trace)


def _outgoing(topic: str, output: Output, message: Result | End, trace: Headers) -> Outgoing:
    """One record about an outcome, in the encoding in which its request came."""
    headers = headers_of(
        tag_of(message),
        encoding=output.encoding,
        request_id=output.request_id,
        attempt=output.attempt,
        tenant=output.tenant,
        lane=output.lane,
        correlation_id=output.correlation_id,
    )
    value = encode(message, output.encoding)
    return Outgoing(topic, value, output.request_id.encode(), headers=headers + trace)


def account(output: Output) -> None:
    """Count the outcome, once in this life of this process."""
    kind = "chat" if output.kind == "chat" else "text_completion"
    model = metrics.capped("model", output.model or "")
    metrics.outcomes.labels(output.outcome, output.lane).inc()
    metrics.request_duration.labels(kind, model).observe(
        max(0, output.finished - output.accepted) / 1000
    )
    if output.usage.total_tokens:
        metrics.token_usage.labels(kind, model, "input").observe(output.usage.prompt_tokens)
        metrics.token_usage.labels(kind, model, "output").observe(output.usage.completion_tokens)
