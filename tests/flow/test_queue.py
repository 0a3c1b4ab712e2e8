"""A worker that is busy: what waits behind it is measured, refused in time, and never runs too late."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.flow.installation import Installation
from tests.flow.log_reading import first_result, publish
from tests.flow.otlp_sink import Sink, stages_of
from tests.flow.streams import delete, get, post
from tests.flow.tenants import bearer
from tests.flow.waiting import until

ALICE = bearer("alice")
LONG = {"model": "null", "prompt": "Go on", "max_tokens": 2000}  # 100 s at 20 tokens/s


def submit(narrow: Installation, **more: Any) -> str:
    status, _, body = post(narrow.url(), "/v1/requests", {**LONG, **more}, ALICE)
    assert status == 202, body
    return str(body["id"])


def stands(narrow: Installation, request_id: str) -> dict[str, Any]:
    status, _, body = get(narrow.url(), f"/v1/requests/{request_id}", ALICE)
    assert status == 200, body
    found: dict[str, Any] = body
    return found


@contextmanager
def occupied(narrow: Installation) -> Iterator[None]:
    """Both slots of the only worker are taken."""
    taken = [submit(narrow, seed=number) for number in (1, 2)]
    try:
        until(lambda: {stands(narrow, each)["state"] for each in taken} == {"running"})
        yield
    finally:
        for each in taken:
            delete(narrow.url(), f"/v1/requests/{each}", ALICE)
        until(lambda: {stands(narrow, each)["state"] for each in taken} == {"cancelled"})


def test_a_deadline_that_passes_in_the_queue_costs_no_device_time(
    narrow: Installation, sink: Sink
) -> None:
    mine = uuid.uuid4().hex
    with occupied(narrow):
        soon = str(time.time_ns() // 1_000_000 + 2_000)
        trace_id = uuid.uuid4().hex
        trace = {"traceparent": f"00-{trace_id}-{'3' * 16}-01"}
        headers = {"correlation-id": mine, "deadline": soon, **trace}
        publish(narrow, json.dumps(LONG).encode(), headers)
        timed = submit(narrow, timeout=2)
        expired = first_result(narrow, mine)
        assert expired["outcome"] == "expired"
        assert expired["usage"]["completion_tokens"] == 0
        assert expired["timings"]["prefill"] is None, "it was computed"
        without = {"ingress", "orchestration", "delivery"}
        sink.wait_for(lambda found: without <= stages_of(found, trace_id))
        standing = until(lambda: (found := stands(narrow, timed))["outcome"] and found)
        assert standing["state"] == "expired" and standing["output_tokens"] == 0


def test_a_lane_over_its_target_says_when_to_come_back(narrow: Installation) -> None:
    waiting: list[str] = []
    with occupied(narrow):
        for number in range(20):
            body = {**LONG, "seed": number, "service_tier": "priority"}
            status, headers, answer = post(narrow.url(), "/v1/requests", body, ALICE)
            if status != 202:
                break
            waiting.append(answer["id"])
        assert status == 429, f"20 requests wait for two slots: {answer}"
        assert answer["error"]["code"] == "lane_overloaded"
        assert answer["error"]["type"] == "rate_limit_error"
        assert int(headers["retry-after"]) >= 1
        patient = submit(narrow, service_tier="flex")  # its lane may hold ten minutes
        for each in (*waiting, patient):
            status, _, body = delete(narrow.url(), f"/v1/requests/{each}", ALICE)
            assert status in (200, 202), body
        for each in (*waiting, patient):
            until(lambda each=each: stands(narrow, each)["state"] == "cancelled")
    again = {**LONG, "max_tokens": 2, "service_tier": "priority"}
    until(lambda: post(narrow.url(), "/v1/completions", again, ALICE)[0] == 200)
