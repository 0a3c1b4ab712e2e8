"""What a client is told when it may not."""

from typing import Any

import msgspec
import pytest

from tests.schemas.bodies import HELLO, ONCE, refusal


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
        ({"n": 9}, "invalid_value", "n"),
        ({"n": 0}, "invalid_value", "n"),
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


def test_a_packed_record_is_checked_like_a_body() -> None:
    for field, value in (("temperature", 3), ("n", 9), ("messages", []), ("colour", 1)):
        raw = msgspec.msgpack.encode(HELLO | {field: value})
        assert refusal(raw, "record").param == field
    assert refusal(msgspec.msgpack.encode({1: 2}), "record").code == "invalid_record"
    assert refusal(msgspec.msgpack.encode(HELLO | {"model": b"m"}), "record").param == "model"
