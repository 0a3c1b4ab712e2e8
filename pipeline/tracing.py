"""W3C trace context through every stage.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER is set: then `traceparent` is passed on
unchanged and a span costs the making of one small object. On: opentelemetry-sdk, http/protobuf.
Names follow OpenTelemetry's messaging conventions: `process hr.requests`, `send hr.ready.gold`.
"""

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal

from schemas.codec import text_header

from .log import Record

STOP = 3.0  # s: a collector that is away must not hold a drain up
Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | int | float | bool

_tracer: Any = None  # opentelemetry.trace.Tracer while tracing is on
_provider: Any = None


class Span:
    """One unit of work. Use it in a `with`, or call `end` where the work ends elsewhere.

    `traceparent` and `tracestate` go into the headers of the records made in it.
    """

    __slots__ = ("traceparent", "tracestate")

    def __init__(self, traceparent: str | None, tracestate: str | None = None) -> None:
        self.traceparent = traceparent
        self.tracestate = tracestate

    def set(self, **attributes: Value) -> None:
        """Add attributes; never text of a prompt or of an answer."""

    def event(self, name: str, **attributes: Value) -> None:
        """Something that happened at one moment."""

    def end(self, error: BaseException | str | None = None) -> None:
        """The work is over; a second call changes nothing."""

    def __enter__(self) -> "Span":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(error)


class _Recorded(Span):
    """A span that is exported."""

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        context = span.get_span_context()
        super().__init__(
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}",
            context.trace_state.to_header() or None,
        )
        self._span = span

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(attributes)

    def event(self, name: str, **attributes: Value) -> None:
        self._span.add_event(name, attributes)

    def end(self, error: BaseException | str | None = None) -> None:
        if not self._span.is_recording():
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            name = error if isinstance(error, str) else type(error).__name__
            self._span.set_attribute("error.type", name)
            self._span.set_status(Status(StatusCode.ERROR, str(error)[:200]))
        self._span.end()


def on() -> bool:
    return _tracer is not None


def span(
    name: str,
    kind: Kind = "internal",
    parent: str | Iterable[tuple[str, bytes]] | None = None,
    tracestate: str | None = None,
    **attributes: Value,
) -> Span:
    """A span below `parent`: a traceparent, or the headers of the record that caused the work."""
    if parent is None or isinstance(parent, str):
        traceparent = parent
    else:
        traceparent, tracestate = _context_in(parent)
    if _tracer is None:
        return Span(traceparent, tracestate)
    from opentelemetry.trace import SpanKind

    context = _context(traceparent, tracestate)
    started = _tracer.start_span(name, context, SpanKind[kind.upper()], attributes or None)
    return _Recorded(started)


def of_record(
    operation: Literal["process", "send"], record: Record, *, group: str = "", **attributes: Value
) -> Span:
    """The span of one record in hand, with the attributes of the messaging conventions."""
    if _tracer is None:
        return Span(*_context_in(record.headers))
    known: dict[str, Value] = {
        "messaging.system": "kafka",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if group:
        known["messaging.consumer.group.name"] = group
    if (request_id := text_header(record.headers, "request-id")) is not None:
        known["messaging.message.conversation_id"] = request_id
    kind: Kind = "consumer" if operation == "process" else "producer"
    name = f"{operation} {record.topic}"
    return span(name, kind, record.headers, None, **known, **attributes)


def ids_of(traceparent: str | None) -> tuple[str | None, str | None]:
    """Trace id and span id of a traceparent, (None, None) if it is none."""
    parts = (traceparent or "").split("-")
    if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None, None
    return parts[1], parts[2]


def headers_of(span: Span) -> tuple[tuple[str, bytes], ...]:
    """The trace headers of a record made in `span`."""
    if span.traceparent is None and span.tracestate is None:
        return ()
    pairs = (("traceparent", span.traceparent), ("tracestate", span.tracestate))
    return tuple((name, value.encode()) for name, value in pairs if value is not None)


def passed_on(headers: Iterable[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """The trace headers of a record, for one that is made because of it without a span of its own."""
    return tuple(pair for pair in headers if pair[0] in ("traceparent", "tracestate"))


def _context_in(headers: Iterable[tuple[str, bytes]]) -> tuple[str | None, str | None]:
    """(traceparent, tracestate) of a record, in one walk."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == "traceparent" or name == "tracestate":
            found[name] = value.decode("utf-8", "replace")
    return found.get("traceparent"), found.get("tracestate")


def _context(traceparent: str | None, tracestate: str | None) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    given = {name: value for name, value in carrier.items() if value is not None}
    return TraceContextTextMapPropagator().extract(given)


def configure(environ: Mapping[str, str], *, role: str, member: str) -> bool:
    """Turn tracing on if the environment asks for it; says whether it is on.

    OTEL_TRACES_EXPORTER: `otlp` (also when only an endpoint is set), `console`, or `none`.
    """
    exporter = environ.get("OTEL_TRACES_EXPORTER", "")
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") or environ.get(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""
    )
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED") == "true":
        return False
    if not exporter and not endpoint:
        return False
    if exporter == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        start(ConsoleSpanExporter(), role=role, member=member)
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        start(OTLPSpanExporter(), role=role, member=member)
    return True


def start(exporter: Any, *, role: str, member: str) -> None:
    """Export every span from now on through `exporter`, batched by the SDK."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    global _tracer, _provider
    stop()
    names = {"service.name": f"headrace-{role}", "service.instance.id": member}
    _provider = TracerProvider(resource=Resource.create(names))
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("headrace")


def stop() -> None:
    """Export what is left, for STOP seconds at most, and turn tracing off."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        # the SDK's own shutdown tries for as long as an exporter retries
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(STOP)
