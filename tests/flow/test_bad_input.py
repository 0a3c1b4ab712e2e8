"""Bad input gets a clear answer over HTTP and on the topic, and never delays its neighbour."""

import json
import subprocess
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas import ids
from tests.flow.installation import MODEL, Installation
from tests.flow.log_reading import first_result, header, records
from tests.flow.streams import post

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{not json", 400, "invalid_json", None),
        (b'"text"', 400, "invalid_type", None),
        ({"model": MODEL}, 400, "missing_parameter", "messages"),
        ({**CHAT, "messages": [{"role": "wizard", "content": "Hi"}]}, 400, None, "messages[0].role"),
        ({**CHAT, "messages": [{"role": "user"}]}, 400, None, "messages[0].content"),
        ({**CHAT, "temperature": 3}, 400, "invalid_value", "temperature"),
        ({**CHAT, "top_p": 0}, 400, "invalid_value", "top_p"),
        ({**CHAT, "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({**CHAT, "max_tokens": "many"}, 400, "invalid_type", "max_tokens"),
        ({**CHAT, "temprature": 1}, 400, "unsupported_parameter", "temprature"),
        ({**CHAT, "max_tokens": 9000}, 400, "context_length_exceeded", "max_tokens"),
        ({**CHAT, "model": "nobody"}, 404, "model_not_found", "model"),
        ({**CHAT, "messages": [{"role": "user", "content": "x" * 300_000}]}, 413, "request_too_large", None),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_is_refused_with_the_field(
    headrace: Installation, body: Any, status: int, code: str | None, param: str | None
) -> None:
    got, headers, answer = post(headrace.url(), "/v1/chat/completions", body)
    assert got == status, answer
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert headers["headrace-reason"] == error["code"]
    if code:
        assert error["code"] == code
    if param:
        assert error["param"] == param


def publish(bootstrap: str, value: bytes | None, headers: dict[str, str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("hr.requests", value, headers=[(k, v.encode()) for k, v in headers.items()])
    assert producer.flush(30) == 0


FAR_ID = "req_01870000-0000-7000-8000-000000000001"  # born in March 2023


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (b"\xff\xfe\x00garbage", {}),
        (b"{", {}),
        (None, {}),
        (json.dumps({**CHAT, "type": "request/9"}).encode(), {}),
        (json.dumps({**CHAT, "type": "lease/1"}).encode(), {}),
        (json.dumps({**CHAT, "id": "mine"}).encode(), {}),
        (json.dumps({**CHAT, "id": FAR_ID}).encode(), {}),
        (json.dumps({**CHAT, "messages": [{"role": "user", "content": "x" * 300_000}]}).encode(), {}),
    ],
    ids=["bytes", "cut", "null", "major", "tag", "not-an-id", "far-id", "large"],
)  # fmt: skip
def test_a_record_against_the_contract_is_kept_byte_for_byte_and_ends_refused(
    headrace: Installation, value: bytes | None, more: dict[str, str]
) -> None:
    mine = uuid.uuid4().hex
    publish(headrace.kafka, value, {"correlation-id": mine, **more})
    good = uuid.uuid4().hex
    body = {**CHAT, "max_tokens": 2, "temperature": 0}
    publish(headrace.kafka, json.dumps(body).encode(), {"correlation-id": good})
    assert first_result(headrace.kafka, good)["outcome"] == "completed"  # the next is not delayed
    refused = first_result(headrace.kafka, mine)
    assert refused["outcome"] == "refused" and refused["error"]["code"] == "invalid_record"
    letter = next(
        m for m in records(headrace.kafka, "hr.dlq.ingress") if header(m, "correlation-id") == mine
    )
    assert letter.value() == value
    assert header(letter, "__dlq.errors.topic") == "hr.requests"
    shown = headrace.call("dlq", "show", f"ingress/{letter.offset()}")
    assert shown.returncode == 0 and "hr.requests" in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**CHAT, "model": "nobody"}, "model_not_found"),
        ({**CHAT, "max_tokens": 9000}, "context_length_exceeded"),
        ({**CHAT, "temprature": 1}, "unsupported_parameter"),
    ],
)
def test_a_readable_record_that_cannot_be_done_ends_refused_without_a_dead_letter(
    headrace: Installation, body: dict[str, Any], code: str
) -> None:
    mine = uuid.uuid4().hex
    publish(headrace.kafka, json.dumps(body).encode(), {"correlation-id": mine})
    refused = first_result(headrace.kafka, mine)
    assert refused["outcome"] == "refused" and refused["error"]["code"] == code


def test_another_tenants_id_is_a_conflict(headrace: Installation) -> None:
    import random
    import time

    mine = ids.mint(time.time_ns() // 1_000_000, random.Random())
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    body = json.dumps({**CHAT, "id": mine, "max_tokens": 2}).encode()
    publish(headrace.kafka, body, {"correlation-id": first, "tenant": "a"})
    assert first_result(headrace.kafka, first)["outcome"] == "completed"
    publish(headrace.kafka, body, {"correlation-id": second, "tenant": "b"})
    refused = first_result(headrace.kafka, second)
    assert refused["outcome"] == "refused" and refused["id"] != mine


def test_a_deadline_that_passed_in_the_queue_expires_without_device_time(
    headrace: Installation,
) -> None:
    mine = uuid.uuid4().hex
    publish(headrace.kafka, json.dumps(CHAT).encode(), {"correlation-id": mine, "deadline": "1000"})
    expired = first_result(headrace.kafka, mine)
    assert expired["outcome"] in ("expired", "refused")
    assert expired["usage"]["completion_tokens"] == 0


def test_help_names_every_command_and_an_unknown_one_is_a_usage_error(
    headrace: Installation,
) -> None:
    assert headrace.call("--help").returncode == 0
    done: subprocess.CompletedProcess[str] = headrace.call("frobnicate")
    assert done.returncode == 2
