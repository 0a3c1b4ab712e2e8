"""What a client may send."""

import json
from typing import Any

import msgspec
import pytest

from schemas.codec import JSON, MSGPACK, encode
from schemas.intake import body_hash, parse_body
from schemas.parameters import ECHOED, NEUTRAL, SAMPLING
from schemas.request import Message, Request
from tests.schemas.bodies import HELLO, ONCE, chat, refusal, text


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


def test_the_native_route_takes_exactly_one_of_messages_and_prompt() -> None:
    assert parse_body(json.dumps(HELLO).encode(), "native").request.kind == "chat"
    assert parse_body(json.dumps(ONCE).encode(), "native").request.kind == "text"
    assert refusal(HELLO | ONCE, "native").code == "invalid_request"
    assert refusal({"model": "m"}, "native").code == "missing_parameter"


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


def test_the_body_hash_is_of_what_was_asked_only() -> None:
    turned = dict(reversed((HELLO | {"temperature": 1, "seed": 4}).items()))
    one = parse_body(json.dumps(turned | {"stream": True}).encode(), "chat").request
    assert body_hash(one) == body_hash(chat(seed=4, temperature=1.0))
    assert body_hash(one) == body_hash(msgspec.structs.replace(one, id="req_x"))
    assert body_hash(one) != body_hash(chat(seed=5))
    packed = parse_body(encode(one), "record").request
    assert body_hash(packed) == body_hash(one)
