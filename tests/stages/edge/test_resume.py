"""A stream that was cut goes on anywhere, byte for byte."""

import asyncio
import random

import httpx
import pytest

from .backstage import CHAT, TOPICS, Asked, Backstage, EdgeUnderTest, an_edge, foreign_name
from .test_door import check

OPENAI = "?format=openai"


def frames_of(text: str) -> list[str]:
    return [block + "\n\n" for block in text.split("\n\n") if block and block[0] != ":"]


def id_of(frame: str) -> str:
    line = frame.split("\n", 1)[0]
    assert line.startswith("id: ")
    return line[4:]


async def long_answer(asked: Asked) -> None:
    """Two attempts, a zombie, single tokens and many at once."""
    await asked.admit()
    await asked.open(1)
    await asked.say("a")
    await asked.say("b", "c", "d")
    await asked.open(2)
    await asked.say("x", attempt=1, counts=False)
    await asked.say("e", "f", attempt=2)
    for letter in "ghij":
        await asked.say(letter, attempt=2)
    await asked.say("k", "l", attempt=2, finish="stop")
    await asked.end(attempt=2)


async def whole(back: Backstage, edge: EdgeUnderTest, usage: bool) -> tuple[str, Asked]:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": usage}}
    async with edge.client() as http:
        task = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        asked = await back.asked()
        await long_answer(asked)
        return (await task).text, asked


@pytest.mark.parametrize("usage", [False, True])
async def test_after_every_frame_the_rest_is_the_same_on_every_edge(
    back: Backstage, edge: EdgeUnderTest, usage: bool
) -> None:
    text, asked = await whole(back, edge, usage)
    path = f"/v1/requests/{asked.id}/events"
    async with (
        an_edge(back, foreign_name(asked.id)) as other,
        edge.client() as near,
        other.client() as far,
    ):
        native = (await far.get(path)).text
        for whole_text, url in ((text, path + OPENAI), (native, path)):
            frames = frames_of(whole_text)
            for cut, frame in enumerate(frames, 1):
                header = {"Last-Event-ID": id_of(frame)}
                for client in (near, far):
                    reply = await client.get(url, headers=header)
                    assert reply.status_code == 200
                    assert reply.text == "".join(frames[cut:]), id_of(frame)


@pytest.mark.parametrize("seed", range(3))
async def test_a_stream_cut_while_it_runs_goes_on_on_another_edge(
    back: Backstage, edge: EdgeUnderTest, seed: int
) -> None:
    chance = random.Random(seed)
    async with edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT)
        asked = await back.asked()
        path = f"/v1/requests/{asked.id}/events"
        uncut = asyncio.create_task(http.get(path))
        async with an_edge(back, foreign_name(asked.id)) as other, other.client() as far:

            async def in_pieces() -> str:
                """Reads some frames, hangs up, comes back with the last id it has."""
                got: list[str] = []
                while not got or "event: done" not in got[-1]:
                    headers = {"Last-Event-ID": id_of(got[-1])} if got else {}
                    client = chance.choice((http, far))
                    got += await some(client, path, headers, chance.randint(1, 4))
                return "".join(got)

            cut = asyncio.create_task(in_pieces())
            await long_answer(asked)
            assert await cut == (await uncut).text
    assert reply.status_code == 202


async def some(
    client: httpx.AsyncClient, path: str, headers: dict[str, str], count: int
) -> list[str]:
    """At most `count` frames of a stream."""
    got: list[str] = []
    async with client.stream("GET", path, headers=headers) as reply:
        assert reply.status_code == 200
        frame = ""
        async for line in reply.aiter_lines():
            frame += line + "\n"
            if line == "":
                if not frame.startswith(":"):
                    got.append(frame)
                frame = ""
                if len(got) == count:
                    break
    return got


async def test_starting_after_shows_the_tokens_that_are_missing(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    _, asked = await whole(back, edge, False)
    path = f"/v1/requests/{asked.id}/events{OPENAI}"
    async with edge.client() as http:
        for seq in range(13):
            text = (await http.get(f"{path}&starting_after={seq}")).text
            said = "".join(
                frame.partition('"delta":{"content":"')[2].partition('"')[0]
                for frame in frames_of(text)
            )
            assert said == "abcdefghijkl"[seq:]
            assert text.endswith("data: [DONE]\n\n")
        check(await http.get(f"{path}&starting_after=13"), 400, "invalid_event_id")
        check(await http.get(f"{path}&starting_after=-1"), 400, "invalid_event_id")
        check(await http.get(f"{path}&starting_after=x"), 400, "invalid_event_id")


async def test_an_event_that_never_was_is_400(back: Backstage, edge: EdgeUnderTest) -> None:
    text, asked = await whole(back, edge, False)
    first = id_of(frames_of(text)[0])
    offset = int(first.split("-")[0])
    path = f"/v1/requests/{asked.id}/events"
    wrong = [
        "x",
        "1",
        "1-2-3",
        f"{offset}-9",  # another seq
        f"{offset}-1.7",  # a frame that this record did not make
        f"{offset + 10_000}-1",  # past the end
        f"{offset + 1}-1",
    ]
    async with edge.client() as http:
        for given in wrong:
            reply = await http.get(path, headers={"Last-Event-ID": given})
            check(reply, 400, "invalid_event_id")
        check(await http.get(path + "?format=xml"), 400, "invalid_value", "format")


async def test_an_event_of_another_request_is_400(back: Backstage, edge: EdgeUnderTest) -> None:
    text, first = await whole(back, edge, False)
    slots = {record.key: record.partition for record in await back.records(TOPICS.tokens)}
    while True:  # until another one falls into the same slot
        _, second = await whole(back, edge, False)
        tokens = await back.records(TOPICS.tokens)
        slots |= {record.key: record.partition for record in tokens}
        if slots[second.id.encode()] == slots[first.id.encode()]:
            break
    async with edge.client() as http:
        reply = await http.get(
            f"/v1/requests/{second.id}/events",
            headers={"Last-Event-ID": id_of(frames_of(text)[0])},
        )
        check(reply, 400, "invalid_event_id")


async def test_an_event_that_the_log_has_dropped_is_resumed_by_its_seq(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        await http.post("/v1/requests", json=CHAT)
        asked = await back.asked()
        await asked.admit()
        await asked.open()
        placed = await asked.say("a", "b")
        for at, partition in back.cluster.partitions.items():
            if at.topic == TOPICS.tokens:
                back.cluster.trim(at, partition.end)
        path = f"/v1/requests/{asked.id}/events{OPENAI}"
        task = asyncio.create_task(
            http.get(path, headers={"Last-Event-ID": f"{placed.offset}-2.1"})
        )
        await asked.say("c", finish="stop")
        await asked.end()
        text = (await task).text
    assert '"content":"c"' in text
    assert '"content":"ab"' not in text
