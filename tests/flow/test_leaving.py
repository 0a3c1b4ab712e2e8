"""A client goes away: a stream is cancelled after the grace, a whole answer at once, the rest never."""

import http.client
import json
import socket
import uuid
from typing import Any
from urllib.parse import urlsplit

from tests.flow.installation import MODEL, Installation
from tests.flow.log_reading import first_result
from tests.flow.streams import get, metric, open_stream, post, read_frame
from tests.flow.waiting import until

LONG = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a long story"}],
        "max_tokens": 4000, "ignore_eos": True, "temperature": 0}  # fmt: skip


def leave(connection: http.client.HTTPConnection) -> None:
    """As a client that is gone: its end of the connection is closed."""
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()


def outcome(headrace: Installation, request_id: str) -> dict[str, Any]:
    def ended() -> Any:
        return get(headrace.url(), f"/v1/requests/{request_id}")[2]["outcome"]

    found: dict[str, Any] = until(ended, 120)
    return found


def check_device_is_free(headrace: Installation) -> None:
    worker = str(headrace.member("worker-1")["metrics"])
    until(lambda: metric(worker, "headrace_requests_running") == 0)
    until(lambda: metric(worker, 'headrace_kv_blocks{state="used"}') == 0)


def test_a_stream_that_is_left_is_cancelled_after_the_grace(headrace: Installation) -> None:
    connection, answer = open_stream(
        headrace.url(), "/v1/chat/completions", {**LONG, "stream": True}
    )
    request_id = answer.getheader("Headrace-Request-Id") or ""
    for _ in range(3):
        assert read_frame(answer) is not None
    leave(connection)
    ended = outcome(headrace, request_id)
    assert ended["outcome"] == "cancelled"
    assert 0 < ended["usage"]["completion_tokens"] < 4000
    check_device_is_free(headrace)


def test_a_whole_answer_that_nobody_waits_for_is_cancelled_at_once(headrace: Installation) -> None:
    mine = uuid.uuid4().hex
    connection = http.client.HTTPConnection(urlsplit(headrace.url()).netloc, timeout=60)
    kinds = {"Content-Type": "application/json", "X-Request-ID": mine}
    connection.request("POST", "/v1/chat/completions", json.dumps(LONG), kinds)
    worker = str(headrace.member("worker-1")["metrics"])
    until(lambda: metric(worker, "headrace_requests_running") == 1)
    leave(connection)
    assert first_result(headrace, mine)["outcome"] == "cancelled"
    check_device_is_free(headrace)


def test_who_only_watches_a_native_request_may_leave(headrace: Installation) -> None:
    status, _, body = post(headrace.url(), "/v1/requests", {**LONG, "max_tokens": 100})
    assert status == 202
    connection, answer = open_stream(headrace.url(), body["events_url"])
    assert read_frame(answer) is not None
    leave(connection)
    ended = outcome(headrace, body["id"])
    assert ended["outcome"] == "completed" and ended["usage"]["completion_tokens"] == 100
