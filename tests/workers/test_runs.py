"""Runs: attempts that go on, and everything that ends one."""

import asyncio
from typing import Any

import msgspec
import pytest

from schemas.control import Wake
from schemas.ledger import Output, Released
from schemas.tokens import Chunk, Open
from tests.workers.stand import TOPICS, Stand, answer, listed, status, virtual, words, worker
from workers.job import Failure
from workers.null import WORDS, NullEngine


def continued(stand: Stand, order: Any, *, said: int, finish: str | None = None) -> Chunk:
    """What attempt 1 said: words of its own, to tell them from a second answer."""
    ids = answer(order.ready.prompt_ids, said)
    return Chunk(k=0, ids=ids, attempt=1, pieces=[WORDS[i] for i in ids], finish=finish)


def test_a_second_attempt_goes_on_where_the_first_one_stopped() -> None:
    async def main() -> None:
        stand = Stand(null_vary="attempt")
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, attempt=2)
            rid = order.request_id
            await stand.said(rid, Open(request_id=rid, attempt=1, worker="dead", epoch="e"))
            first = continued(stand, order, said=8)
            await stand.said(rid, first)
            await stand.send(order)
            output = await stand.end(rid)
            assert isinstance(output, Output)
            assert isinstance(output, Output)
            assert output.attempt == 2
            assert output.choices[0].ids[:8] == first.ids
            assert len(output.choices[0].ids) == 20
            mine = [e for e in stand.slot(rid) if isinstance(e, Chunk) and e.attempt == 2]
            assert mine[0].k == 8

    virtual(main)


def test_a_continued_answer_keeps_the_times_of_its_first_token() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            ready = stand.ready(entered={"ready": 1})
            order = stand.order(member, ready, attempt=2, entered={"ready": 1, "dispatch": 900})
            rid = order.request_id
            await stand.said(rid, Open(request_id=rid, attempt=1, worker="dead", epoch="e"))
            told = {"dispatch": 20, "worker": 21, "first_token": 30}
            first = continued(stand, order, said=8)
            await stand.said(rid, msgspec.structs.replace(first, first=told))
            await stand.send(order)
            output = await stand.end(rid)
            assert isinstance(output, Output)
            assert output.entered == {"ready": 1, **told}
            mine = [e for e in stand.slot(rid) if isinstance(e, Chunk) and e.attempt == 2]
            assert mine[0].first.keys() == told.keys(), "so that a third attempt finds them"

    virtual(main)


def test_what_lies_behind_our_own_open_is_not_ours() -> None:
    """A zombie's late chunk is void for every reader, so for us too."""

    async def main() -> None:
        stand = Stand(null_vary="attempt", null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, attempt=2)
            rid = order.request_id
            await stand.said(rid, Open(request_id=rid, attempt=1, worker="dead", epoch="e"))
            await stand.send(order)
            await stand.until(lambda: len(stand.slot(rid)) >= 2)
            await stand.said(rid, continued(stand, order, said=8))
            output = await stand.end(rid)
            assert isinstance(output, Output)
            assert output.choices[0].ids != answer([1, 2, 3], 20)
            assert output.choices[0].ids[:8] != answer([1, 2, 3], 8)

    virtual(main)


def test_a_prefix_that_holds_the_finish_is_written_from_the_log() -> None:
    async def main() -> None:
        stand = Stand(null_vary="attempt")
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, attempt=2)
            rid = order.request_id
            await stand.said(rid, Open(request_id=rid, attempt=1, worker="dead", epoch="e"))
            await stand.said(rid, continued(stand, order, said=5, finish="stop"))
            await stand.send(order)
            output = await stand.end(rid)
            assert isinstance(output, Output) and output.outcome == "completed"
            assert output.choices[0].finish_reason == "stop"
            assert output.choices[0].ids == answer([1, 2, 3], 5)
            assert not [e for e in stand.slot(rid) if isinstance(e, Chunk) and e.attempt == 2]

    virtual(main)


def test_an_attempt_that_finds_a_higher_one_writes_nothing_more() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, attempt=2)
            rid = order.request_id
            await stand.said(rid, Open(request_id=rid, attempt=3, worker="other", epoch="e"))
            await stand.send(order)
            await stand.until(lambda: (rid, 2) in listed(stand) or len(stand.slot(rid)) == 2)
            await stand.until(lambda: not listed(stand))
            assert stand.ledger(rid) == []
            assert not [e for e in stand.slot(rid) if isinstance(e, Chunk)]

    virtual(main)


def test_an_order_past_its_deadline_ends_without_computing() -> None:
    async def main() -> None:
        stand = Stand()
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, stand.ready(deadline=stand.clock.ms() - 1))
            await stand.send(order)
            output = await stand.end(order.request_id)
            assert isinstance(output, Output)
            assert output.outcome == "expired" and output.error is not None
            assert stand.slot(order.request_id) == []

    virtual(main)


def test_a_run_ends_at_its_deadline_with_what_it_said() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            ready = stand.ready(deadline=stand.clock.ms() + 1500, max_tokens=1000)
            await stand.send(stand.order(member, ready))
            output = await stand.end(ready.request_id)
            assert isinstance(output, Output) and output.outcome == "expired"
            assert 10 <= len(output.choices[0].ids) <= 16
            assert words(stand.slot(ready.request_id))[0] == output.choices[0].ids

    virtual(main)


def test_a_cancel_ends_a_run_with_what_it_said() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member, stand.ready(max_tokens=1000))
            await stand.send(order)
            await stand.until(lambda: len(stand.slot(order.request_id)) > 5)
            wake = Wake(request_id=order.request_id, attempt=1)
            await stand.write(TOPICS.control, wake, partition=0)
            output = await stand.end(order.request_id)
            assert isinstance(output, Output) and output.outcome == "cancelled"
            said = words(stand.slot(order.request_id))[0]
            assert 0 < len(said) < 20 and output.choices[0].ids == said
            await asyncio.sleep(3)
            assert words(stand.slot(order.request_id))[0] == said, "it has stopped"
            assert status(stand).blocks_used == 0, "the device is free again"

    virtual(main)


def test_a_superseded_run_writes_nothing_more() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            order, late = stand.order(member), stand.order(member)
            await stand.send(order)
            await stand.until(lambda: len(stand.slot(order.request_id)) > 5)
            for each in (order, late):
                wake = Wake(request_id=each.request_id, attempt=1, superseded=True)
                await stand.write(TOPICS.control, wake, partition=0)
            await stand.until(lambda: not listed(stand))
            await stand.send(late)
            await asyncio.sleep(5)
            assert stand.ledger(order.request_id) == stand.ledger(late.request_id) == []

    virtual(main)


def test_a_higher_order_for_the_same_request_supersedes_the_lower_one() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member)
            await stand.send(order)
            await stand.until(lambda: len(stand.slot(order.request_id)) > 5)
            await stand.send(stand.order(member, order.ready, attempt=2))
            output = await stand.end(order.request_id)
            assert isinstance(output, Output)
            assert output.attempt == 2
            assert output.choices[0].ids == answer([1, 2, 3], 20)
            assert len(stand.ledger(order.request_id)) == 1

    virtual(main)


@pytest.mark.parametrize("retryable", [True, False])
def test_a_job_that_the_engine_gives_up_is_given_back_or_fails(
    retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Failure] = []

    def step(self: NullEngine) -> list[Any]:
        said, failures[:] = list(failures), []
        self.close()
        return said

    async def main() -> None:
        stand = Stand()
        await stand.begin()
        monkeypatch.setattr(NullEngine, "step", step)
        async with worker(stand) as member:
            order = stand.order(member)
            failures.append(
                Failure(
                    request_id=order.request_id,
                    attempt=1,
                    code="nan",
                    message="not finite",
                    retryable=retryable,
                )
            )
            await stand.send(order)
            ended = await stand.end(order.request_id)
            if retryable:
                assert isinstance(ended, Released) and ended.why == "fault"
            else:
                assert isinstance(ended, Output) and ended.outcome == "failed"
                assert ended.error is not None and ended.error.code == "engine_error"

    virtual(main)


def test_suspects_wait_for_each_others_first_token_not_for_whole_answers() -> None:
    async def main() -> None:
        stand = Stand(null_rate=2)
        await stand.begin()
        async with worker(stand) as member:
            orders = [stand.order(member, alone=True) for _ in range(3)]
            for order in orders:
                await stand.send(order)
            first, second, third = (order.request_id for order in orders)
            await stand.until(lambda: stand.slot(first))
            assert not stand.slot(second), "opened beside one that may kill the process"
            await stand.until(lambda: any(isinstance(e, Chunk) for e in stand.slot(first)))
            await stand.until(lambda: stand.slot(third))
            assert any(isinstance(e, Chunk) for e in stand.slot(second))
            assert not any(isinstance(e, Output) for e in stand.ledger(first))
            for order in orders:
                assert isinstance(await stand.end(order.request_id), Output)

    virtual(main)
