"""Bodies that tests of intake send, and what becomes of them."""

import json
from typing import Any

import pytest

from schemas.errors import CODES, Refusal
from schemas.intake import parse_body
from schemas.request import Request

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ONCE: dict[str, Any] = {"model": "m", "prompt": "once"}


def chat(**more: Any) -> Request:
    return parse_body(json.dumps(HELLO | more).encode(), "chat").request


def text(**more: Any) -> Request:
    return parse_body(json.dumps(ONCE | more).encode(), "text").request


def refusal(body: Any, route: Any = "chat") -> Refusal:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Refusal) as caught:
        parse_body(raw, route)
    assert caught.value.code in CODES
    return caught.value
