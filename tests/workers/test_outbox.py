"""What a worker writes, in which order, and in whose encoding."""

import asyncio
import random

import pytest

from schemas.ledger import Output
from schemas.tokens import Chunk, Open
from tests.workers.stand import TOPICS, Stand, answer, listed, virtual, words, worker
from workers.null import WORDS


def test_an_order_becomes_open_chunks_and_one_output() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member)
            await stand.send(order)
            output = await stand.end(order.request_id)
            slot = stand.slot(order.request_id)
        assert isinstance(output, Output)
        assert (output.outcome, output.attempt) == ("completed", 1)
        assert output.choices[0].ids == answer([1, 2, 3], 20) == words(slot)[0]
        assert output.choices[0].finish_reason == "length"
        assert output.choices[0].pieces == [WORDS[i] for i in output.choices[0].ids]
        assert output.usage.total_tokens == 23
        assert isinstance(slot[0], Open)
        assert isinstance(slot[-1], Chunk) and slot[-1].finish == "length"
        assert {"worker", "first_token"} <= output.entered.keys()

    virtual(main)


@pytest.mark.parametrize("seed", range(20))
def test_the_outcome_is_written_after_the_last_chunk_whatever_the_order_of_events(
    seed: int,
) -> None:
    async def main() -> None:
        stand = Stand(null_rate=random.Random(seed).choice([0.0, 40.0, 400.0]))
        await stand.begin()
        async with worker(stand) as member:
            orders = [stand.order(member) for _ in range(5)]
            for order in orders:
                await stand.send(order)
            for order in orders:
                output = await stand.end(order.request_id)
                assert isinstance(output, Output)
                assert isinstance(output, Output)
                assert words(stand.slot(order.request_id))[0] == output.choices[0].ids

    virtual(main, seed)


def test_an_output_waits_for_the_chunks_to_be_acknowledged() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            slots = [at for at in stand.cluster.partitions if at.topic == TOPICS.tokens]
            order = stand.order(member)
            stand.cluster.set_available(slots, False)
            await stand.send(order)
            await asyncio.sleep(3)
            assert stand.ledger(order.request_id) == []
            assert (order.request_id, 1) in listed(stand)
            stand.cluster.set_available(slots, True)
            output = await stand.end(order.request_id)
            assert isinstance(output, Output)
            assert words(stand.slot(order.request_id))[0] == output.choices[0].ids
            await stand.until(lambda: not listed(stand))

    virtual(main)


def test_a_run_is_listed_until_its_output_is_acknowledged() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            ledger = [at for at in stand.cluster.partitions if at.topic == TOPICS.ledger]
            order = stand.order(member)
            stand.cluster.set_available(ledger, False)
            await stand.send(order)
            await asyncio.sleep(5)
            assert listed(stand) == [(order.request_id, 1)]
            stand.cluster.set_available(ledger, True)
            await stand.end(order.request_id)
            await stand.until(lambda: not listed(stand))

    virtual(main)


def test_tokens_that_come_slowly_are_written_one_by_one_and_quick_ones_together() -> None:
    async def main() -> None:
        for rate, chunks in ((5.0, 20), (200.0, 4)):
            stand = Stand(null_rate=rate)
            await stand.begin()
            async with worker(stand) as member:
                order = stand.order(member)
                await stand.send(order)
                await stand.end(order.request_id)
                said = [e for e in stand.slot(order.request_id) if isinstance(e, Chunk)]
                assert len(said[0].ids) == 1, "the first token waits for nobody"
                assert chunks <= len(said) <= chunks + 2

    virtual(main)


def test_who_publishes_json_reads_json() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, stand.ready(encoding="json", correlation_id="c-1"))
            await stand.send(order)
            await stand.end(order.request_id)
            for record in stand.everything(TOPICS.tokens):
                assert record.value is not None and record.value[:1] in (b"{", b"[")
                headers = dict(record.headers)
                assert headers["content-type"] == b"application/json"
                assert headers["correlation-id"] == b"c-1"
                assert headers["tenant"] == b"t"

    virtual(main)
