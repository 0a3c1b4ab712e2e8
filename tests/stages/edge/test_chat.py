"""A chat or a text completion over HTTP, streamed and whole."""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from schemas.errors import Error
from schemas.tokens import Logprob

from .backstage import (
    CHAT,
    MODEL,
    TOPICS,
    WAIT,
    Asked,
    Backstage,
    EdgeUnderTest,
    an_edge,
    chunks_of,
    events_of,
    said_in,
)

WORDS = ("Water", " finds", " its", " way", ".")
TEXT = {"model": MODEL, "prompt": "hello"}


async def post(
    back: Backstage, edge: EdgeUnderTest, body: dict[str, Any], script: Any, **more: Any
) -> tuple[httpx.Response, Asked]:
    """One request, answered by `script`."""
    route = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    async with edge.client() as http:
        task = asyncio.create_task(http.post(route, json=body, **more))
        asked = await back.asked()
        await script(asked)
        return await task, asked


async def words(asked: Asked) -> None:
    await asked.answer(*WORDS)


async def test_a_stream_has_role_words_finish_and_done_in_this_order(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    reply, asked = await post(back, edge, CHAT | {"stream": True}, words)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["headrace-request-id"] == asked.id
    events = events_of(reply.text)
    assert events[-1]["data"] == "[DONE]"
    chunks = chunks_of(reply.text)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 4 + ["stop"]
    assert said_in(reply.text) == "".join(WORDS)
    assert {c["id"] for c in chunks} == {asked.id}
    assert {c["model"] for c in chunks} == {MODEL}
    assert asked.request.messages is not None
    assert asked.request.messages[0].content == "hello"


async def test_every_frame_of_a_stream_names_its_place_in_the_log(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    reply, _ = await post(back, edge, CHAT | {"stream": True}, words)
    ids = [event["id"] for event in events_of(reply.text)]
    assert len(set(ids)) == len(ids)
    assert [name.partition("-")[2] for name in ids] == ["2", "2.1", "4", "5", "5.1", "5.1"]
    offsets = [int(name.partition("-")[0]) for name in ids]
    assert offsets == sorted(offsets)


async def test_usage_comes_last_if_it_was_asked_for(back: Backstage, edge: EdgeUnderTest) -> None:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    reply, _ = await post(back, edge, body, words)
    usage = chunks_of(reply.text)[-1]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    assert usage["timings"]["ingress"] == 1.5
    without, _ = await post(back, edge, CHAT | {"stream": True}, words)
    assert not any("usage" in chunk for chunk in chunks_of(without.text))


async def test_a_whole_answer_has_usage_tier_and_timings(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    reply, asked = await post(back, edge, CHAT | {"service_tier": "priority"}, words)
    assert reply.status_code == 200
    body = reply.json()
    assert body["object"] == "chat.completion"
    assert body["id"] == asked.id
    assert body["choices"][0]["message"]["content"] == "".join(WORDS)
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 8
    assert body["service_tier"] == "priority"
    assert asked.headers["lane"] == "gold"
    assert reply.headers["server-timing"] == "ingress;dur=1.5, queue;dur=2"


async def test_text_completions_have_their_own_shape(back: Backstage, edge: EdgeUnderTest) -> None:
    reply, _ = await post(back, edge, TEXT, words)
    assert reply.json()["object"] == "text_completion"
    assert reply.json()["choices"][0]["text"] == "".join(WORDS)
    stream, _ = await post(back, edge, TEXT | {"stream": True}, words)
    chunks = chunks_of(stream.text)
    assert said_in(stream.text) == "".join(WORDS)
    assert chunks[0]["choices"][0]["text"] == "Water finds"
    assert chunks[-1]["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "stop",
    }


async def test_a_whole_answer_with_logprobs_takes_them_from_the_slot(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.open()
        one = Logprob(token="Hi", logprob=-0.5, bytes=[72, 105], top=[("Hi", -0.5, [72, 105])])
        await asked.say("Hi", logprobs=[one])
        await asked.say("!", finish="stop", logprobs=[Logprob(token="!", logprob=-0.1)])
        await asked.end()

    reply, _ = await post(back, edge, CHAT | {"logprobs": True, "top_logprobs": 1}, script)
    content = reply.json()["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content] == ["Hi", "!"]
    assert content[0]["top_logprobs"] == [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}]
    stream, _ = await post(back, edge, CHAT | {"logprobs": True, "stream": True}, script)
    shown = [c["choices"][0]["logprobs"] for c in chunks_of(stream.text)]
    assert [one["content"][0]["token"] for one in shown if one] == ["Hi", "!"]


async def test_logprobs_of_a_text_say_where_each_token_begins_also_behind_a_cut(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.open()
        for pieces in (("Wa", "ter"), (" flö",), ("ws", ".")):
            logprobs = [Logprob(token=piece, logprob=-0.5) for piece in pieces]
            await asked.say(*pieces, logprobs=logprobs, finish="stop" if "." in pieces else None)
        await asked.end()

    wanted = [0, 2, 5, 9, 11]
    reply, _ = await post(back, edge, TEXT | {"logprobs": 1}, script)
    shown = reply.json()["choices"][0]["logprobs"]
    assert shown["text_offset"] == wanted and len(shown["tokens"]) == 5
    stream, asked = await post(back, edge, TEXT | {"logprobs": 1, "stream": True}, script)
    said = [chunk["choices"][0]["logprobs"] for chunk in chunks_of(stream.text)]
    assert [offset for one in said if one for offset in one["text_offset"]] == wanted
    blocks = [block + "\n\n" for block in stream.text.split("\n\n") if block]
    async with edge.client() as http:
        for seen, block in enumerate(blocks[:-1], 1):
            last = block.split("\n")[0].removeprefix("id: ")
            path = f"/v1/requests/{asked.id}/events?format=openai"
            rest = await http.get(path, headers={"Last-Event-ID": last})
            assert rest.text == "".join(blocks[seen:])
        path = f"/v1/requests/{asked.id}/events?format=openai&starting_after=1"
        rest = await http.get(path)
        assert chunks_of(rest.text)[0]["choices"][0]["logprobs"]["text_offset"] == [2]


async def test_a_cached_answer_without_any_chunk_streams_whole(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.end(rest=WORDS, attempt=0)

    reply, _ = await post(back, edge, CHAT | {"stream": True}, script)
    assert said_in(reply.text) == "".join(WORDS)
    finishes = [c["choices"][0]["finish_reason"] for c in chunks_of(reply.text)]
    assert finishes == [None, None, "stop"]


async def test_what_a_superseded_attempt_says_is_not_shown(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.open(1)
        await asked.say("a", "b")
        await asked.open(2)
        await asked.say("x", "y", attempt=1, counts=False)  # the zombie
        await asked.say("c", attempt=2, finish="stop")
        await asked.say("c", attempt=2, k=2, counts=False)  # a repeat
        await asked.end(attempt=2)

    reply, _ = await post(back, edge, CHAT | {"stream": True}, script)
    assert said_in(reply.text) == "abc"


async def test_tokens_that_the_slot_lacks_are_taken_from_the_output(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.open()
        await asked.say("a", "b")
        await asked.end(rest=("c", "d"))

    reply, _ = await post(back, edge, CHAT | {"stream": True}, script)
    assert said_in(reply.text) == "abcd"
    assert events_of(reply.text)[-1]["data"] == "[DONE]"


REFUSED = [
    ("model_not_found", 404, "not_found_error"),
    ("context_length_exceeded", 400, "invalid_request_error"),
    ("never_fits", 400, "invalid_request_error"),
]


@pytest.mark.parametrize(("code", "status", "kind"), REFUSED)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_by_ingress_is_a_status_also_of_a_stream(
    back: Backstage, edge: EdgeUnderTest, code: str, status: int, kind: str, stream: bool
) -> None:
    error = Error(message="no", type=kind, param="model", code=code)

    async def script(asked: Asked) -> None:
        await asked.end("refused", error=error, attempt=0)

    reply, _ = await post(back, edge, CHAT | {"stream": stream}, script)
    assert reply.status_code == status
    assert reply.json()["error"] == {"message": "no", "type": kind, "param": "model", "code": code}
    assert reply.headers["headrace-reason"] == code


ENDED = [
    ("cancelled", 499, "request_cancelled", False),
    ("expired", 504, "deadline_exceeded", True),
    ("failed", 500, "engine_error", True),
]


@pytest.mark.parametrize(("outcome", "status", "code", "final"), ENDED)
async def test_a_whole_answer_that_ends_otherwise_says_so(
    back: Backstage, edge: EdgeUnderTest, outcome: str, status: int, code: str, final: bool
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.end(outcome)

    reply, _ = await post(back, edge, CHAT, script)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
    assert (reply.headers.get("x-should-retry") == "false") is final


async def test_a_failure_in_mid_stream_is_an_error_and_done(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async def script(asked: Asked) -> None:
        await asked.admit()
        await asked.open()
        await asked.say("a")
        await asked.end("failed")

    reply, _ = await post(back, edge, CHAT | {"stream": True}, script)
    assert reply.status_code == 200
    last, done = events_of(reply.text)[-2:]
    assert '"code":"engine_error"' in last["data"]
    assert done["data"] == "[DONE]"


async def test_200_goes_out_when_ingress_takes_its_time(back: Backstage) -> None:
    async with an_edge(back, verdict_wait=0.1) as edge, edge.client() as http:
        body = CHAT | {"stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            await (await back.asked()).end("refused", attempt=0)
            text = (await reply.aread()).decode()
    assert '"code":"invalid_request"' in text


async def test_a_quiet_stream_is_pinged(back: Backstage) -> None:
    async with an_edge(back, ping=1.0) as edge, edge.client() as http:
        body = CHAT | {"stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            asked = await back.asked()
            await asked.admit()
            lines = reply.aiter_lines()
            assert await asyncio.wait_for(anext(lines), WAIT) == ": ping"
            await asked.answer("a")
            rest = "\n".join([line async for line in lines])
    assert "[DONE]" in rest


async def test_what_travels_with_a_request(back: Backstage, edge: EdgeUnderTest) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"X-Request-ID": "mine-7", "traceparent": traceparent}
    reply, asked = await post(back, edge, CHAT, words, headers=headers)
    assert reply.headers["x-request-id"] == "mine-7"
    assert reply.headers["traceparent"].split("-")[1] == traceparent.split("-")[1]
    assert asked.headers["correlation-id"] == "mine-7"
    assert asked.headers["traceparent"].split("-")[1] == traceparent.split("-")[1]
    assert asked.headers["tenant"] == "default"
    assert asked.headers["request-id"] == asked.id
    assert asked.record.topic == TOPICS.requests


async def test_the_openai_client_works_unmodified(back: Backstage, edge: EdgeUnderTest) -> None:
    server = asyncio.create_task(back.serve(words))
    async with openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key="any") as client:
        whole = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}]
        )
        assert whole.choices[0].message.content == "".join(WORDS)
        assert whole.usage is not None and whole.usage.completion_tokens == 5
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "".join(
            WORDS
        )
        assert chunks[-1].usage is not None
        text = await client.completions.create(model=MODEL, prompt="hi")
        assert text.choices[0].text == "".join(WORDS)
        models = await client.models.list()
        assert [model.id for model in models.data] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("none")
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model=MODEL, messages=[], temperature=9)
        assert bad.value.code == "invalid_value"
    server.cancel()
