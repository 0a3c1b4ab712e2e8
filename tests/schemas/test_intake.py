"""What a client may send, and what it is told when it may not."""

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
from schemas.request import Message, Request

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


def test_a_plain_chat_gets_the_documented_defaults() -> None:
    request = chat()
    assert request == Request(model="m", messages=[Message(role="user", content="hello")])
    assert request.kind == "chat"
    assert request.max_tokens is None
    assert request.temperature == 1.0


def test_developer_is_system_and_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = chat(messages=[{"role": "developer", "content": parts}])
    assert request.messages == [Message(role="system", content="ab")]


@pytest.mark.parametrize("prompt", ["once", ["once"]])
def test_a_prompt_is_a_string_or_a_list_of_one(prompt: Any) -> None:
    assert text(prompt=prompt).prompt == "once"


@pytest.mark.parametrize("prompt", [[5, 6], [[5, 6]]])
def test_a_prompt_may_be_token_ids(prompt: Any) -> None:
    assert text(prompt=prompt).prompt == [5, 6]


def test_null_means_absent_everywhere() -> None:
    names = [*SAMPLING, *ECHOED, *NEUTRAL, "max_tokens", "stream", "logprobs", "no_such_thing"]
    nulls = dict.fromkeys(names)
    message = {"role": "user", "content": "hello", "tool_calls": None, "name": None}
    assert chat(**nulls, messages=[message]) == chat()


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": []},
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"best_of": 1},
        {"echo": False},
        {"n": 1},
    ],
)
def test_what_asks_for_nothing_is_accepted(neutral: dict[str, Any]) -> None:
    assert chat(**neutral) == chat()


def test_what_is_accepted_without_promise_is_echoed() -> None:
    given = {
        "user": "u",
        "store": False,
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "parallel_tool_calls": True,
    }
    request = chat(**given, metadata={"a": "b"})
    assert request.echoed == given
    assert request.metadata == {"a": "b"}


def test_an_assistant_message_may_come_back_as_clients_dump_it() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    request = chat(messages=[*HELLO["messages"], answer])
    assert request.messages is not None
    assert request.messages[1] == Message(role="assistant", content="hi")


def test_max_completion_tokens_is_max_tokens() -> None:
    assert chat(max_completion_tokens=7).max_tokens == 7
    assert chat(max_completion_tokens=7, max_tokens=7).max_tokens == 7
    assert refusal(HELLO | {"max_completion_tokens": 7, "max_tokens": 8}).code == "invalid_value"


def test_a_text_completion_may_ask_for_logprobs_by_number() -> None:
    request = text(logprobs=3)
    assert (request.logprobs, request.top_logprobs) == (True, 3)
    assert refusal(HELLO | {"logprobs": 3}).code == "invalid_type"


def test_stream_and_usage_are_told_apart_from_the_request() -> None:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    parsed = parse_body(json.dumps(HELLO | more).encode(), "chat")
    assert (parsed.stream, parsed.include_usage) == (True, True)
    assert body_hash(parsed.request) == body_hash(chat())


def test_the_wish_for_usage_travels_with_the_request() -> None:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    request = parse_body(json.dumps(HELLO | more).encode(), "chat").request
    assert request.echoed == {"stream_options": {"include_usage": True}}
    assert parse_body(encode(request), "record").request == request


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"temperature": 2.1}, "invalid_value", "temperature"),
        ({"temperature": "1"}, "invalid_type", "temperature"),
        ({"temperature": True}, "invalid_type", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_k": -2}, "invalid_value", "top_k"),
        ({"top_k": 1.0}, "invalid_type", "top_k"),
        ({"min_p": 1.5}, "invalid_value", "min_p"),
        ({"presence_penalty": -3}, "invalid_value", "presence_penalty"),
        ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
        ({"repetition_penalty": 10**400}, "invalid_value", "repetition_penalty"),
        ({"stop": [""]}, "invalid_value", "stop[0]"),
        ({"stop": ["a"] * 17}, "invalid_value", "stop"),
        ({"stop": ["a", 1]}, "invalid_type", "stop[1]"),
        ({"seed": 2**63}, "invalid_value", "seed"),
        ({"seed": 1.5}, "invalid_type", "seed"),
        ({"top_logprobs": 21, "logprobs": True}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": 10**30}, "invalid_value", "max_tokens"),
        ({"min_tokens": 9, "max_tokens": 8}, "invalid_value", "min_tokens"),
        ({"n": 2}, "invalid_value", "n"),
        ({"service_tier": "scale"}, "invalid_value", "service_tier"),
        ({"timeout": 0}, "invalid_deadline", "timeout"),
        ({"timeout": 86_401}, "invalid_deadline", "timeout"),
        ({"timeout": "soon"}, "invalid_deadline", "timeout"),
        ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
        ({"tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
        ({"best_of": 2}, "unsupported_parameter", "best_of"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"store": True}, "unsupported_parameter", "store"),
        ({"id": "req_x"}, "unsupported_parameter", "id"),
        ({"prompt": "x"}, "unsupported_parameter", "prompt"),
        ({"stream": 1}, "invalid_type", "stream"),
        ({"stream_options": {"x": 1}}, "unsupported_parameter", "stream_options.x"),
        ({"model": None}, "missing_parameter", "model"),
        ({"model": ""}, "invalid_value", "model"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": "hi"}, "invalid_type", "messages"),
        ({"messages": ["hi"]}, "invalid_type", "messages[0]"),
        ({"messages": [{"content": "x"}]}, "missing_parameter", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "missing_parameter", "messages[0].content"),
        ({"messages": [{"role": "robot", "content": ""}]}, "invalid_value", "messages[0].role"),
        (
            {"messages": [{"role": "tool", "content": ""}]},
            "unsupported_content",
            "messages[0].role",
        ),
        ({"messages": [{"role": "user", "content": 3}]}, "invalid_type", "messages[0].content"),
        (
            {
                "messages": [
                    *HELLO["messages"],
                    {"role": "user", "content": [{"type": "image_url"}]},
                ]
            },
            "unsupported_content",
            "messages[1].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "colour": 1}]},
            "unsupported_parameter",
            "messages[0].colour",
        ),
        (
            {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]},
            "unsupported_content",
            "messages[0].tool_calls",
        ),
    ],
)
def test_a_refusal_names_the_code_and_the_field(
    more: dict[str, Any], code: str, param: str
) -> None:
    said = refusal(HELLO | more)
    assert (said.code, said.param) == (code, param)
    assert said.message
    assert said.status in (400, 404)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["a", "b"], "prompt"),
        ([1, True], "prompt[1]"),
        ([1, -1], "prompt[1]"),
        ([1, 10**30], "prompt[1]"),
        ({}, "prompt"),
    ],
)
def test_a_prompt_that_is_none_is_refused(prompt: Any, param: str) -> None:
    assert refusal(ONCE | {"prompt": prompt}, "text").param == param


def test_an_unknown_parameter_is_told_its_nearest_known_name() -> None:
    said = refusal(HELLO | {"temprature": 1})
    assert said.code == "unsupported_parameter"
    assert "temperature" in said.message


def test_the_native_route_takes_exactly_one_of_messages_and_prompt() -> None:
    assert parse_body(json.dumps(HELLO).encode(), "native").request.kind == "chat"
    assert parse_body(json.dumps(ONCE).encode(), "native").request.kind == "text"
    assert refusal(HELLO | ONCE, "native").code == "invalid_request"
    assert refusal({"model": "m"}, "native").code == "missing_parameter"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b"\xff\xfe",
        b'{"model": NaN}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"a":' * 100_000,
        b"[" * 100_000,
        b'{"temperature": ' + b"9" * 10_000 + b"}",
        b"\x00" * 10,
    ],
)
@pytest.mark.parametrize("route", ["chat", "record"])
def test_bytes_that_are_no_object_are_told_so(raw: bytes, route: Any) -> None:
    said = refusal(raw, route)
    assert said.code in ("invalid_json", "invalid_record")
    assert len(said.message) < 400


def test_a_record_may_name_its_id_and_its_tag() -> None:
    raw = json.dumps(HELLO | {"id": "req_x", "type": "request/1", "stream": True}).encode()
    assert parse_body(raw, "record").request.id == "req_x"
    said = refusal(HELLO | {"type": "request/9"}, "record")
    assert (said.code, said.param) == ("invalid_record", "type")


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_a_request_survives_its_own_record(encoding: str) -> None:
    request = chat(
        user="u",
        metadata={"k": "v"},
        stop=["x"],
        logit_bias={"7": 1},
        timeout=5,
        seed=-1,
        top_p=0.5,
    )
    request = msgspec.structs.replace(request, id="req_x")
    assert parse_body(encode(request, encoding), "record").request == request


def test_a_packed_record_is_checked_like_a_body() -> None:
    for field, value in (("temperature", 3), ("n", 2), ("messages", []), ("colour", 1)):
        raw = msgspec.msgpack.encode(HELLO | {field: value})
        assert refusal(raw, "record").param == field
    assert refusal(msgspec.msgpack.encode({1: 2}), "record").code == "invalid_record"
    assert refusal(msgspec.msgpack.encode(HELLO | {"model": b"m"}), "record").param == "model"


def test_the_body_hash_is_of_what_was_asked_only() -> None:
    turned = dict(reversed((HELLO | {"temperature": 1, "seed": 4}).items()))
    one = parse_body(json.dumps(turned | {"stream": True}).encode(), "chat").request
    assert body_hash(one) == body_hash(chat(seed=4, temperature=1.0))
    assert body_hash(one) == body_hash(msgspec.structs.replace(one, id="req_x"))
    assert body_hash(one) != body_hash(chat(seed=5))
    packed = parse_body(encode(one), "record").request
    assert body_hash(packed) == body_hash(one)


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


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=200), route=_routes)
def test_nothing_but_a_refusal_comes_of_any_bytes(raw: bytes, route: Any) -> None:
    with pytest.raises(Refusal):
        parse_body(raw, route)
