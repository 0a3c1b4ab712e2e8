"""One trace through every record: as it came while tracing is off, with our spans while it is on."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline import tracing
from pipeline.log import Record

TRACE, PARENT = "a" * 32, "b" * 16
HEADERS = (
    ("traceparent", f"00-{TRACE}-{PARENT}-01".encode()),
    ("tracestate", b"vendor=1"),
    ("request-id", b"req_1"),
)
RECORD = Record("hr.requests", 3, 7, 0, None, b"secret words", HEADERS)


class Collected:
    """An exporter that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def export(self, spans: Sequence[Any]) -> Any:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


@pytest.fixture
def collected() -> Iterator[Collected]:
    exporter = Collected()
    tracing.start(exporter, role="ingress", member="ingress-1")
    yield exporter
    tracing.stop()


def test_off_it_passes_the_trace_on_unchanged() -> None:
    assert not tracing.on()
    with tracing.of_record("process", RECORD) as span:
        assert tracing.headers_of(span) == HEADERS[:2]
    with tracing.span("anything") as span:
        span.set(a=1)
        span.event("b")
        assert tracing.headers_of(span) == ()


def test_off_it_does_not_even_import_the_sdk() -> None:
    code = (
        "import sys; from pipeline import tracing, runner;"
        "assert not tracing.configure({}, role='r', member='m');"
        "tracing.span('x').end();"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_spans_follow_the_messaging_conventions_and_their_parents(collected: Collected) -> None:
    with tracing.of_record("process", RECORD, group="hr.ingress") as outer:
        headers = tracing.headers_of(outer)
        with tracing.span("send hr.ready.gold", "producer", headers) as inner:
            inner.event("sent", offset=1)
    tracing.stop()
    send, process = collected.spans
    assert process.name == "process hr.requests"
    assert process.kind.name == "CONSUMER"
    assert process.attributes["messaging.system"] == "kafka"
    assert process.attributes["messaging.destination.name"] == "hr.requests"
    assert process.attributes["messaging.kafka.offset"] == 7
    assert process.attributes["messaging.consumer.group.name"] == "hr.ingress"
    assert process.attributes["messaging.message.conversation_id"] == "req_1"
    assert f"{process.context.trace_id:032x}" == f"{send.context.trace_id:032x}" == TRACE
    assert f"{process.parent.span_id:016x}" == PARENT
    assert send.parent.span_id == process.context.span_id
    assert outer.tracestate == "vendor=1"
    assert "secret" not in process.to_json() + send.to_json()


def test_a_fault_is_marked_and_a_span_may_end_elsewhere_and_twice(collected: Collected) -> None:
    span = tracing.span("work", "internal")
    span.end(ValueError("bad"))
    span.end()
    tracing.stop()
    (ended,) = collected.spans
    assert ended.status.status_code.name == "ERROR"
    assert ended.attributes["error.type"] == "ValueError"


def test_a_garbled_traceparent_begins_a_new_trace(collected: Collected) -> None:
    with tracing.span("work", "server", "not-a-trace") as span:
        trace_id, span_id = tracing.ids_of(span.traceparent)
    assert trace_id is not None
    assert len(trace_id) == 32
    assert span_id is not None


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_only_the_environment_turns_it_on(environ: dict[str, str], on: bool) -> None:
    try:
        assert tracing.configure(environ, role="edge", member="edge-1") is on
        assert tracing.on() is on
    finally:
        tracing.stop()
