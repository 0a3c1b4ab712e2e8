"""Which id a request has, and that one id is one request."""

import asyncio

import pytest

from schemas.codec import encode, text_header
from schemas.ids import derive
from schemas.intake import parse_body
from tests.stages.ingress.stand import HELLO, TOPICS, Stand, virtual

FIVE_MINUTES = 300_000


def test_a_record_without_an_id_gets_one_that_redelivery_cannot_change() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with stand.ingress():
            placed = await stand.publish(HELLO, key=b"anything", partition=1)
            await stand.settle()
        stand.cluster.groups.clear()
        async with stand.ingress():
            await stand.settle()
        expected = derive(placed.timestamp, TOPICS.requests, 1, placed.offset)
        assert [made.request_id for made in stand.ready()] == [expected] * 2

    virtual(main)


@pytest.mark.parametrize("where", ["body", "key", "header"])
def test_a_supplied_id_counts_wherever_it_stands(where: str) -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        id = stand.mint()
        async with stand.ingress():
            await stand.publish(
                HELLO | ({"id": id} if where == "body" else {}),
                key=id.encode() if where == "key" else None,
                headers={"request-id": id.encode()} if where == "header" else {},
            )
            await stand.settle()
        (made,) = stand.ready()
        assert made.request_id == id

    virtual(main)


@pytest.mark.parametrize("bad", ["shape", "type", "differs", "old", "future"])
def test_an_id_that_cannot_be_goes_to_the_dead_letters_under_another_one(bad: str) -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        body, key = dict(HELLO), None
        if bad == "differs":
            body["id"], key = stand.mint(), stand.mint().encode()
        elif bad == "type":
            body["id"] = 7
        else:
            off = {"old": -FIVE_MINUTES - 1000, "future": FIVE_MINUTES + 1000}
            body["id"] = "req_nonsense" if bad == "shape" else stand.mint(off[bad])
        async with stand.ingress():
            placed = await stand.publish(body, key=key)
            await stand.settle()
        (letter,), (output,) = stand.letters(), stand.outputs()
        assert (text_header(letter.headers, "__dlq.errors.message") or "").startswith("bad_id")
        assert output.request_id == derive(placed.timestamp, TOPICS.requests, 0, placed.offset)
        assert output.error is not None and output.error.code == "invalid_record"
        assert stand.ready() == []

    virtual(main)


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_id_with_the_same_body_is_one_request(restart: bool) -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        body = HELLO | {"id": stand.mint()}
        async with stand.ingress():
            await stand.publish(body)
            await stand.settle()
            if not restart:
                await stand.publish(body, partition=1)
                await stand.settle()
        if restart:  # what was let pass is found in the log
            async with stand.ingress():
                await stand.publish(dict(reversed(body.items())), partition=1)
                await stand.settle()
        assert [made.request_id for made in stand.ready()] == [body["id"]]
        assert (stand.outputs(), stand.letters()) == ([], [])

    virtual(main)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("other", ["body", "tenant", "refused"])
def test_the_same_id_for_something_else_is_a_conflict(other: str, restart: bool) -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        body = HELLO | {"id": stand.mint()}
        first = body | ({"temperature": 9} if other == "refused" else {})
        second = body | ({"seed": 1} if other == "body" else {})
        tenant = b"other" if other == "tenant" else b"default"
        async with stand.ingress():
            await stand.publish(first)
            await stand.settle()
            if not restart:
                await stand.publish(second, headers={"tenant": tenant})
                await stand.settle()
        if restart:
            async with stand.ingress():
                await stand.publish(second, headers={"tenant": tenant})
                await stand.settle()
        (letter,) = stand.letters()
        message = text_header(letter.headers, "__dlq.errors.message") or ""
        assert message.startswith("id_conflict")
        assert len(stand.ready()) == (0 if other == "refused" else 1)
        codes = {o.request_id: o.error.code for o in stand.outputs() if o.error is not None}
        first_id = body["id"]
        assert [id for id, code in codes.items() if code == "invalid_record"] != [first_id]
        assert len(codes) == (2 if other == "refused" else 1)

    virtual(main)


def test_records_of_one_id_that_come_together_are_one_request() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        body = HELLO | {"id": stand.mint()}
        async with stand.ingress():
            await asyncio.gather(*(stand.publish(body, partition=i % 2) for i in range(6)))
            await stand.settle()
        assert len(stand.ready()) == 1

    for seed in range(10):
        virtual(main, seed)


def test_a_copy_is_owed_until_what_it_repeats_is_in_the_log() -> None:
    """Were it done before, two processes might each leave the request to the other's copy."""

    async def main() -> None:
        stand = Stand()
        await stand.begin()
        body = HELLO | {"id": stand.mint()}
        outputs = [at for at in stand.cluster.partitions if "ready" in at.topic]
        commits = stand.cluster.group(TOPICS.group("ingress")).offsets
        async with stand.ingress():
            await asyncio.sleep(3)
            stand.cluster.set_available(outputs, False)
            for i in range(4):
                await stand.publish(body, partition=i % 2)
            await asyncio.sleep(15)
            assert {commit.offset for commit in commits.values()} == {0}
            stand.cluster.set_available(outputs, True)
            await stand.settle()
            assert {commit.offset for commit in commits.values()} == {2}
        assert len(stand.ready()) == 1

    for seed in range(5):
        virtual(main, seed)


def test_an_edge_that_repeats_its_record_is_not_held_up() -> None:
    """Its own id is fresh by construction: nothing is looked up, a repeat is dropped or void."""

    async def main() -> None:
        stand = Stand()
        await stand.begin()
        request = parse_body(b'{"model":"words","prompt":"x"}', "text").request
        id = stand.mint()
        headers = {"request-id": id.encode()}
        ledger = [at for at in stand.cluster.partitions if at.topic == TOPICS.ledger]
        async with stand.ingress():
            await asyncio.sleep(3)
            stand.cluster.set_available(ledger, False)
            for _ in range(2):
                await stand.publish(encode(request), key=id.encode(), headers=headers)
            await stand.settle()
            assert {made.request_id for made in stand.ready()} == {id}
            stand.cluster.set_available(ledger, True)

    virtual(main)


def test_an_edge_may_publish_an_old_id_again_but_none_of_the_future() -> None:
    """A key names an id for a day; its first record may never have been written."""

    async def main() -> None:
        stand = Stand()
        await stand.begin()
        request = parse_body(b'{"model":"words","prompt":"x"}', "text").request
        old, future = stand.mint(-20 * 3_600_000), stand.mint(FIVE_MINUTES + 1000)
        async with stand.ingress():
            for id in (old, future):
                headers = {"request-id": id.encode()}
                await stand.publish(encode(request), key=id.encode(), headers=headers)
            await stand.settle()
        assert [made.request_id for made in stand.ready()] == [old]
        assert len(stand.letters()) == 1

    virtual(main)
