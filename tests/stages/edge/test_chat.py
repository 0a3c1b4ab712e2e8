"""A chat or a text completion over HTTP, streamed and whole."""

import asyncio

from .backstage import CHAT, MODEL, Backstage, EdgeUnderTest, chunks_of, events_of, said_in

WORDS = ("Water", " finds", " its", " way", ".")


async def test_a_stream_has_role_words_finish_and_done_in_this_order(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        task = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
        asked = await back.asked()
        await asked.answer(*WORDS)
        reply = await task
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
