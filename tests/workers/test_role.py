"""What a worker promises to everybody else."""

import asyncio
from typing import Any

import pytest

from pipeline import metrics
from pipeline.member import Fatal
from schemas.control import Load
from schemas.ledger import Output, Released
from tests.workers.stand import TOPICS, Stand, answer, listed, status, virtual, words, worker
from workers.heartbeat import EngineStuck
from workers.inline_driver import InlineDriver
from workers.null import NullEngine
from workers.runner import DeviceLost


def test_a_worker_that_nobody_hears_pauses_and_goes_on() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            at = [at for at in stand.cluster.partitions if at.topic == TOPICS.status]
            order = stand.order(member, stand.ready(max_tokens=200))
            await stand.send(order)
            await stand.until(lambda: len(stand.slot(order.request_id)) > 2)
            stand.cluster.set_available(at, False)
            await asyncio.sleep(8)
            paused = words(stand.slot(order.request_id))[0]
            await asyncio.sleep(8)
            assert words(stand.slot(order.request_id))[0] == paused
            stand.cluster.set_available(at, True)
            output = await stand.end(order.request_id)
            assert isinstance(output, Output) and output.outcome == "completed"
            assert output.choices[0].ids == answer([1, 2, 3], 200)

    virtual(main)


def test_a_drain_finishes_what_it_can_and_gives_the_rest_back() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        member = stand.member()
        async with worker(stand, member):
            short = stand.order(member)
            long = stand.order(member, stand.ready(max_tokens=2000))
            for order in (short, long):
                await stand.send(order)
            await stand.until(lambda: stand.slot(long.request_id))
            member.draining.set()
            late = stand.order(member)
            await stand.send(late)
            output, back = await stand.end(short.request_id), await stand.end(late.request_id)
            assert isinstance(output, Output)
            assert isinstance(back, Released) and back.why == "drain"
            released = await stand.end(long.request_id)
            assert isinstance(released, Released) and released.why == "drain"
            assert words(stand.slot(long.request_id))[0], "the next attempt goes on from here"
            last = await stand.until(lambda: (s := stand.status()) and s.state == "stopped" and s)
            assert last.worker.running == []

    virtual(main)


def test_each_orchestrator_is_offered_credits_and_none_while_draining() -> None:
    async def main() -> None:
        stand = Stand(slots=16, null_rate=1)
        await stand.begin()
        member = stand.member()
        async with worker(stand, member):
            assert status(stand).credits == {"0rche5tra": 18}
            for _ in range(8):
                await stand.send(stand.order(member))
            await stand.until(lambda: len(listed(stand)) == 8)
            assert status(stand).credits == {"0rche5tra": 18}, "free slots shrink by what runs"
            before = status(stand).credits
            member.draining.set()
            await asyncio.sleep(3)
            assert status(stand).credits == before

    virtual(main)


def test_an_order_to_load_another_model_is_refused_and_counted() -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            refused = metrics.void_records.labels("load")
            before = refused._value.get()
            await stand.write(TOPICS.control, Load(member="other-1", model="x"), partition=0)
            await stand.write(TOPICS.control, Load(member=member.id, model="x"), partition=0)
            order = stand.order(member)
            await stand.send(order)  # it goes on with what it has
            output = await stand.end(order.request_id)
            assert isinstance(output, Output) and output.outcome == "completed"
            assert refused._value.get() == before + 1

    virtual(main)


def test_a_worker_whose_device_is_lost_gives_its_work_back_and_exits_with_70(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(self: NullEngine) -> list[Any]:
        raise DeviceLost("the context is gone")

    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            order = stand.order(member)
            await stand.send(order)
            await stand.until(lambda: stand.slot(order.request_id))
            monkeypatch.setattr(NullEngine, "step", lost)
            released = await stand.end(order.request_id)
            assert isinstance(released, Released) and released.why == "fault"
            await asyncio.sleep(5)

    with pytest.raises(Fatal) as fatal:
        virtual(main)
    assert fatal.value.exit_code == 70


def test_a_step_that_never_ends_is_told_and_then_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        stand = Stand(null_rate=10)
        await stand.begin()
        async with worker(stand) as member:
            monkeypatch.setattr(InlineDriver, "_said", lambda *given: None)  # no step comes back
            await stand.send(stand.order(member))
            await stand.until(lambda: "engine" in member.missing)
            assert not member.ready
            await asyncio.sleep(120)

    with pytest.raises(ExceptionGroup) as group:
        virtual(main)
    assert group.value.subgroup(EngineStuck) is not None
