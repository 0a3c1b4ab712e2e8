"""An OTLP/HTTP sink: collects spans as any backend would."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Span:
    trace_id: str
    span_id: str
    parent: str
    name: str
    service: str
    attributes: dict[str, str]


@dataclass
class Sink:
    url: str = ""
    spans: list[Span] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, found: Any, limit: float = 60) -> list[Span]:
        """The spans once `found(spans)` is true. Raises TimeoutError with what is there."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: found(self.spans), limit):
                raise TimeoutError(f"only {[(s.service, s.name) for s in self.spans]}")
            return list(self.spans)

    def take(self, request: Any) -> None:
        with self.arrived:
            for resource in request.resource_spans:
                named = {a.key: a.value.string_value for a in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self.spans += [
                        Span(
                            span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name,
                            named.get("service.name", ""),
                            {a.key: a.value.string_value for a in span.attributes},
                        )
                        for span in scope.spans
                    ]  # fmt: skip
            self.arrived.notify_all()


def stages_of(spans: list[Span], trace_id: str) -> set[str]:
    """The stages that have a span in a trace."""
    return {s.service.removeprefix("headrace-") for s in spans if s.trace_id == trace_id}


@contextmanager
def otlp_sink() -> Iterator[Sink]:
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                request = ExportTraceServiceRequest()
                request.ParseFromString(body)
                sink.take(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: a test's output is its failures."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join(10)
