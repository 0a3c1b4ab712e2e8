"""Keys make tenants, and tenants are apart."""

import uuid

import pytest

from tests.flow.installation import Installation
from tests.flow.streams import delete, get, post
from tests.flow.tenants import KEYS, bearer

ALICE, BOB = bearer("alice"), bearer("bob")
BODY = {"model": "null", "prompt": "Go on", "max_tokens": 3}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nobody"}], ids=["none", "wrong"])
def test_without_a_known_key_nothing_is_answered(
    narrow: Installation, headers: dict[str, str]
) -> None:
    status, answered, body = post(narrow.url(), "/v1/completions", BODY, headers)
    assert status == 401 and body["error"]["code"] == "invalid_api_key"
    assert body["error"]["type"] == "authentication_error"
    assert answered["headrace-reason"] == "invalid_api_key"


def test_the_command_line_has_a_key_too(narrow: Installation) -> None:
    ask = ("run", "--max-tokens", "3", "Go on")
    without = narrow.call(*ask)
    assert without.returncode == 1 and "HEADRACE_API_KEY" in without.stderr
    assert "Traceback" not in without.stderr
    assert len(narrow.call(*ask, "--api-key", KEYS["alice"]).stdout.split()) == 3
    narrow.environment["HEADRACE_API_KEY"] = KEYS["bob"]
    try:
        assert len(narrow.call(*ask).stdout.split()) == 3
    finally:
        del narrow.environment["HEADRACE_API_KEY"]


def test_another_tenants_request_does_not_exist(narrow: Installation) -> None:
    status, headers, _ = post(narrow.url(), "/v1/completions", BODY, ALICE)
    assert status == 200
    path = f"/v1/requests/{headers['headrace-request-id']}"
    assert get(narrow.url(), path, ALICE)[2]["outcome"]["tenant"] == "alice"
    for answer in (
        get(narrow.url(), path, BOB),
        get(narrow.url(), f"{path}/events", BOB),
        delete(narrow.url(), path, BOB),
    ):
        status, _, body = answer
        assert status == 404 and body["error"]["code"] == "request_not_found"


def test_one_idempotency_key_is_one_request_of_one_tenant(narrow: Installation) -> None:
    mine = {"Idempotency-Key": uuid.uuid4().hex}

    def ask(tenant: dict[str, str], **more: int) -> tuple[int, dict[str, str], dict[str, object]]:
        return post(narrow.url(), "/v1/completions", {**BODY, **more}, {**tenant, **mine})

    first, again, other = ask(ALICE), ask(ALICE), ask(BOB)
    assert first[0] == again[0] == other[0] == 200
    assert "idempotency-replayed" not in first[1]
    assert again[1]["idempotency-replayed"] == "true"
    assert again[2] == first[2]
    assert other[2]["id"] != first[2]["id"], "tenants share their keys"
    status, headers, body = ask(ALICE, max_tokens=4)
    assert status == 409 and body["error"]["code"] == "idempotency_conflict", body  # type: ignore[index]
    assert headers["x-should-retry"] == "false"
