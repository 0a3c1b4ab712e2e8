"""Nothing that anybody can send crashes intake."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import JSON, MSGPACK, encode
from schemas.errors import CODES, Refusal
from schemas.intake import body_hash, parse_body
from schemas.parameters import ECHOED, NEUTRAL, SAMPLING

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_names = st.sampled_from(
    [
        *(*SAMPLING, *ECHOED, *NEUTRAL, "model", "messages", "prompt", "stream", "stream_options"),
        *("max_tokens", "max_completion_tokens", "logprobs", "id", "type", "echoed"),
    ]
)
_messages = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls", "refusal"]),
        _json | st.sampled_from(["user", "system", "tool"]),
    ),
    max_size=3,
)
_routes = st.sampled_from(["chat", "text", "native", "record"])


@settings(max_examples=150, deadline=None)
@given(
    body=st.dictionaries(_names | st.text(max_size=6), _json, max_size=5),
    said=st.none() | _messages,
    route=_routes,
    packed=st.booleans(),
)
def test_nothing_but_a_refusal_comes_of_any_object(
    body: dict[str, Any], said: Any, route: Any, packed: bool
) -> None:
    whole = {"model": "m", **({"prompt": "x"} if said is None else {"messages": said}), **body}
    try:
        raw = msgspec.msgpack.encode(whole) if packed else json.dumps(whole).encode()
    except OverflowError:
        return
    try:
        request = parse_body(raw, route).request
    except Refusal as refused:
        assert refused.code in CODES and refused.error.message
        return
    for encoding in (JSON, MSGPACK):  # what was accepted can be carried, and means the same there
        again = parse_body(encode(request, encoding), "record").request
        assert again == request
        assert body_hash(again) == body_hash(request)


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=200), route=_routes)
def test_nothing_but_a_refusal_comes_of_any_bytes(raw: bytes, route: Any) -> None:
    with pytest.raises(Refusal):
        parse_body(raw, route)
