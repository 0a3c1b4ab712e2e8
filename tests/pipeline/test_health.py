"""Health answers what it knows, and nobody can hold it, fill it or hang it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from pipeline import health
from pipeline.member import Member
from pipeline.settings import Settings
from pipeline.topics import Topics


def some_member() -> Member:
    return Member(
        id="ingress-1",
        role="ingress",
        epoch="e",
        log=None,  # type: ignore[arg-type]
        clock=None,  # type: ignore[arg-type]
        chance=None,  # type: ignore[arg-type]
        settings=Settings(),
        topics=Topics(),
    )


@pytest.fixture
async def served() -> AsyncIterator[tuple[Member, int]]:
    member = some_member()
    server = await health.listen(member, "127.0.0.1")
    yield member, server.sockets[0].getsockname()[1]
    server.close()


async def ask(port: int, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


async def get(port: int, path: str) -> tuple[int, Any]:
    status, headers, body = await ask(port, f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert int(headers["content-length"]) == len(body)
    return status, json.loads(body) if headers["content-type"] == "application/json" else body


async def test_alive_before_ready(served: tuple[Member, int]) -> None:
    member, port = served
    assert (await get(port, "/healthz"))[0] == 200
    member.missing = {"models": "reading the model registry"}
    status, body = await get(port, "/readyz")
    assert (status, body["missing"]) == (503, {"models": "reading the model registry"})
    member.missing.clear()
    assert (await get(port, "/readyz"))[0] == 200
    member.draining.set()
    status, body = await get(port, "/readyz?verbose")
    assert (status, body["missing"]) == (503, {"draining": "draining"})


async def test_metrics_are_prometheus_text(served: tuple[Member, int]) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    _, port = served
    status, body = await get(port, "/metrics")
    assert status == 200
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {
        "gen_ai_server_time_to_first_token_seconds",
        "gen_ai_server_request_duration_seconds",
        "headrace_requests_running",
        "headrace_requests_waiting",
        "headrace_batch_tokens",
        "headrace_kv_blocks",
        "headrace_stage_lag",
        "headrace_refusals",
    } <= names


async def test_unknown_routes_methods_and_garbage_get_clear_answers(
    served: tuple[Member, int],
) -> None:
    _, port = served
    status, body = await get(port, "/v1/models")
    assert status == 404 and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "not_found_error"
    assert (await ask(port, b"POST /healthz HTTP/1.1\r\n\r\n"))[0] == 405
    assert (await ask(port, b"hello\r\n\r\n"))[0] == 400
    status, headers, body = await ask(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


async def test_a_head_without_end_is_cut_off_by_size(served: tuple[Member, int]) -> None:
    _, port = served
    assert (await ask(port, b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000))[0] == 431


async def test_a_client_that_says_half_a_head_is_cut_off_by_time(
    served: tuple[Member, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HEAD_TIMEOUT", 0.2)
    _, port = served
    assert (await ask(port, b"GET /healthz HTT"))[0] == 408


async def test_too_many_connections_are_refused_and_the_next_ones_served(
    served: tuple[Member, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CONNECTIONS", 2)
    _, port = served
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    assert (await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 503
    for reader, writer in idle:
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200")
        writer.close()
    assert (await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200


async def test_the_port_is_chosen_and_the_member_says_where_it_is() -> None:
    member = some_member()
    port = await health.serve_health(member, "127.0.0.1")
    assert member.http == f"http://127.0.0.1:{port}"
    assert (await get(port, "/healthz"))[1]["member"] == "ingress-1"


def test_it_answers_on_the_loop_of_a_process_too() -> None:
    """Processes run on uvloop, whose transports are of another class."""

    async def main() -> int:
        server = await health.listen(some_member(), "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        status, _, _ = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        server.close()
        return status

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 200
