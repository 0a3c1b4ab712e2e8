"""One outcome: the first output that counts, told once to each reader, whatever dies between its writes."""

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest

from pipeline.log import Outgoing, TopicPartition
from pipeline.memory import Fate
from schemas.codec import MSGPACK, encode, headers_of, looks_json, text_header
from schemas.ids import mint
from schemas.ledger import Lease, Output, Said, Usage
from schemas.work import Place
from tests.stages.stand import Stand, on_stand


def _output(stand: Stand, request_id: str, attempt: int = 1, text: str = "a") -> Output:
    now = stand.clock.ms()
    return Output(
        request_id=request_id,
        attempt=attempt,
        outcome="completed",
        model="words",
        choices=[Said(index=0, ids=[1, 2], pieces=[text, "b"], finish_reason="stop")],
        usage=Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
        tenant="acme",
        lane="gold",
        correlation_id="mine",
        created=now,
        accepted=now,
        finished=now,
    )


async def _write(stand: Stand, record: Output | Lease) -> int:
    kind = "output/1" if isinstance(record, Output) else "lease/1"
    headers = headers_of(kind, request_id=record.request_id, attempt=record.attempt)
    return await stand.send(
        stand.topics.ledger, encode(record), record.request_id.encode(), headers
    )


def _lease(stand: Stand, request_id: str, attempt: int = 1) -> Lease:
    return Lease(
        request_id=request_id,
        attempt=attempt,
        worker="w",
        epoch="e",
        slot_from=0,
        ready=Place("hr.ready.gold", 0, 0),
        accepted=stand.clock.ms(),
        tenant="acme",
        body_hash="",
        nonce=f"{attempt}",
        orchestrator="o",
        lane="gold",
        deadline=stand.clock.ms() + 60_000,
    )


def _closing(stand: Stand, request_id: str) -> int:
    return sum(
        record.key == request_id.encode() and text_header(record.headers, "type") == "end/1"
        for record in stand.read(stand.topics.tokens)
    )


def test_the_outcome_is_a_function_of_the_output_that_counts() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        request_id = mint(stand.clock.ms(), stand.chance)
        await _write(stand, _lease(stand, request_id))
        await _write(stand, _output(stand, request_id, attempt=2, text="void"))
        offset = await _write(stand, _output(stand, request_id, text="first"))
        await _write(stand, _output(stand, request_id, text="second"))
        await stand.ended(request_id)
        await asyncio.sleep(5)
        [result] = stand.results()[request_id]
        assert (result.output, result.choices[0].text) == (offset, "firstb")
        assert (result.tenant, result.lane, result.correlation_id) == ("acme", "gold", "mine")
        assert _closing(stand, request_id) == 1

    on_stand(story, partitions=1)


def test_a_json_publisher_reads_json_and_finds_its_correlation_id() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        for encoding in ("json", MSGPACK):
            request_id = mint(stand.clock.ms(), stand.chance)
            output = msgspec.structs.replace(_output(stand, request_id, 0), encoding=encoding)
            await _write(stand, output)
            await stand.ended(request_id)
            written = [
                record
                for topic in (stand.topics.results, stand.topics.tokens)
                for record in stand.read(topic)
                if record.key == request_id.encode()
            ]
            assert len(written) == 2
            for record in written:
                assert looks_json(record.value or b"") == (encoding == "json")
                assert text_header(record.headers, "correlation-id") == "mine"
                assert text_header(record.headers, "tenant") == "acme"

    on_stand(story)


def test_an_unreadable_output_that_counts_ends_its_request_failed() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        request_id = mint(stand.clock.ms(), stand.chance)
        await _write(stand, _lease(stand, request_id))
        headers = headers_of("output/7", request_id=request_id, attempt=1, tenant="acme")
        await stand.send(stand.topics.ledger, b"\xc1", request_id.encode(), headers)
        await stand.ended(request_id)
        [result] = stand.results()[request_id]
        assert (result.outcome, result.error and result.error.code) == ("failed", "unreadable")
        assert result.tenant == "acme"
        [letter] = stand.read(stand.topics.dead("delivery"))
        assert letter.value == b"\xc1"

    on_stand(story)


@pytest.mark.parametrize("seed", range(10))
def test_killed_between_its_writes_it_repeats_what_is_missing(seed: int) -> None:
    """Five kills a seed: after the result, after `end`, before any of both."""

    async def story(stand: Stand) -> None:
        chance = random.Random(seed)
        delivery = stand.start("delivery", "d")
        ids = []

        def fate(name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
            lost = name.startswith("d/") and at.topic == chance.choice(
                [stand.topics.tokens, stand.topics.results]
            )
            return Fate(lands=not lost)

        for _ in range(5):
            stand.cluster.fate = fate
            for _ in range(chance.randint(1, 4)):
                request_id = mint(stand.clock.ms(), stand.chance)
                ids.append(request_id)
                await _write(stand, _lease(stand, request_id))
                await _write(stand, _output(stand, request_id))
                await asyncio.sleep(chance.random() * 0.2)
            await asyncio.sleep(chance.random())
            delivery.kill()
            stand.cluster.fate = None
            delivery = stand.start("delivery", "d")
            await asyncio.sleep(chance.random() * 60)
        await stand.ended(*ids)
        await asyncio.sleep(2)
        for request_id in ids:
            assert len({(r.id, r.output) for r in stand.results()[request_id]}) == 1
            assert stand.stream(request_id)[1] is not None
        for p in range(stand.partitions):
            at = TopicPartition(stand.topics.ledger, p)
            committed = stand.cluster.groups["hr.delivery"].offsets.get(at)
            assert (committed.offset if committed else 0) == stand.cluster.partition(at).end

    on_stand(story, seed=seed)


def test_what_ended_before_a_restart_is_not_delivered_again() -> None:
    async def story(stand: Stand) -> None:
        first = stand.start("delivery")
        request_id = mint(stand.clock.ms(), stand.chance)
        lease, output = _lease(stand, request_id), _output(stand, request_id)
        await _write(stand, lease)
        offset = await _write(stand, output)
        await stand.ended(request_id)
        await asyncio.sleep(200)
        await first.stop()
        stand.start("delivery")
        await asyncio.sleep(60)
        await _write(stand, lease)  # a batch that its writer's death left on the way
        await _write(stand, output)
        await asyncio.sleep(10)
        assert {r.output for r in stand.results()[request_id]} == {offset}
        assert _closing(stand, request_id) == 1

    on_stand(story, partitions=1)
