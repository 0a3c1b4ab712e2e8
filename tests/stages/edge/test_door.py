"""What is turned away at the door, and how it is told."""

import asyncio
import hashlib
from typing import Any

import httpx
import msgspec
import pytest

from pipeline.log import Record
from pipeline.member import Fatal

from .backstage import CHAT, MODEL, TOPICS, Asked, Backstage, EdgeUnderTest, an_edge, eventually

BAD = [
    (b"{", "invalid_json", None),
    (b'{"model":"m","messages":"x"}', "invalid_type", "messages"),
    (b'{"model":"m"}', "missing_parameter", "messages"),
    (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":3}',
        "invalid_value",
        "temperature",
    ),
    (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"temprature":1}',
        "unsupported_parameter",
        "temprature",
    ),
]


def check(reply: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert reply.headers["headrace-reason"] == code
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize(("body", "code", "param"), BAD)
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/requests"])
async def test_a_bad_body_names_the_field(
    edge: EdgeUnderTest, route: str, body: bytes, code: str, param: str | None
) -> None:
    async with edge.client() as http:
        check(await http.post(route, content=body), 400, code, param)


async def test_unknown_routes_and_methods_are_errors_in_openais_shape(edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        check(await http.get("/v1/nothing"), 404, "route_not_found")
        check(await http.post("/v1/embeddings", json={}), 404, "route_not_found")
        check(await http.get("/v1/models/"), 404, "route_not_found")
        told = (await http.get("/")).json()  # who has only the address finds the rest
        for path in (told["models"], told["description"], *told["state"]):
            assert (await http.get(path)).status_code in (200, 503), path
        reply = await http.get("/v1/chat/completions")
        check(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == "POST"


async def test_a_key_names_the_tenant_and_no_key_is_401(back: Backstage) -> None:
    keys = {hashlib.sha256(b"secret").hexdigest(): "acme"}
    async with an_edge(back, keys=keys) as edge, edge.client() as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            reply = await http.post("/v1/requests", json=CHAT, headers=headers)
            check(reply, 401, "invalid_api_key")
            check(await http.get("/v1/models", headers=headers), 401, "invalid_api_key")
        right = {"Authorization": "Bearer secret", "tenant": "other", "X-Tenant": "other"}
        assert (await http.post("/v1/requests", json=CHAT, headers=right)).status_code == 202
        assert (await back.asked()).tenant == "acme"
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("given", ["soon", "1.5", "-1", "1000", "9" * 16])
async def test_a_deadline_that_is_garbage_or_past_is_400(edge: EdgeUnderTest, given: str) -> None:
    async with edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT, headers={"X-Request-Deadline": given})
        check(reply, 400, "invalid_deadline", "X-Request-Deadline")


async def test_the_earlier_of_two_deadlines_wins(back: Backstage, edge: EdgeUnderTest) -> None:
    now = back.cluster.clock.ms()

    async def left(body: dict[str, Any], header: int | None = None) -> float:
        headers = {} if header is None else {"X-Request-Deadline": str(now + header)}
        async with edge.client() as http:
            reply = await http.post("/v1/requests", json=CHAT | body, headers=headers)
        assert reply.status_code == 202
        return (int((await back.asked()).headers["deadline"]) - now) / 1000

    assert 60 <= await left({"timeout": 60}) < 90
    assert await left({"timeout": 60}, 20_000) == 20
    assert 3600 <= await left({}) < 3630
    assert 86_400 <= await left({"service_tier": "flex"}) < 86_430
    assert 86_400 <= await left({}, 10 * 86_400_000) < 86_430


async def test_a_client_id_that_is_not_visible_ascii_is_400(edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        for given in ("", "a b", "x" * 129):
            reply = await http.post("/v1/requests", json=CHAT, headers={"X-Request-ID": given})
            check(reply, 400, "invalid_value", "X-Request-ID")


async def refused(http: httpx.AsyncClient) -> httpx.Response | None:
    reply = await http.post("/v1/requests", json=CHAT)
    return None if reply.status_code == 202 else reply


async def test_without_a_live_worker_503_says_when_to_return(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    back.worker = msgspec.structs.replace(back.worker, slots=0)
    async with edge.client() as http:
        reply = await eventually(lambda: refused(http))
        assert reply is not None
        check(reply, 503, "no_live_worker")
        assert int(reply.headers["retry-after"]) >= 1


async def test_a_lane_over_its_target_is_429_with_a_computed_wait(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    busy = {"waiting": {"silver": 1000}, "rate": {"silver": 10.0, "gold": 10.0}}
    back.orchestrator = msgspec.structs.replace(
        back.orchestrator, **busy, sampled=back.cluster.clock.ms()
    )
    async with edge.client() as http:
        reply = await eventually(lambda: refused(http))
        assert reply is not None
        check(reply, 429, "lane_overloaded")
        assert 60 <= int(reply.headers["retry-after"]) <= 110  # about 70 s of work too much
        gold = await http.post("/v1/requests", json=CHAT | {"service_tier": "priority"})
        assert gold.status_code == 202


async def test_an_unacknowledged_publish_is_503_with_the_id_and_a_cancel(back: Backstage) -> None:
    async with an_edge(back, publish_wait=0.2, verdict_wait=0.2) as edge, edge.client() as http:
        places = [p for p in back.cluster.partitions if p.topic == TOPICS.requests]
        back.cluster.set_available(places, False)
        for body in (CHAT, CHAT | {"stream": True}):
            reply = await http.post("/v1/chat/completions", json=body)
            check(reply, 503, "broker_unavailable")
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.headers["headrace-request-id"] in reply.json()["error"]["message"]
        back.cluster.set_available(places, True)
        first, second = await back.asked(), await back.asked()

        async def cancels() -> list[Record]:
            found = await back.records(TOPICS.ledger)
            return found if len(found) == 2 else []

        records = await eventually(cancels)
        assert {record.key for record in records} == {first.id.encode(), second.id.encode()}


async def test_models_health_version_and_the_description(
    back: Backstage, edge: EdgeUnderTest
) -> None:
    async with edge.client() as http:
        one = (await http.get("/v1/models")).json()["data"][0]
        assert (one["id"], one["max_model_len"]) == (MODEL, 512)
        assert (await http.get(f"/v1/models/{MODEL}")).json() == one
        check(await http.get("/v1/models/other"), 404, "model_not_found")
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).json()["ready"] is True
        assert "headrace_requests_total" in (await http.get("/metrics")).text
        assert (await http.get("/version")).json()["version"]
        document = (await http.get("/openapi.json")).json()
        assert "/v1/chat/completions" in document["paths"]


async def test_readiness_names_what_is_missing(back: Backstage, edge: EdgeUnderTest) -> None:
    back.cluster.set_available(list(back.cluster.partitions), False)
    async with edge.client() as http:

        async def unready() -> httpx.Response | None:
            reply = await http.get("/readyz")
            return reply if reply.status_code == 503 else None

        reply = await eventually(unready)
        assert reply is not None
        refused = await http.post("/v1/requests", json=CHAT)
        check(refused, 503, "broker_unavailable")
        waits = {int(refused.headers["retry-after"])}
        async with asyncio.timeout(30):
            while len(waits) < 2:  # spread, so that not everybody comes back at once
                refused = await http.post("/v1/requests", json=CHAT)
                waits.add(int(refused.headers["retry-after"]))
        assert min(waits) >= 1
    back.cluster.set_available(list(back.cluster.partitions), True)
    assert "broker" in reply.json()["missing"]


async def test_idempotency_without_a_store_is_503(edge: EdgeUnderTest) -> None:
    async with edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT, headers={"Idempotency-Key": "k"})
        check(reply, 503, "store_unavailable")


async def test_a_store_that_does_not_answer_is_503_for_keyed_requests_alone(
    back: Backstage,
) -> None:
    async with an_edge(back, store="redis://127.0.0.1:1") as edge, edge.client() as http:
        reply = await http.post("/v1/requests", json=CHAT, headers={"Idempotency-Key": "k"})
        check(reply, 503, "store_unavailable")
        assert int(reply.headers["retry-after"]) >= 1
        assert (await http.post("/v1/requests", json=CHAT)).status_code == 202


@pytest.mark.redis
async def test_one_key_is_one_request(back: Backstage, redis_server: str) -> None:
    key = {"Idempotency-Key": f"k-{back.cluster.clock.ms()}"}
    async with an_edge(back, store=redis_server) as edge, edge.client() as http:
        first = await http.post("/v1/requests", json=CHAT, headers=key)
        again = await http.post("/v1/requests", json=CHAT, headers=key)
        assert (first.status_code, again.status_code) == (202, 202)
        assert again.json()["id"] == first.json()["id"]
        assert again.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
        other = await http.post("/v1/requests", json=CHAT | {"seed": 1}, headers=key)
        check(other, 409, "idempotency_conflict")
        assert other.headers["x-should-retry"] == "false"
        asked = await back.asked()
        assert back.requests.empty()
        await asked.answer("a", "b")
        whole = await http.post("/v1/requests", json=CHAT, headers=key)
        assert whole.status_code == 202


@pytest.mark.redis
async def test_a_repeated_stream_attaches_on_any_edge(back: Backstage, redis_server: str) -> None:
    key = {"Idempotency-Key": f"s-{back.cluster.clock.ms()}"}
    body = CHAT | {"stream": True}

    async def answered(asked: Asked) -> None:
        await asked.answer("a", "b", "c")

    server = asyncio.create_task(back.serve(answered))
    async with (
        an_edge(back, store=redis_server) as one,
        an_edge(back, "edge-4", store=redis_server) as two,
        one.client() as near,
        two.client() as far,
    ):
        first = await near.post("/v1/chat/completions", json=body, headers=key)
        again = await far.post("/v1/chat/completions", json=body, headers=key)
    server.cancel()
    assert again.headers["idempotency-replayed"] == "true"
    assert again.text == first.text
    assert len(await back.records(TOPICS.requests)) == 1


@pytest.mark.redis
async def test_a_key_whose_request_was_never_published_is_published_under_its_id(
    back: Backstage, redis_server: str
) -> None:
    key = {"Idempotency-Key": f"p-{back.cluster.clock.ms()}"}
    async with (
        an_edge(back, store=redis_server, publish_wait=0.2) as one,
        one.client() as http,
    ):
        first = await http.post("/v1/requests", json=CHAT, headers=key)
        await back.asked()
        for at, partition in back.cluster.partitions.items():
            if at.topic == TOPICS.requests:
                back.cluster.trim(at, partition.end)  # as if the first edge had died before
        async with an_edge(back, "edge-2", store=redis_server) as two, two.client() as far:
            again = await far.post("/v1/requests", json=CHAT, headers=key)
        assert again.json()["id"] == first.json()["id"] == (await back.asked()).id


@pytest.mark.redis
async def test_one_of_two_that_wait_under_a_key_may_leave(
    back: Backstage, redis_server: str
) -> None:
    key = {"Idempotency-Key": f"w-{back.cluster.clock.ms()}"}
    async with an_edge(back, store=redis_server) as edge, edge.client() as http:
        leaves = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT, headers=key))
        asked = await back.asked()
        async with edge.client() as second:
            stays = asyncio.create_task(second.post("/v1/chat/completions", json=CHAT, headers=key))

            async def attached(count: int) -> bool:
                return len(await back.records(TOPICS.control)) >= count

            await eventually(lambda: attached(2))
            leaves.cancel()
            await eventually(lambda: attached(3))
            await asked.answer("a", "b")
            assert (await stays).json()["choices"][0]["message"]["content"] == "ab"
    assert all(record.key == asked.id.encode() for record in await back.records(TOPICS.ledger))
    assert len(await back.records(TOPICS.ledger)) == 1  # the output alone, no cancel


@pytest.mark.redis
async def test_after_an_unacknowledged_publish_a_key_leads_back_to_the_request(
    back: Backstage, redis_server: str
) -> None:
    key = {"Idempotency-Key": f"u-{back.cluster.clock.ms()}"}
    places = [place for place in back.cluster.partitions if place.topic == TOPICS.requests]
    async with (
        an_edge(back, store=redis_server, publish_wait=0.2) as edge,
        edge.client() as http,
    ):
        back.cluster.set_available(places, False)
        reply = await http.post("/v1/requests", json=CHAT, headers=key)
        check(reply, 503, "broker_unavailable")
        back.cluster.set_available(places, True)
        asked = await back.asked()
        again = await http.post("/v1/requests", json=CHAT, headers=key)
        assert again.json()["id"] == asked.id == reply.headers["headrace-request-id"]
    assert not await back.records(TOPICS.ledger)


async def test_a_taken_port_ends_the_edge_with_a_word(back: Backstage, edge: EdgeUnderTest) -> None:
    with pytest.raises(Fatal, match=f"{edge.port}.*--http") as fatal:
        async with an_edge(back, "edge-2", port=edge.port):
            pass
    assert fatal.value.exit_code == 75
