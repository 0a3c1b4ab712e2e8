"""Orders: for this life alone, each taken once, none lost without a word."""

import asyncio

from schemas.ledger import Output, Released
from schemas.tokens import Open
from tests.workers.stand import TOPICS, Stand, status, virtual, worker


def test_orders_of_another_life_or_another_worker_are_left_alone() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            other = stand.order(member, epoch="another")
            await stand.send(other)
            ours = stand.order(member)
            await stand.send(ours)
            await stand.end(ours.request_id)
            assert stand.ledger(other.request_id) == []
            assert stand.slot(other.request_id) == []

    virtual(main)


def test_an_order_that_comes_twice_is_taken_once() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member)
            await stand.send(order)
            await stand.end(order.request_id)
            await stand.send(order)
            await asyncio.sleep(5)
            assert len(stand.ledger(order.request_id)) == 1
            assert sum(isinstance(e, Open) for e in stand.slot(order.request_id)) == 1

    virtual(main)


def test_an_order_beyond_the_credits_is_given_back() -> None:
    async def main() -> None:
        stand = Stand(slots=4)
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, count=1000)
            await stand.send(order)
            released = await stand.end(order.request_id)
            assert isinstance(released, Released)
            assert released.why == "full"
            assert stand.slot(order.request_id) == []

    virtual(main)


def test_an_order_for_another_model_or_revision_is_given_back() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            for ready in (stand.ready(model="n"), stand.ready(revision="s")):
                await stand.send(stand.order(member, ready))
                released = await stand.end(ready.request_id)
                assert isinstance(released, Released) and released.why == "wrong_model"
            moved = stand.ready(revision="s")
            await stand.send(stand.order(member, moved, same_answer=False))
            output = await stand.end(moved.request_id)
            assert isinstance(output, Output) and output.same_answer is False

    virtual(main)


def test_an_order_that_nobody_can_read_is_kept_and_given_back() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member)
            headers = (("request-id", order.request_id.encode()), ("attempt", b"1"), ("x", b"\xff"))
            partition = status(stand).inbox
            await stand.write(
                TOPICS.work, b"\xc1rubbish", key=b"k", partition=partition, headers=headers
            )
            released = await stand.end(order.request_id)
            assert isinstance(released, Released) and released.why == "unreadable"
            letter = stand.everything(TOPICS.dead("worker"))[0]
            assert (letter.value, letter.key) == (b"\xc1rubbish", b"k")
            assert letter.headers[:3] == headers
            await stand.send(order)  # the inbox goes on

    virtual(main)
