"""The engine's crank, in a thread and without one: the same words, in order, and nothing lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from workers.driver import Driver, Event
from workers.inline_driver import InlineDriver
from workers.job import Emission, Engine, Job
from workers.null import NullEngine
from workers.runner import DeviceLost
from workers.thread_driver import ThreadDriver

FORMS = pytest.mark.parametrize("form", [ThreadDriver, InlineDriver])
LIMIT = 20.0  # s; only a deadlock takes so long


class Clock:
    def ms(self) -> int:
        return 0  # without a rate the null engine never looks


class Heard:
    """What came out, by job."""

    def __init__(self) -> None:
        self.ids: dict[str, list[int]] = {}
        self.done = asyncio.Event()
        self.waited = 0

    def __call__(self, events: list[Event]) -> None:
        for event in events:
            assert isinstance(event, Emission)
            said = self.ids.setdefault(event.request_id, [])
            assert event.k == len(said), "in order, none missing"
            said.extend(event.ids)
            if event.finish is not None:
                self.waited -= 1
        if self.waited <= 0:
            self.done.set()


@asynccontextmanager
async def driving(
    form: type, build: Callable[[], Engine] | None = None
) -> AsyncIterator[tuple[Driver, Heard]]:
    heard = Heard()
    driver: Driver = form(build or (lambda: NullEngine(clock=Clock())), heard)
    await driver.start()
    try:
        yield driver, heard
    finally:
        async with asyncio.timeout(LIMIT):
            await driver.close()


def job(name: str, tokens: int = 50) -> Job:
    return Job(request_id=name, attempt=1, prompt_ids=[1, 2], max_tokens=tokens)


@FORMS
async def test_jobs_that_come_at_any_time_are_said_whole(form: type) -> None:
    chance = random.Random(1)
    async with driving(form) as (driver, heard), asyncio.timeout(LIMIT):
        heard.waited = 40
        for number in range(40):
            driver.add(job(f"r{number}", chance.randrange(1, 300)))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        await heard.done.wait()
        assert len(heard.ids) == 40
        assert driver.capacity.tokens == sum(map(len, heard.ids.values()))


@FORMS
async def test_a_pause_keeps_what_was_said_and_a_resume_goes_on(form: type) -> None:
    async with driving(form) as (driver, heard), asyncio.timeout(LIMIT):
        heard.waited = 1
        driver.pause("a")
        driver.pause("b")
        driver.add(job("r"))
        for _ in range(20):
            await asyncio.sleep(0)
        driver.resume("a")
        for _ in range(20):
            await asyncio.sleep(0)
        assert heard.ids == {}, "one reason is left"
        assert driver.step_age() == 0.0, "a paused engine is not a stuck one"
        driver.resume("b")
        await heard.done.wait()
        assert len(heard.ids["r"]) == 50


@FORMS
async def test_a_cancelled_job_is_heard_no_more(form: type) -> None:
    async with driving(form) as (driver, heard), asyncio.timeout(LIMIT):
        driver.pause("until both are there")
        heard.waited = 1
        driver.add(job("gone", 10_000))
        driver.add(job("kept"))
        driver.cancel("gone", 1)
        driver.resume("until both are there")
        await heard.done.wait()
        assert list(heard.ids) == ["kept"]


@FORMS
async def test_an_engine_that_cannot_be_built_says_so(form: type) -> None:
    def broken() -> Engine:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        async with driving(form, broken):
            raise AssertionError("it must not start")


@FORMS
async def test_what_ends_an_engine_is_told(form: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: NullEngine) -> list[Event]:
        raise DeviceLost("gone")

    monkeypatch.setattr(NullEngine, "step", lost)
    async with driving(form) as (driver, _), asyncio.timeout(LIMIT):
        driver.add(job("r"))
        with pytest.raises(DeviceLost):
            await driver.failed


async def test_an_engine_waits_for_a_loop_that_is_behind() -> None:
    """Bounded: steps that nobody has taken yet do not pile up."""
    async with driving(ThreadDriver) as (driver, heard), asyncio.timeout(LIMIT):
        heard.waited = 1
        driver.add(job("long", 100_000))
        loop_is_busy_until = asyncio.get_running_loop().time() + 0.2
        while asyncio.get_running_loop().time() < loop_is_busy_until:
            pass
        assert isinstance(driver, ThreadDriver)
        assert driver.behind <= 64
        await heard.done.wait()
        assert len(heard.ids["long"]) == 100_000
