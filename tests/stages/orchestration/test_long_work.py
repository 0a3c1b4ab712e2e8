"""A generation of ten minutes and a worker that stands still for a while are ordinary: nothing is given
away, nothing is done twice, and no group notices."""

import asyncio

from tests.stages.stand import Stand, on_stand

TEN_MINUTES = 600  # tokens, at one a second


def generations(stand: Stand) -> dict[str, int]:
    return {name: group.generation for name, group in stand.cluster.groups.items()}


def test_ten_minutes_of_work_are_one_execution_without_a_rebalance() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role, null_rate=1.0)
        await stand.ended(await stand.ask(1))
        before = generations(stand)
        request_id = await stand.ask(TEN_MINUTES)
        await stand.ended(request_id, limit=2 * TEN_MINUTES)
        assert generations(stand) == before
        assert not any("worker" in name for name in before), "a worker is in no group"
        assert [each.attempt for each in stand.stream_opens(request_id)] == [1]
        result = stand.results()[request_id][0]
        assert (result.outcome, result.attempts) == ("completed", 1)
        assert result.usage.completion_tokens == TEN_MINUTES
        stand.check()

    on_stand(story)


def test_a_worker_that_stands_still_for_less_than_its_death_goes_on_with_its_one_execution() -> (
    None
):
    """Three times, as under a debugger or a broker that hangs: it pauses, keeps its work and goes on."""

    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery"):
            stand.start(role)
        worker = stand.start("worker", null_rate=5.0)
        await stand.ended(await stand.ask(1))
        before = generations(stand)
        request_id = await stand.ask(100)
        await stand.until(lambda: len(stand.stream(request_id)[0]) >= 10)
        for _ in range(3):
            worker.log.pause()
            await asyncio.sleep(6)  # it pauses after 4 s without an ack; dead it would be after 8
            worker.log.resume()
            await asyncio.sleep(3)
        await stand.ended(request_id)
        assert generations(stand) == before
        assert stand.results()[request_id][0].attempts == 1
        stand.check()

    on_stand(story)
