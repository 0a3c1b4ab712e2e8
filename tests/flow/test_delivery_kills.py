"""Delivery dies between the result and the closing event, again and again: one outcome, one end."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.flow.conftest import BROKERS, SMALL_TOPICS, started
from tests.flow.installation import Installation
from tests.flow.load import Underway, check_stream, follow, submit
from tests.flow.log_reading import decoded, records
from tests.flow.mortal_delivery import SPARE_ALL, Lives

KILLS = 50
TOKENS = 4


@pytest.fixture(scope="module", params=BROKERS)
def undelivered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Everything but delivery."""
    with started(
        request, tmp_path_factory, "undelivered", **SMALL_TOPICS,
        HEADRACE_TOPICS_PREFIX="undelivered", HEADRACE_WORKER_ENGINE="null",
        HEADRACE_UP_DELIVERY="0",
    ) as made:  # fmt: skip
        yield made


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_killed_between_its_two_writes_delivery_repeats_what_is_missing(
    undelivered: Installation,
) -> None:
    base = undelivered.url()
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=KILLS)) as http:
        ids = [await submit(http, base, number, TOKENS) for number in range(KILLS)]
        underway = Underway(KILLS)
        following = [asyncio.create_task(follow(http, base, each, underway)) for each in ids]
        lives = Lives(undelivered)
        killed: list[str] = []
        for _ in range(KILLS):
            killed.append(await asyncio.to_thread(lives.until_killed, killed))
        assert sorted(killed) == sorted(ids), "each request's result was the last word of one life"
        process, _ = lives.begin([SPARE_ALL])
        try:
            streams = await asyncio.gather(*following)
        finally:
            process.terminate()
            await asyncio.to_thread(process.join, 30)
    assert process.exitcode == 0
    for request_id, events in zip(ids, streams, strict=True):
        check_stream(request_id, events, TOKENS)  # one closing event at the client
    told = await asyncio.to_thread(all_results, undelivered)
    for request_id in ids:
        assert all(result == told[request_id][0] for result in told[request_id])
    assert set(told) == set(ids)


def all_results(headrace: Installation) -> dict[str, list[dict[str, object]]]:
    """Every result record there is, repeats included, by request."""
    found: dict[str, list[dict[str, object]]] = {}
    for message in records(headrace.kafka, headrace.topic("results"), to_end=True):
        result = decoded(message)
        found.setdefault(result["id"], []).append(result)
    return found
