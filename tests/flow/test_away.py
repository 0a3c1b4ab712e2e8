"""Something is away: the answer says what and for how long, and whoever waits gets theirs later."""

import json
import threading
import time
import uuid
from typing import Any

from tests.flow.installation import Installation
from tests.flow.load import outcomes_of
from tests.flow.log_reading import first_result, publish
from tests.flow.streams import Frame, get, open_stream, post, read_frame
from tests.flow.tenants import bearer
from tests.flow.waiting import until

CHAT = {"model": "null", "messages": [{"role": "user", "content": "Go on"}], "max_tokens": 60}
ALICE = bearer("alice")


def readiness(url: str) -> str:
    """What /readyz of an edge names; empty when it is ready."""
    status, _, body = get(url, "/readyz")
    return "" if status == 200 else json.dumps(body)


def check_unavailable(answer: tuple[int, dict[str, str], Any], code: str) -> None:
    status, headers, body = answer
    assert status == 503 and body["error"]["code"] == code, body
    assert headers["headrace-reason"] == code
    assert int(headers["retry-after"]) >= 1


def test_a_paused_broker_lets_no_token_pass(fleet: Installation) -> None:
    """The broker is the only channel between the roles; when it goes on, so does the stream."""
    _, answer = open_stream(fleet.url(), "/v1/chat/completions", {**CHAT, "stream": True})
    assert answer.status == 200
    request_id = answer.getheader("Headrace-Request-Id") or ""
    frames: list[Frame] = []

    def read() -> None:
        while (frame := read_frame(answer)) is not None:
            frames.append(frame)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    until(lambda: len(frames) >= 3)
    with fleet.paused("broker"):
        # within its limit, not when the broker comes back; what was on its way has arrived by then
        check_unavailable(post(fleet.url(), "/v1/chat/completions", CHAT), "broker_unavailable")
        passed = len(frames)
        assert not any("[DONE]" in frame.data for frame in frames), "the stream was over before"
        until(lambda: "broker" in readiness(fleet.url()))
        check_unavailable(post(fleet.url(2), "/v1/requests", CHAT), "broker_unavailable")
        assert len(frames) == passed, "a token came past the broker"
    reader.join(120)
    assert frames[-1].data == "[DONE]"
    assert list(map(len, outcomes_of(fleet, {request_id}).values())) == [1]
    until(lambda: not readiness(fleet.url()))
    until(lambda: not readiness(fleet.url(2)))


def test_without_a_live_worker_nobody_hangs_and_nothing_is_lost(narrow: Installation) -> None:
    """503 at the door; what was published waits for a worker, or for its deadline."""
    late, kept = uuid.uuid4().hex, uuid.uuid4().hex
    with narrow.paused("worker-1"):
        until(lambda: "worker" in readiness(narrow.url()))
        answer = post(narrow.url(), "/v1/chat/completions", CHAT, ALICE)
        check_unavailable(answer, "no_live_worker")
        body = json.dumps({**CHAT, "max_tokens": 4}).encode()
        soon = str(time.time_ns() // 1_000_000 + 2_000)
        publish(narrow, body, {"correlation-id": late, "deadline": soon})
        publish(narrow, body, {"correlation-id": kept})
        expired = first_result(narrow, late)
        assert expired["outcome"] == "expired"
        assert expired["usage"]["completion_tokens"] == 0
        assert expired["error"]["code"] == "deadline_exceeded"
    assert first_result(narrow, kept)["usage"]["completion_tokens"] == 4
    until(lambda: not readiness(narrow.url()))
    assert post(narrow.url(), "/v1/chat/completions", {**CHAT, "max_tokens": 2}, ALICE)[0] == 200
