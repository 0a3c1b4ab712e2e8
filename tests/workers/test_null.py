"""The engine without a model says the same words whenever and wherever it is asked."""

import subprocess
import sys
from dataclasses import replace

import pytest

from workers.job import Emission, Job, Prefix, Sampling
from workers.null import NullEngine


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def ms(self) -> int:
        return self.now


def job(**changes: object) -> Job:
    base = Job(request_id="r", attempt=1, prompt_ids=[5, 6, 7], max_tokens=40)
    return replace(base, **changes)  # type: ignore[arg-type]


def run(engine: NullEngine, *jobs: Job) -> dict[tuple[str, int], list[Emission]]:
    for each in jobs:
        engine.add(each)
    said: dict[tuple[str, int], list[Emission]] = {}
    for _ in range(10_000):
        if not engine.has_work():
            return said
        for event in engine.step():
            assert isinstance(event, Emission)
            said.setdefault((event.request_id, event.choice), []).append(event)
    raise AssertionError("the engine never came to an end")


def ids(emissions: list[Emission]) -> tuple[int, ...]:
    return tuple(id for e in emissions for id in e.ids)


def text(emissions: list[Emission]) -> str:
    return "".join(piece for e in emissions for piece in e.pieces)


def test_tokens_are_a_function_of_prompt_seed_and_choice() -> None:
    def say(each: Job) -> list[tuple[int, ...]]:
        return [ids(e) for e in run(NullEngine(clock=ManualClock()), each).values()]

    first = say(job(n=2))
    assert first == say(job(n=2, attempt=3))
    assert first[0] != first[1]
    assert first[0] != say(job(sampling=Sampling(seed=1)))[0]
    assert first[0] != say(job(prompt_ids=[5, 6, 8]))[0]
    assert len(first[0]) == 40


def test_another_attempt_varies_where_asked_to() -> None:
    def say(attempt: int) -> str:
        return text(run(NullEngine(0, True, clock=ManualClock()), job(attempt=attempt))["r", 0])

    assert say(1) != say(2)
    assert say(1) == say(1)


@pytest.mark.parametrize("k", [0, 1, 17, 39, 40])
@pytest.mark.parametrize("stop", [(), ("ba da ga",), ("zi",)])
def test_a_continuation_equals_an_uncut_run(k: int, stop: tuple[str, ...]) -> None:
    sampling = Sampling(stop=stop)
    whole = run(NullEngine(clock=ManualClock()), job(sampling=sampling))["r", 0]
    pieces = [piece for e in whole for piece in e.pieces]
    k = min(k, len(pieces))
    prefix = Prefix(ids=ids(whole)[:k], pieces=tuple(pieces[:k]))
    rest = run(NullEngine(clock=ManualClock()), job(sampling=sampling, prefix=(prefix,), attempt=2))
    assert prefix.ids + ids(rest["r", 0]) == ids(whole)
    assert "".join(prefix.pieces) + text(rest["r", 0]) == text(whole)
    assert rest["r", 0][-1].finish == whole[-1].finish
    assert rest["r", 0][0].k == k


def test_a_stop_string_ends_the_answer_and_is_not_part_of_it() -> None:
    plain = text(run(NullEngine(clock=ManualClock()), job())["r", 0])
    stop = plain[31:36]
    said = run(NullEngine(clock=ManualClock()), job(sampling=Sampling(stop=(stop,))))["r", 0]
    assert said[-1].finish == "stop"
    assert text(said) == plain[: plain.find(stop)]


def test_the_rate_is_kept_by_the_given_clock_alone() -> None:
    clock = ManualClock()
    engine = NullEngine(rate=20, clock=clock)
    engine.add(job())
    assert engine.step() == []
    assert engine.wait_ms() == 50
    clock.now += 100
    (event,) = engine.step()
    assert isinstance(event, Emission) and len(event.ids) == 2 and event.k == 0
    clock.now += int(engine.wait_ms())
    (event,) = engine.step()
    assert isinstance(event, Emission) and len(event.ids) == 1 and event.k == 2


def test_jobs_beyond_the_slots_wait_and_cancel_frees_one() -> None:
    engine = NullEngine(rate=1, slots=2, clock=ManualClock())
    for name in "abc":
        engine.add(job(request_id=name))
    engine.step()
    assert (engine.capacity().running, engine.capacity().waiting) == (2, 1)
    assert engine.cancel("a", 1) and not engine.cancel("a", 1)
    assert not engine.cancel("b", 0)
    engine.step()
    assert (engine.capacity().running, engine.capacity().waiting) == (2, 0)


def test_a_finished_choice_of_the_prefix_says_nothing_more() -> None:
    done = Prefix(ids=(1,), pieces=(" x",), finish="stop")
    said = run(NullEngine(clock=ManualClock()), job(n=2, prefix=(done, Prefix())))
    assert list(said) == [("r", 1)]


def test_it_needs_no_torch() -> None:
    code = "import sys, workers.null; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
