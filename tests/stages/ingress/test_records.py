"""Every record that anybody publishes ends in a ready record or in one outcome."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from schemas.codec import encode, text_header
from schemas.errors import CODES
from schemas.ids import birth, derive, is_id
from schemas.intake import parse_body
from schemas.request import Request
from tests.stages.ingress.stand import HELLO, TOPICS, Stand, ready, refused, virtual


def test_a_question_is_admitted_and_made_ready() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with stand.ingress():
            await stand.publish(HELLO, headers={"correlation-id": b"c-1", "tenant": b"acme"})
            await stand.settle()
        (made,), (event,) = stand.ready(), stand.admitted()
        assert (stand.outputs(), stand.letters()) == ([], [])
        assert is_id(made.request_id)
        assert event.request_id == made.request_id
        assert event.prompt_tokens == len(made.prompt_ids) > 0
        assert (made.tenant, made.correlation_id, made.lane) == ("acme", "c-1", "silver")
        assert (made.kind, made.revision, made.plan) == ("chat", "r1", "exact")
        assert made.encoding == "json"
        assert made.deadline == made.accepted + 3_600_000
        (slot,) = stand.everything(TOPICS.tokens)
        headers = dict(slot.headers)
        assert headers["correlation-id"] == b"c-1" and headers["tenant"] == b"acme"
        assert headers["content-type"] == b"application/json"
        assert json.loads(slot.value or b"")["type"] == "admitted/1"

    virtual(main)


def test_an_edge_publishes_messagepack_under_an_id_of_its_own() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        request = parse_body(json.dumps(HELLO).encode(), "chat").request
        id = stand.mint()
        async with stand.ingress():
            headers = {"request-id": id.encode(), "type": b"request/1"}
            await stand.publish(encode(request), headers=headers, key=id.encode())
            await stand.settle()
        (made,) = stand.ready()
        assert (made.request_id, made.encoding) == (id, "msgpack")
        assert made.created == birth(id)

    virtual(main)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b"hello",
        b'{"type":"request/9","model":"words","prompt":"x"}',
        msgspec.msgpack.encode([1, 2]),
        b'{"a":' * 50_000,
        json.dumps(HELLO | {"messages": [{"role": "user", "content": "x" * 262_144}]}).encode(),
    ],
)
def test_what_nobody_can_read_is_kept_byte_for_byte_and_refused(value: bytes | None) -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with stand.ingress():
            headers = {"correlation-id": b"c-1", "odd": b"\xff\x00"}
            placed = await stand.publish(value, headers=headers, key=None)
            await stand.publish(HELLO)
            await stand.settle()
        (letter,), (output,) = stand.letters(), stand.outputs()
        assert (letter.value, letter.key) == (value, None)
        assert dict(letter.headers[:2]) == headers
        assert text_header(letter.headers, "__dlq.errors.offset") == str(placed.offset)
        assert (output.outcome, output.correlation_id) == ("refused", "c-1")
        assert output.encoding == "json", "what its publisher can read at the least"
        assert output.error is not None and output.error.code == "invalid_record"
        assert output.request_id == derive(placed.timestamp, TOPICS.requests, 0, placed.offset)
        assert len(stand.ready()) == 1, "the good one behind it goes through"

    virtual(main)


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"model": "other"}, "model_not_found", "model"),
        ({"max_tokens": 5000}, "context_length_exceeded", "messages"),
        ({"max_tokens": 950}, "output_too_large", "max_tokens"),
        ({"temprature": 1}, "unsupported_parameter", "temprature"),
        ({"temperature": 9}, "invalid_value", "temperature"),
        ({"tools": [{}]}, "unsupported_parameter", "tools"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"logit_bias": {"70000": 1}}, "invalid_value", "logit_bias.70000"),
        ({"messages": None, "prompt": [70_000]}, "invalid_value", "prompt[0]"),
        ({"messages": None, "prompt": ""}, "invalid_value", "prompt"),
        ({"min_tokens": 999}, "invalid_value", "min_tokens"),
    ],
)
def test_what_can_be_read_and_not_be_done_is_refused_by_name(
    more: dict[str, Any], code: str, param: str
) -> None:
    output = refused(HELLO | more, headers={"correlation-id": b"c-2"})
    assert output.error is not None
    assert (output.error.code, output.error.param) == (code, param)
    assert output.error.type == CODES[code].type
    assert (output.correlation_id, output.encoding) == ("c-2", "json")


@pytest.mark.parametrize(
    "headers",
    [
        {"lane": b"iron"},
        {"deadline": b"soon"},
        {"deadline": b"9" * 19},
        {"tenant": b"x" * 200},
        {"tenant": b"\xff"},
        {"correlation-id": b"x" * 300},
    ],
)
def test_a_header_that_cannot_be_is_refused_by_name(headers: dict[str, bytes]) -> None:
    output = refused(HELLO, headers=headers)
    assert output.error is not None and output.error.param in headers


def test_a_deadline_that_is_over_ends_as_expired() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        past = str(stand.clock.ms() - 1).encode()
        output = await stand.outcome(HELLO, headers={"deadline": past})
        assert not hasattr(output, "prompt_ids")
        assert stand.outputs()[0].outcome == "expired"

    virtual(main)


def test_the_earliest_deadline_counts_and_flex_has_a_day() -> None:
    assert (made := ready(HELLO | {"timeout": 5})).deadline == made.accepted + 5000
    bronze = ready(HELLO | {"service_tier": "flex"})
    assert bronze.lane == "bronze"
    assert bronze.deadline == bronze.accepted + 86_400_000
    assert ready(HELLO | {"service_tier": "flex"}, headers={"lane": b"gold"}).lane == "gold"


def test_a_missing_seed_is_the_same_for_every_reading_of_the_record() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with stand.ingress():
            await stand.publish(HELLO)
            await stand.publish(HELLO | {"seed": -1})
            await stand.settle()
        stand.cluster.groups.clear()  # as if no commit had ever been made
        async with stand.ingress():
            await stand.settle()
        first, second, *again = sorted(stand.ready(), key=lambda made: made.sampling.seed)
        assert first.request_id == second.request_id or again, "each was made twice"
        seeds = {(made.request_id, made.sampling.seed) for made in stand.ready()}
        assert len(stand.ready()) == 4 and len(seeds) == 2
        assert 2**64 - 1 in {seed for _, seed in seeds}

    virtual(main)


def test_a_request_survives_an_outage_of_the_broker() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        outputs = [at for at in stand.cluster.partitions if "ready" in at.topic]
        async with stand.ingress():
            await asyncio.sleep(3)
            stand.cluster.set_available(outputs, False)
            await stand.publish(HELLO)
            await asyncio.sleep(30)
            assert stand.ready() == []
            stand.cluster.set_available(outputs, True)
            await stand.settle()
        assert len({made.request_id for made in stand.ready()}) == 1

    virtual(main)


def test_text_has_sixteen_tokens_and_chat_the_rest_of_the_context() -> None:
    text = ready({"model": "words", "prompt": "one two three"})
    assert (text.kind, text.max_tokens) == ("text", 16)
    chat = ready(HELLO)
    assert chat.max_tokens == 900, "900 KiB of output at 1 KiB a token, less than the context"
    assert ready({"model": "words", "prompt": [5] * 990}).max_tokens == 10


def test_request_defaults_reach_the_worker() -> None:
    made = ready(HELLO | {"top_k": -1, "stop": "x", "logit_bias": {"7": 1}, "user": "u"})
    assert made.sampling.top_k == 0
    assert made.sampling.stop == ["x"]
    assert made.sampling.logit_bias == [(7, 1.0)]
    assert made.echoed == {"user": "u"}
    assert Request(model="m", prompt="x").normalize is True
