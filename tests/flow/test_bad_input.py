"""Bad input gets a clear answer over HTTP and on the topic, and never delays its neighbour."""

import json
import random
import time
import uuid
from typing import Any

import pytest

from schemas import ids
from tests.flow.installation import MODEL, Installation
from tests.flow.log_reading import first_result, header, publish, records
from tests.flow.streams import post

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{not json", 400, "invalid_json", None),
        (b'"text"', 400, "invalid_json", None),
        ({"model": MODEL}, 400, "missing_parameter", "messages"),
        ({**CHAT, "messages": [{"role": "wizard", "content": "Hi"}]}, 400, None, "messages[0].role"),
        ({**CHAT, "messages": [{"role": "user"}]}, 400, None, "messages[0].content"),
        ({**CHAT, "temperature": 3}, 400, "invalid_value", "temperature"),
        ({**CHAT, "top_p": 0}, 400, "invalid_value", "top_p"),
        ({**CHAT, "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({**CHAT, "max_tokens": "many"}, 400, "invalid_type", "max_tokens"),
        ({**CHAT, "temprature": 1}, 400, "unsupported_parameter", "temprature"),
        ({**CHAT, "max_tokens": 9000}, 400, "context_length_exceeded", "messages"),
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
    publish(headrace, value, {"correlation-id": mine, **more})
    good = uuid.uuid4().hex
    body = {**CHAT, "max_tokens": 2, "temperature": 0}
    publish(headrace, json.dumps(body).encode(), {"correlation-id": good})
    assert first_result(headrace, good)["outcome"] == "completed"  # the next is not delayed
    refused = first_result(headrace, mine)
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
    publish(headrace, json.dumps(body).encode(), {"correlation-id": mine})
    refused = first_result(headrace, mine)
    assert refused["outcome"] == "refused" and refused["error"]["code"] == code


def test_an_id_that_another_tenant_used_is_a_conflict(headrace: Installation) -> None:
    mine = ids.mint(time.time_ns() // 1_000_000, random.Random())
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    body = json.dumps({**CHAT, "id": mine, "max_tokens": 2}).encode()
    publish(headrace, body, {"correlation-id": first, "tenant": "a"})
    assert first_result(headrace, first)["outcome"] == "completed"
    publish(headrace, body, {"correlation-id": second, "tenant": "b"})
    refused = first_result(headrace, second)
    assert refused["outcome"] == "refused" and refused["id"] != mine
    assert refused["error"]["code"] == "invalid_record"
    letters = records(headrace.kafka, "hr.dlq.ingress")
    letter = next(m for m in letters if header(m, "correlation-id") == second)
    assert letter.value() == body
