"""Virtual time takes no time, finds those who wait for ever, and repeats itself for a seed."""

import asyncio
import itertools
import random

import pytest

from pipeline.simulation import VirtualClock, VirtualLoop, run_virtual
from pipeline.simulation.loop import BASE_MS, Deadlock, OutOfTime


def test_a_day_passes_at_once_and_exactly() -> None:
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        clock = VirtualClock(loop, skew=250)
        for _ in range(24):
            await asyncio.sleep(3600)
        return loop.time(), clock.ms()

    assert run_virtual(main()) == (86_400.0, BASE_MS + 86_400_250)


def test_timeouts_and_timers_keep_their_order() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def late(name: str, delay: float) -> None:
            await asyncio.sleep(delay)
            seen.append(name)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.gather(late("b", 2), late("a", 1), late("never", 9))
        return seen

    assert run_virtual(main()) == ["a", "b"]


def test_everybody_waiting_for_ever_is_an_error_that_names_them() -> None:
    async def lonely() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="lonely"):
        run_virtual(lonely())


def test_going_on_for_ever_is_an_error() -> None:
    async def restless() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(OutOfTime, match="100 s"):
        run_virtual(restless(), limit=100)


def test_there_are_no_threads() -> None:
    async def main() -> None:
        await asyncio.to_thread(print, "no")

    with pytest.raises(RuntimeError, match="no threads"):
        run_virtual(main())


def schedule(seed: int) -> list[int]:
    async def main() -> list[int]:
        seen: list[int] = []

        async def step(number: int) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(number)

        await asyncio.gather(*(step(number) for number in range(6)))
        return seen

    return run_virtual(main(), chance=random.Random(seed))


def test_the_same_seed_gives_the_same_schedule_and_others_give_others() -> None:
    assert schedule(7) == schedule(7)
    assert len({tuple(schedule(seed)) for seed in range(20)}) > 10


def test_tasks_of_a_group_are_cancelled_in_the_same_order_in_every_process() -> None:
    order: list[str] = []

    async def collected() -> list[str]:
        async def member(number: int) -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                order.append(str(number))

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), asyncio.TaskGroup() as tasks:
                for number in range(20):
                    tasks.create_task(member(number))
        return order

    assert run_virtual(collected()) == [str(number) for number in range(20)]


def test_timers_of_one_moment_run_in_the_order_they_were_set() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_at(5.0, seen.append, number)
        await asyncio.sleep(6)
        return seen

    assert run_virtual(main()) == list(range(50))


def test_cancelled_timers_neither_fire_nor_pile_up_nor_hold_time() -> None:
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(20_000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0.001)
        return loop.time(), len(loop._timers)

    time, left = run_virtual(main())
    assert time == pytest.approx(20)
    assert left < 3000


def test_what_is_left_running_is_cancelled_at_the_end() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append("background")

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return task

    assert run_virtual(main()).cancelled()
    assert ended == ["background"]
    assert VirtualLoop().time() == 0.0
