"""Many streams at once: each says what it would have said alone, and short ones do not wait for long ones."""

import asyncio
import json
import math
import random
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.flow.conftest import BROKERS
from tests.flow.installation import MODEL, Installation
from tests.flow.streams import metric
from tests.flow.waiting import until

STREAMS = 64
SAID: dict[str, list[str]] = {}  # by the first broker's streams, for the second one's
TIERS = ("priority", "default", "flex")


def wishes() -> list[dict[str, Any]]:
    """64 requests, lengths log-uniform from 4 to 400, three lanes, half greedy and half seeded."""
    chance = random.Random(11)
    topics = ["rivers", "clocks", "bread", "the moon", "bridges", "winter", "maps", "glass"]
    made = []
    for number in range(STREAMS):
        length = round(math.exp(chance.uniform(math.log(4), math.log(400))))
        sampling = {"temperature": 0} if number % 2 else {"temperature": 1, "seed": number}
        made.append(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"Tell me about {chance.choice(topics)}"}],
                "max_tokens": length,
                "service_tier": TIERS[number % 3],
                "extra_body": {"ignore_eos": True},
                **sampling,
            }
        )
    return made


async def ask(
    client: AsyncOpenAI, wish: dict[str, Any], order: list[int] | None = None, number: int = 0
) -> str:
    stream = await client.chat.completions.create(**wish, stream=True)
    parts = [c.choices[0].delta.content or "" async for c in stream if c.choices]
    if order is not None:
        order.append(number)
    return "".join(parts)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_64_streams_finish_and_each_equals_the_same_request_alone(
    headrace: Installation,
) -> None:
    asked = wishes()
    order: list[int] = []
    async with AsyncOpenAI(
        base_url=f"{headrace.url()}/v1", api_key="none", timeout=800, max_retries=0
    ) as client:
        together = await asyncio.gather(
            *(ask(client, wish, order, number) for number, wish in enumerate(asked))
        )
        url = str(headrace.member("worker-1")["metrics"])
        until(lambda: metric(url, "headrace_batch_occupancy_max") > 16)  # they ran together
        assert all(together)
        # alone: half of them on each broker, so that the suite stays quick; together they are the same
        mine = BROKERS.index(headrace.broker)
        for number in (each for each in range(STREAMS) if each // 2 % len(BROKERS) == mine):
            assert await ask(client, asked[number]) == together[number], json.dumps(asked[number])
    assert SAID.setdefault("together", together) == together, "another answer on another broker"


@pytest.mark.timeout(300)
async def test_a_late_short_request_finishes_before_an_early_long_one(
    headrace: Installation,
) -> None:
    def wish(tokens: int) -> dict[str, Any]:
        return {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a story"}],
                "max_tokens": tokens, "temperature": 0, "extra_body": {"ignore_eos": True}}  # fmt: skip

    order: list[int] = []
    async with AsyncOpenAI(
        base_url=f"{headrace.url()}/v1", api_key="none", timeout=200, max_retries=0
    ) as client:
        stream = await client.chat.completions.create(**wish(300), stream=True)
        first = await anext(aiter(stream))
        assert first.choices

        async def read_on() -> None:
            async for _ in stream:
                pass
            order.append(300)

        long = asyncio.create_task(read_on())
        await ask(client, wish(4), order, 4)
        await long
    assert order == [4, 300]
