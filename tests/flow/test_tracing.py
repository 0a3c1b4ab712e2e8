"""One trace from the way in, through every stage, to the last event."""

import json
import uuid

from confluent_kafka import Producer

from tests.flow.installation import Installation
from tests.flow.log_reading import first_result
from tests.flow.otlp_sink import Sink, Span, stages_of
from tests.flow.streams import all_frames, open_stream
from tests.flow.tenants import bearer

STAGES = {"edge", "ingress", "orchestration", "worker", "delivery"}


def unbroken(found: list[Span], trace_id: str, stages: set[str], root: str) -> bool:
    """Every stage is in the trace, the device's steps too, and each span hangs below another one."""
    own = [span for span in found if span.trace_id == trace_id]
    ids = {span.span_id for span in own} | {root}
    generated = any(span.name == "generate" for span in own)
    return (
        stages <= stages_of(found, trace_id)
        and generated
        and all(span.parent in ids for span in own)
    )


def test_an_http_request_is_one_trace_through_every_stage(narrow: Installation, sink: Sink) -> None:
    trace_id = uuid.uuid4().hex
    body = {"model": "null", "messages": [{"role": "user", "content": "secret words"}],
            "max_tokens": 4, "stream": True}  # fmt: skip
    headers = {**bearer("alice"), "traceparent": f"00-{trace_id}-{'1' * 16}-01"}
    _, answer = open_stream(narrow.url(), "/v1/chat/completions", body, headers)
    assert answer.status == 200
    all_frames(answer)
    spans = sink.wait_for(lambda found: unbroken(found, trace_id, STAGES, "1" * 16))
    assert all("secret words" not in str(span.attributes) for span in spans)


def test_a_published_record_is_one_trace_through_every_stage_behind_the_topic(
    narrow: Installation, sink: Sink
) -> None:
    trace_id, mine = uuid.uuid4().hex, uuid.uuid4().hex
    producer = Producer({"bootstrap.servers": narrow.kafka, "acks": "all"})
    headers = [
        ("traceparent", f"00-{trace_id}-{'2' * 16}-01".encode()),
        ("correlation-id", mine.encode()),
    ]
    body = {"model": "null", "prompt": "go", "max_tokens": 3}
    producer.produce(narrow.topic("requests"), json.dumps(body).encode(), headers=headers)
    assert producer.flush(30) == 0
    result = first_result(narrow, mine)
    sink.wait_for(lambda found: unbroken(found, trace_id, STAGES - {"edge"}, "2" * 16))
    timings = result["timings"]
    for name in ("ingress", "queue", "dispatch", "prefill", "first_token", "decode", "delivery"):
        assert timings[name] is not None and timings[name] >= 0, timings
