"""Ends without a worker, and those that a worker is told of: cancel, deadline, poison, unreadable."""

import asyncio

from pipeline.log import TopicPartition
from schemas.codec import encode, headers_of
from schemas.control import Attach, Detach
from schemas.ids import partition_of
from schemas.ledger import Lease
from schemas.work import SamplingParams
from tests.stages.stand import Stand, on_stand


def _leases(stand: Stand, request_id: str) -> list[Lease]:
    return [m for m, counts in stand.ledger(request_id) if counts and isinstance(m, Lease)]


def test_a_queued_request_is_cancelled_at_once_not_when_its_lane_gets_there() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        request_id = await stand.ask()
        await asyncio.sleep(2)
        asked = stand.clock.ms()
        await stand.cancel(request_id)
        await stand.ended()
        assert stand.clock.ms() - asked < 200
        assert stand.results()[request_id][0].outcome == "cancelled"
        assert stand.results()[request_id][0].model == "words"
        stand.check()

    on_stand(story)


def test_a_running_request_is_cancelled_with_the_tokens_it_has() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        request_id = await stand.ask(500)
        await stand.until(lambda: len(stand.stream(request_id)[0]) > 5)
        asked = stand.clock.ms()
        await stand.cancel(request_id)
        await stand.ended()
        result = stand.results()[request_id][0]
        assert result.outcome == "cancelled"
        assert stand.clock.ms() - asked < 200
        assert 5 < len(result.choices[0].token_ids) < 20
        stand.check()

    on_stand(story, worker={"null_rate": 20})


def test_a_request_whose_worker_is_dead_is_cancelled_with_the_tokens_it_has() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        worker = stand.start("worker")
        request_id = await stand.ask(500)
        await stand.until(lambda: len(stand.stream(request_id)[0]) > 5)
        worker.kill()
        await stand.cancel(request_id)
        await stand.ended()
        result = stand.results()[request_id][0]
        assert result.outcome == "cancelled"
        assert result.attempts == 2
        assert len(result.choices[0].token_ids) > 5
        stand.check()

    on_stand(story, worker={"null_rate": 20})


def test_a_cancel_of_what_never_came_ends_it() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        ready = stand.ready()
        await asyncio.sleep(1)
        await stand.cancel(ready.request_id)
        await stand.ended(ready.request_id)
        await stand.publish(ready)  # ingress was slow
        await asyncio.sleep(5)
        assert {r.outcome for r in stand.results()[ready.request_id]} == {"cancelled"}
        assert len(_leases(stand, ready.request_id)) == 1

    on_stand(story)


def test_a_deadline_in_the_queue_expires_without_device_time() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        soon = stand.clock.ms() + 5_000
        request_id = await stand.ask(deadline=soon)
        await stand.ended()
        assert 0 <= stand.clock.ms() - soon < 2_500
        result = stand.results()[request_id][0]
        assert (result.outcome, result.error and result.error.code) == (
            "expired",
            "deadline_exceeded",
        )
        assert not stand.read(stand.topics.work)
        stand.check()

    on_stand(story)


def test_what_cannot_be_decoded_before_its_deadline_is_refused_early() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        await stand.ask(60)
        await stand.ended()  # the worker has a rate now
        late = await stand.ask(
            4000, deadline=stand.clock.ms() + 20_000, sampling=SamplingParams(ignore_eos=True)
        )
        await stand.ended()
        assert stand.results()[late][0].outcome == "expired"
        assert all(record.key != late.encode() for record in stand.read(stand.topics.work))

    on_stand(story, worker={"null_rate": 20})


def test_a_worker_that_was_idle_is_not_a_slow_one() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        await stand.ask(60)
        await stand.ended()
        await asyncio.sleep(300)
        long = await stand.ask(600, sampling=SamplingParams(ignore_eos=True))  # half a minute
        await stand.ended()
        assert stand.results()[long][0].outcome == "completed"

    on_stand(story, worker={"null_rate": 20})


def test_a_request_that_kills_its_workers_ends_failed_and_its_neighbours_live() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        poison = stand.ready(10)

        async def dies_at_its_open() -> None:
            worker = stand.start("worker", "victim")
            opens = len(stand.stream_opens(poison.request_id))
            await stand.until(lambda: len(stand.stream_opens(poison.request_id)) > opens, 1000)
            worker.kill()

        async def victims() -> None:
            while True:
                await dies_at_its_open()

        killer = asyncio.create_task(victims())
        await asyncio.sleep(3)
        await stand.publish(poison)
        neighbour = await stand.ask(4)
        await stand.ended(limit=200)
        killer.cancel()
        result = stand.results()[poison.request_id][0]
        assert (result.outcome, result.error and result.error.code) == (
            "failed",
            "request_kills_workers",
        )
        leases = _leases(stand, poison.request_id)
        assert [lease.alone for lease in leases[:3]] == [False, True, True]
        assert len(leases) == 4  # the last one only ends it
        assert stand.results()[neighbour][0].outcome == "completed"
        stand.check()

    on_stand(story, worker={"null_rate": 1})


def test_progress_between_two_deaths_is_no_poison() -> None:
    async def story(stand: Stand) -> None:
        stand.start("orchestration")
        stand.start("delivery")
        request_id = await stand.ask(8)
        for _ in range(4):
            worker = stand.start("worker", "w")
            said = len(stand.stream(request_id)[0])

            def more(said: int = said) -> bool:
                return len(stand.stream(request_id)[0]) > said

            await stand.until(more)
            worker.kill()
        stand.start("worker", "w")
        await stand.ended()
        result = stand.results()[request_id][0]
        assert (result.outcome, result.attempts) == ("completed", 5)
        stand.check()

    on_stand(story, worker={"null_rate": 1, "null_vary": "attempt"})


def test_an_unreadable_ready_record_is_a_dead_letter_and_ends_its_request() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        ready = stand.ready()
        topic = stand.topics.ready("gold")
        headers = headers_of("ready/2", request_id=ready.request_id, tenant="acme", lane="gold")
        await stand.send(topic, b"\xc1 not msgpack", ready.request_id.encode(), headers)
        await stand.send(topic, None, None, ())
        lost = stand.ready().request_id  # of a partition that may be another owner's
        astray = (partition_of(lost, stand.topics.ledger_partitions) + 1) % 2
        await stand.send(topic, b"??", None, headers_of("ready/2", request_id=lost), astray)
        after = await stand.ask(lane="gold")
        await stand.ended(ready.request_id, after)
        result = stand.results()[ready.request_id][0]
        assert (result.outcome, result.error and result.error.code) == ("failed", "unreadable")
        assert result.tenant == "acme"
        letters = {each.value: each for each in stand.read(stand.topics.dead("orchestration"))}
        assert letters.keys() == {b"\xc1 not msgpack", None, b"??"}
        assert letters[b"\xc1 not msgpack"].headers[: len(headers)] == headers
        assert lost not in stand.results()

    on_stand(story)


def test_an_unreadable_lease_counts_by_its_headers_and_ends_its_request() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery"):
            stand.start(role)
        ready = stand.ready()
        headers = headers_of("lease/9", request_id=ready.request_id, attempt=1, tenant="acme")
        await stand.send(stand.topics.ledger, b"??", ready.request_id.encode(), headers)
        await stand.ended(ready.request_id)
        result = stand.results()[ready.request_id][0]
        assert (result.outcome, result.attempts) == ("failed", 2)
        assert len(stand.read(stand.topics.dead("orchestration"))) == 1

    on_stand(story)


def test_a_ledger_record_that_nobody_knows_or_that_lies_astray_opens_nothing() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        partitions = stand.topics.ledger_partitions
        lost, odd = (stand.ready().request_id for _ in range(2))
        astray = (partition_of(lost, partitions) + 1) % partitions
        headers = headers_of("lease/1", request_id=lost, attempt=1)
        await stand.send(stand.topics.ledger, b"lost", lost.encode(), headers, partition=astray)
        headers = headers_of("nothing/1", request_id=odd, attempt=1)
        await stand.send(stand.topics.ledger, b"odd", odd.encode(), headers)
        void = headers_of("output/1", request_id=odd, attempt=7)
        await stand.send(stand.topics.ledger, b"void", odd.encode(), void)
        after = await stand.ask()
        await stand.ended(after)
        assert not {lost, odd} & stand.results().keys()
        letters = stand.read(stand.topics.dead("orchestration"))
        assert sorted(letter.value or b"" for letter in letters) == [b"lost", b"odd"]
        assert [each.value for each in stand.read(stand.topics.dead("delivery"))] == [b"void"]

    on_stand(story)


def test_a_client_that_went_and_did_not_come_back_is_cancelled_after_its_grace() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        edge = stand.start("edge")
        stays, leaves, returns, watched = [stand.ready(2000) for _ in range(4)]
        grace = {ready.request_id: 15_000 for ready in (stays, leaves, returns)}

        async def say(record: Attach | Detach) -> None:
            key = record.request_id.encode()
            await stand.send(stand.topics.control, encode(record), key, partition=0)

        async def attach(request_id: str, stream: str) -> None:
            await say(
                Attach(
                    request_id=request_id,
                    stream=stream,
                    edge=edge.member.id,
                    epoch=edge.member.epoch,
                    grace=grace.get(request_id, 0),
                )
            )

        async def detach(request_id: str, stream: str) -> None:
            who, epoch = edge.member.id, edge.member.epoch
            await say(Detach(request_id=request_id, stream=stream, edge=who, epoch=epoch))

        for ready in (stays, leaves, returns, watched):
            await attach(ready.request_id, "a")
            await stand.publish(ready)
        await asyncio.sleep(3)
        for ready in (leaves, returns, watched):
            await detach(ready.request_id, "a")
        left = stand.clock.ms()
        await asyncio.sleep(14)
        await attach(returns.request_id, "b")
        await stand.ended(leaves.request_id)
        assert 15_000 <= stand.clock.ms() - left < 16_000
        assert stand.results()[leaves.request_id][0].outcome == "cancelled"
        await stand.ended(stays.request_id, returns.request_id, watched.request_id, limit=200)
        for ready in (stays, returns, watched):
            assert stand.results()[ready.request_id][0].outcome == "completed"
        stand.check()

    on_stand(story, worker={"null_rate": 40})


def test_a_dead_edge_counts_as_detached() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        ready = stand.ready(4000)
        record = Attach(
            request_id=ready.request_id, stream="a", edge="edge-1", epoch="gone", grace=5_000
        )
        await stand.send(stand.topics.control, encode(record), partition=0)
        await stand.publish(ready)
        await stand.ended(limit=60)
        assert stand.results()[ready.request_id][0].outcome == "cancelled"

    on_stand(story, worker={"null_rate": 10})


def test_commits_pass_nothing_that_is_open() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        slow = await stand.ask(400)
        await asyncio.sleep(1)
        quick = [await stand.ask(1) for _ in range(20)]
        await stand.ended(*quick)
        await asyncio.sleep(2)
        for group in ("hr.orchestration", "hr.delivery"):
            commit = stand.cluster.groups[group].offsets[TopicPartition(stand.topics.ledger, 0)]
            first = min(r.offset for r in stand.read(stand.topics.ledger) if r.key == slow.encode())
            assert commit.offset == first
        await stand.ended()
        await asyncio.sleep(2)
        end = stand.cluster.partition(TopicPartition(stand.topics.ledger, 0)).end
        for group in ("hr.orchestration", "hr.delivery"):
            commit = stand.cluster.groups[group].offsets[TopicPartition(stand.topics.ledger, 0)]
            assert commit.offset == end

    on_stand(story, partitions=1, worker={"null_rate": 40})
