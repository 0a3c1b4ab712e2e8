"""`/v1/requests`: begin, look, follow, cancel, on any edge."""

import asyncio

import httpx
import msgspec
import pytest

from pipeline.log import Commit, Outgoing, TopicPartition
from schemas.codec import decode
from schemas.control import Attach, ControlRecord, Detach
from schemas.errors import Error
from schemas.ids import partition_of
from schemas.ledger import Cancel, LedgerRecord
from schemas.request import Request

from .backstage import (
    CHAT,
    MODEL,
    TOPICS,
    Asked,
    Backstage,
    EdgeUnderTest,
    an_edge,
    events_of,
    eventually,
    foreign_name,
    said_in,
)
from .test_door import check


async def begin(back: Backstage, http: httpx.AsyncClient) -> Asked:
    reply = await http.post("/v1/requests", json=CHAT)
    assert reply.status_code == 202
    return await back.asked()


async def test_a_request_is_accepted_with_its_places(back: Backstage, edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT)
    body = reply.json()
    assert reply.status_code == 202
    assert reply.headers["location"] == f"/v1/requests/{body['id']}"
    assert body | {"id": 0, "created": 0, "events_url": 0} == {
        "id": 0,
        "object": "request",
        "state": "queued",
        "created": 0,
        "model": MODEL,
        "lane": "silver",
        "events_url": 0,
    }
    assert body["events_url"] == f"/v1/requests/{body['id']}/events"
    assert (await back.asked()).id == body["id"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_get_shows_every_state(back: Backstage, edge: EdgeUnderTest, elsewhere: bool) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        async with an_edge(back, foreign_name(asked.id)) as other, other.client() as far:
            client = far if elsewhere else http
            path = f"/v1/requests/{asked.id}"
            seen = (await client.get(path)).json()
            assert (seen["state"], seen["outcome"], seen["attempt"]) == ("queued", None, 0)
            assert (seen["model"], seen["lane"]) == (MODEL, "silver")
            assert seen["estimate"] is not None
            await asked.admit()
            assert (await client.get(path)).json()["state"] == "queued"
            await asked.open()
            await asked.say("a", "b", finish="stop")
            seen = (await client.get(path)).json()
            assert (seen["state"], seen["attempt"], seen["output_tokens"]) == ("running", 1, 2)
            result = await asked.end()
            seen = (await client.get(path)).json()
            assert seen["state"] == "completed"
            assert seen["outcome"] == msgspec.to_builtins(result)


async def ready(back: Backstage, partition: int, key: str) -> None:
    """A record of the silver lane; what it says matters to nobody here."""
    writer = await back.log.writer()
    await writer.send(Outgoing(TOPICS.ready("silver"), b"", key=key.encode(), partition=partition))


async def test_a_position_counts_the_whole_lane(back: Backstage, edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        own = partition_of(asked.id, TOPICS.ledger_partitions)
        other = (own + 1) % TOPICS.ledger_partitions
        for number in range(3):
            await ready(back, own, f"before-{number}")
            await ready(back, other, f"beside-{number}")
        await ready(back, own, asked.id)
        await asyncio.sleep(0.01)  # the next one is a millisecond later
        await ready(back, other, "after")
        seen = (await http.get(f"/v1/requests/{asked.id}")).json()
        assert seen["position"] == 6
        leased = TOPICS.group("orchestration.ready")
        places = {TopicPartition(TOPICS.ready("silver"), p): Commit(2) for p in (own, other)}
        await back.log.admin.commit(leased, places)
        assert (await http.get(f"/v1/requests/{asked.id}")).json()["position"] == 2


async def test_a_native_stream_says_how_long_it_waits_without_an_id(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        await ready(back, partition_of(asked.id, TOPICS.ledger_partitions), asked.id)
        await asked.admit()
        async with http.stream("GET", f"/v1/requests/{asked.id}/events") as stream:
            lines = stream.aiter_lines()
            async with asyncio.timeout(30):
                async for line in lines:
                    if line == "event: position":
                        break
                said = msgspec.json.decode((await anext(lines)).removeprefix("data: "))
                assert said["position"] == 0 and said["estimate"] is not None
                await asked.open()
                await asked.say("a", finish="stop")
                await asked.end()
                rest = [line async for line in lines]
        assert "event: done" in rest and "event: position" not in rest
        again = (await http.get(f"/v1/requests/{asked.id}/events")).text
        assert all("id" in event for event in events_of(again))


async def test_what_is_not_there_is_404_and_what_is_forgotten_410(edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        for name in ("nonsense", "req_0193a5c0-0000-7000-8000-00000000000g"):
            check(await http.get(f"/v1/requests/{name}"), 404, "request_not_found")
        new = "req_019ab5c0-0000-7000-8000-000000000001"
        old = "req_0180a5c0-0000-7000-8000-000000000001"
        far = "req_0fffa5c0-0000-7000-8000-000000000001"
        check(await http.get(f"/v1/requests/{far}"), 404, "request_not_found")
        check(await http.get(f"/v1/requests/{old}"), 410, "request_gone")
        check(await http.get(f"/v1/requests/{old}/events"), 410, "request_gone")
        reply = await http.delete(f"/v1/requests/{new}")
        assert reply.status_code in (404, 410)


async def test_another_tenants_request_is_404(back: Backstage) -> None:
    import hashlib

    keys = {hashlib.sha256(name.encode()).hexdigest(): name for name in ("a", "b")}
    mine, theirs = ({"Authorization": f"Bearer {name}"} for name in ("a", "b"))
    async with an_edge(back, keys=keys) as edge, edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT, headers=mine)
        asked = await back.asked()
        path = f"/v1/requests/{reply.json()['id']}"
        async with an_edge(back, foreign_name(asked.id), keys=keys) as other, other.client() as far:
            for step in (asked.admit, asked.open, asked.end):
                for client in (http, far):
                    for url in (path, f"{path}/events"):
                        check(await client.get(url, headers=theirs), 404, "request_not_found")
                    check(await client.delete(path, headers=theirs), 404, "request_not_found")
                await step()
        assert (await http.get(path, headers=mine)).status_code == 200


async def test_events_tell_a_request_from_its_beginning(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        follow = asyncio.create_task(http.get(f"/v1/requests/{asked.id}/events"))
        await asked.answer("a", "b", "c")
        live = await follow
        later = await http.get(f"/v1/requests/{asked.id}/events")
    assert later.text == live.text
    events = events_of(live.text)
    names = [event["event"] for event in events]
    assert names == ["queued", "started", *["chunk"] * 4, "done"]
    assert msgspec.json.decode(events[1]["data"]) == {"attempt": 1}
    done = msgspec.json.decode(events[-1]["data"])
    assert (done["outcome"], done["choices"][0]["text"]) == ("completed", "abc")
    assert all("id" in event for event in events)


async def test_a_second_attempt_shows_that_it_started(back: Backstage, edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        await asked.admit()
        await asked.open(1)
        await asked.open(1)
        await asked.say("a")
        await asked.open(2)
        await asked.open(3, silent=True)
        await asked.end("cancelled", attempt=3)
        reply = await http.get(f"/v1/requests/{asked.id}/events")
    events = events_of(reply.text)
    assert [e["event"] for e in events].count("started") == 2
    assert events[-1]["event"] == "done"


async def test_a_finished_request_whose_slot_is_forgotten_has_done_alone(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        await asked.answer("a", "b")
        for at, partition in back.cluster.partitions.items():
            if at.topic == TOPICS.tokens:
                back.cluster.trim(at, partition.end)
        native = await http.get(f"/v1/requests/{asked.id}/events")
        framed = await http.get(f"/v1/requests/{asked.id}/events?format=openai")
    events = events_of(native.text)
    assert [event["event"] for event in events] == ["done"]
    assert "id" not in events[0]
    assert said_in(framed.text) == "ab"


async def test_a_cancel_is_in_the_log_before_it_is_answered(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        task = asyncio.create_task(http.delete(f"/v1/requests/{asked.id}"))
        records = await eventually(lambda: back.records(TOPICS.ledger))
        record = decode(records[0].value, LedgerRecord)
        assert isinstance(record, Cancel)
        assert (record.request_id, record.why, record.tenant) == (asked.id, "asked", "default")
        await asked.end("cancelled", error=Error(message="x", type="y", code="request_cancelled"))
        reply = await task
        assert (reply.status_code, reply.json()["state"]) == (200, "cancelled")
        again = await http.delete(f"/v1/requests/{asked.id}")
        assert (again.status_code, again.json()["state"]) == (200, "cancelled")


async def test_a_cancel_without_an_outcome_in_time_is_202(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        reply = await http.delete(f"/v1/requests/{asked.id}")
        assert (reply.status_code, reply.json()["state"]) == (202, "queued")


async def controls(back: Backstage, least: int = 0) -> list[Attach | Detach]:
    """What is on `hr.control`, if it is at least so much."""
    records = await back.records(TOPICS.control)
    return [decode(one.value, ControlRecord) for one in records] if len(records) >= least else []


async def test_a_client_that_leaves_a_stream_is_a_detach(back: Backstage) -> None:
    async with an_edge(back, verdict_wait=0.1) as edge, edge.client() as http:
        async with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}):
            asked = await back.asked()
            await asked.admit()
        told = await eventually(lambda: controls(back, 2))
    attach, detach = told
    assert isinstance(attach, Attach) and isinstance(detach, Detach)
    assert (attach.request_id, attach.grace) == (asked.id, 15_000)
    assert (detach.stream, detach.gone) == (attach.stream, True)
    assert not await back.records(TOPICS.ledger)


async def test_a_client_that_leaves_before_the_ack_is_a_detach_too(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    places = [place for place in back.cluster.partitions if place.topic == TOPICS.requests]
    back.cluster.set_available(places, False)
    async with edge.client() as http:
        task = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
        await eventually(lambda: controls(back, 1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    back.cluster.set_available(places, True)
    told = await eventually(lambda: controls(back, 2))
    assert isinstance(told[1], Detach) and told[1].gone
    assert not await back.records(TOPICS.ledger)


async def test_a_client_that_leaves_a_whole_answer_cancels_at_once(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        task = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
        asked = await back.asked()
        task.cancel()
        records = await eventually(lambda: back.records(TOPICS.ledger))
    record = decode(records[0].value, LedgerRecord)
    assert (record.request_id, record.why) == (asked.id, "client_gone")


async def test_who_only_reads_events_cancels_nothing_by_leaving(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        asked = await begin(back, http)
        async with http.stream("GET", f"/v1/requests/{asked.id}/events"):
            told = await eventually(lambda: controls(back, 1))
    assert [one.grace for one in told if isinstance(one, Attach)] == [0]


async def test_an_edge_that_drains_closes_with_retry_and_cancels_nothing(back: Backstage) -> None:
    async with an_edge(back) as edge, edge.client() as http:
        asked = await begin(back, http)
        async with http.stream("GET", f"/v1/requests/{asked.id}/events") as reply:
            await asked.admit()
            lines = reply.aiter_lines()
            assert (await anext(lines)).startswith("id: ")
            await edge.stop()
            rest = [line async for line in lines]
        assert "retry: 1000" in rest
    assert not any(isinstance(one, Detach) and one.gone for one in await controls(back))
    assert not await back.records(TOPICS.ledger)


async def test_a_draining_edge_finishes_what_it_answers(back: Backstage) -> None:
    async with an_edge(back) as edge, edge.client() as http:
        task = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
        asked = await back.asked()
        await asked.admit()
        await asked.open()
        stop = asyncio.create_task(edge.stop())
        await asked.say("a", "b", finish="stop")
        await asked.end()
        assert said_in((await task).text) == "ab"
        await stop


async def test_a_published_request_is_followed_like_any_other(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    """By its id alone: the edge never heard of it before."""
    from schemas.codec import encode, headers_of
    from schemas.ids import mint

    request_id = mint(back.cluster.clock.ms(), edge.member.chance)
    request = Request(model=MODEL, prompt="hi")
    await back.send(
        TOPICS.requests,
        request_id,
        encode(request),
        headers_of("request/1", request_id=request_id, tenant="default", lane="gold"),
    )
    asked = await back.asked()
    async with edge.client() as http:
        seen = (await http.get(f"/v1/requests/{request_id}")).json()
        assert (seen["state"], seen["lane"]) == ("queued", "gold")
        await asked.answer("a", "b")
        reply = await http.get(f"/v1/requests/{request_id}/events?format=openai")
    assert said_in(reply.text) == "ab"
    assert '"object":"text_completion"' in reply.text
