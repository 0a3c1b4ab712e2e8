"""What a new owner must know of what was before it: unknown is not none."""

import asyncio
from collections.abc import Sequence

import msgspec

from pipeline.log import Outgoing, TopicPartition
from pipeline.memory import Fate
from schemas.codec import decode, text_header
from schemas.ledger import Lease
from schemas.status import OrchestratorFigures, StatusRecord
from tests.stages.stand import REVISION, Stand, on_stand


def _counted_leases(stand: Stand, request_id: str) -> int:
    return sum(counts and isinstance(m, Lease) for m, counts in stand.ledger(request_id))


def _figures(stand: Stand) -> list[OrchestratorFigures]:
    statuses = [decode(r.value, StatusRecord) for r in stand.read(stand.topics.status)]
    return [s.orchestrator for s in statuses if s.orchestrator and s.orchestrator.partitions]


def test_a_backlog_outlives_its_orchestrators_and_each_is_run_once() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        first = stand.start("orchestration")
        await asyncio.sleep(2)
        asked = [await stand.ask(4) for _ in range(60)]  # no worker: they wait
        await asyncio.sleep(100)
        first.kill()
        stand.start("orchestration")
        await asyncio.sleep(60)
        stand.start("worker")
        await stand.ended()
        stand.check()
        assert all(stand.results()[each][0].attempts == 1 for each in asked)

    on_stand(story)


def test_a_ready_record_that_comes_again_after_its_end_runs_nothing() -> None:
    async def story(stand: Stand) -> None:
        for role in ("delivery", "worker"):
            stand.start(role)
        orchestrator = stand.start("orchestration")
        old = [stand.ready(2) for _ in range(20)]
        for ready in old:
            await stand.publish(ready)
        await stand.ended()
        await asyncio.sleep(300)
        await stand.ask(1)
        await stand.ended()
        await orchestrator.stop()  # committed beyond all of them
        stand.start("orchestration")
        await asyncio.sleep(5)
        for ready in old:
            await stand.publish(ready)  # ingress read them again, much later
        await stand.ask(1)
        await asyncio.sleep(20)
        await stand.ended()
        for ready in old:
            assert _counted_leases(stand, ready.request_id) == 1
            assert len(stand.ledger(ready.request_id)) == 2
            assert len(stand.results()[ready.request_id]) == 1
        stand.check()

    on_stand(story)


def test_a_lease_that_was_never_followed_by_an_order_is_ordered_by_the_next_owner() -> None:
    async def story(stand: Stand) -> None:
        for role in ("delivery", "worker"):
            stand.start(role)
        first = stand.start("orchestration")
        await asyncio.sleep(3)

        def no_orders(name: str, at: TopicPartition, batch: object) -> Fate:
            return Fate(lands=at.topic != stand.topics.work)

        stand.cluster.fate = no_orders
        request_id = await stand.ask(8)
        await stand.until(lambda: _counted_leases(stand, request_id) == 1)
        first.kill()
        stand.cluster.fate = None
        stand.start("orchestration")
        await stand.ended()
        assert stand.results()[request_id][0].attempts == 1
        stand.check()

    on_stand(story)


def test_a_model_without_a_worker_waits_on_its_topic_and_holds_up_nobody() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        await asyncio.sleep(3)
        away = [await stand.ask(2, model="rare/model") for _ in range(30)]
        here = [await stand.ask(2) for _ in range(5)]
        await stand.ended(*here, limit=5)
        topic = stand.topics.waiting("rare/model")
        await stand.until(lambda: topic in stand.cluster.topics, 10)
        await asyncio.sleep(5)
        assert len(stand.read(topic)) >= 20
        assert not stand.results().keys() & set(away)
        await stand.register("rare/model", REVISION)
        stand.start("worker", model="rare/model")
        await stand.ended()
        stand.check()

    on_stand(story, settings={"parked": 4})


def test_every_copy_of_a_ready_record_is_owed_until_a_lease_counts() -> None:
    """Commits of it are not fenced: a former owner's may come late, and pass the copy that is left."""

    async def story(stand: Stand) -> None:
        commits = stand.cluster.group(stand.topics.group("orchestration.ready")).offsets
        for role in ("orchestration", "delivery"):
            stand.start(role)
        await asyncio.sleep(3)
        ready = stand.ready(2)
        for lane in ("silver", "gold"):
            await stand.publish(msgspec.structs.replace(ready, lane=lane))
            await asyncio.sleep(3)
        assert sum(commit.offset for commit in commits.values()) == 0
        stand.start("worker")
        await stand.ended()
        await stand.until(lambda: sum(commit.offset for commit in commits.values()) == 2)
        stand.check()

    on_stand(story)


def test_what_was_in_hand_is_read_again_when_its_partition_went_and_came_back_at_once() -> None:
    async def story(stand: Stand) -> None:
        for name in ("one", "two"):
            stand.start("orchestration", name)
        stand.start("delivery")
        await asyncio.sleep(3)
        asked = [await stand.ask(2) for _ in range(12)]
        await asyncio.sleep(3)
        for _ in range(2):  # within one poll of the ready records
            stand.cluster.rebalance(stand.topics.group("orchestration"), move=True)
            await asyncio.sleep(0.1)
        stand.start("worker")
        await stand.ended(*asked)
        stand.check()

    on_stand(story)


def test_what_waits_for_a_model_expires_at_its_deadline() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery"):
            stand.start(role)
        deadline = stand.clock.ms() + 10_000
        for _ in range(20):
            await stand.ask(2, model="gone", deadline=deadline)
        await stand.ended(limit=30)
        assert {r[0].outcome for r in stand.results().values()} == {"expired"}
        stand.check()

    on_stand(story, settings={"parked": 4})


def test_two_orchestrators_share_the_partitions_and_say_what_waits() -> None:
    async def story(stand: Stand) -> None:
        for i in (1, 2):
            stand.start("orchestration", f"orchestration-{i}")
        stand.start("delivery")
        await asyncio.sleep(10)
        for _ in range(30):
            await stand.ask(2, lane="bronze")
        await asyncio.sleep(4)
        figures = _figures(stand)[-4:]
        assert {tuple(each.partitions) for each in figures} == {(0, 2), (1, 3)}
        latest = {tuple(each.partitions): each for each in figures}.values()
        assert sum(each.waiting["bronze"] for each in latest) == 30
        stand.start("worker")
        await stand.ended()
        await asyncio.sleep(5)
        latest = {tuple(each.partitions): each for each in _figures(stand)}.values()
        assert sum(each.waiting["bronze"] for each in latest) == 0
        assert all(each.rate["bronze"] > 0 for each in latest)
        stand.check()

    on_stand(story, partitions=4)


def test_a_full_worker_is_not_a_dead_one() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery"):
            stand.start(role)
        stand.start("worker", slots=2)
        for _ in range(20):
            await stand.ask(10)
        await stand.ended()
        stand.check()
        assert all(len(each) == 1 for each in stand.results().values())

    on_stand(story, worker={"null_rate": 50})


def test_a_draining_worker_gives_back_what_another_continues() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery"):
            stand.start(role)
        first = stand.start("worker")
        long = await stand.ask(1200)
        await stand.until(lambda: len(stand.stream(long)[0]) > 10)
        stand.start("worker")
        await first.stop()
        await stand.ended(limit=200)
        result = stand.results()[long][0]
        assert (result.outcome, result.attempts) == ("completed", 2)
        assert len(result.choices[0].token_ids) == 1200
        stand.check()

    on_stand(story, worker={"null_rate": 20})


def test_an_order_that_was_sent_again_costs_no_credit_for_ever() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        stand.start("worker", slots=1)
        orchestrator = stand.start("orchestration")
        for _ in range(12):
            await stand.ask(20)
        for _ in range(3):
            await asyncio.sleep(3)
            orchestrator.kill()
            orchestrator = stand.start("orchestration")
            await asyncio.sleep(50)
        await stand.ended(limit=300)
        stand.check()

    on_stand(story, worker={"null_rate": 20})


def test_an_orchestrator_that_dies_while_it_ends_a_request_is_taken_over() -> None:
    async def story(stand: Stand) -> None:
        stand.start("delivery")
        first = stand.start("orchestration")
        request_id = await stand.ask(8)
        await asyncio.sleep(3)

        def no_outputs(name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
            kinds = {text_header(record.headers, "type") for record in batch}
            return Fate(lands="output/1" not in kinds)

        stand.cluster.fate = no_outputs
        await stand.cancel(request_id)
        await stand.until(lambda: _counted_leases(stand, request_id) == 1)
        await asyncio.sleep(1)
        first.kill()
        stand.cluster.fate = None
        stand.start("orchestration")
        await stand.ended()
        result = stand.results()[request_id][0]
        assert (result.outcome, result.attempts) == ("cancelled", 2)
        stand.check()

    on_stand(story)
