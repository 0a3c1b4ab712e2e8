"""The same tokens alone or in company, cached or not, preempted or not, whole or continued."""

from codecs import getincrementaldecoder
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.fakes import EOS, HashRunner, ManualClock, Said, collect, reference
from workers.capacity import Policy
from workers.engine import TorchEngine
from workers.job import Failure, Job, Prefix, Sampling
from workers.runner import DeviceLost, DeviceOutOfMemory

SIZE = 4


def build(blocks: int = 64, **options: Any) -> tuple[TorchEngine, HashRunner, ManualClock]:
    runner = HashRunner(blocks, SIZE, swaps=options.pop("swaps", False))
    clock = ManualClock()
    options = {"max_batch_tokens": 32, "slots": 8, **options}
    return (
        TorchEngine(runner, clock=clock, blocks=blocks, block_size=SIZE, **options),
        runner,
        clock,
    )


def make(name: str = "r", prompt: bytes = b"ab ab", tokens: int = 20, **changes: Any) -> Job:
    return replace(
        Job(request_id=name, attempt=1, prompt_ids=list(prompt), max_tokens=tokens), **changes
    )


def finish(engine: TorchEngine, said: dict[tuple[str, int], Said]) -> list[Failure]:
    failures: list[Failure] = []
    for _ in range(5_000):
        if not engine.has_work():
            return failures
        failures += collect(engine.step(), said)
        engine.pool.check()
    raise AssertionError("the engine made no progress")


def run(engine: TorchEngine, *jobs: Job) -> tuple[dict[tuple[str, int], Said], list[Failure]]:
    for job in jobs:
        engine.add(job)
    said: dict[tuple[str, int], Said] = {}
    failures = finish(engine, said)
    assert engine.pool.used == 0
    return said, failures


SAMPLING = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
    stop=st.sampled_from([(), ("ba",), ("aab", "é "), ("世",)]),
    min_tokens=st.integers(0, 5),
    ignore_eos=st.booleans(),
)
JOBS = st.lists(
    st.builds(
        make,
        prompt=st.binary(min_size=1, max_size=30).map(lambda b: bytes(x % 2 + 97 for x in b)),
        tokens=st.integers(1, 30),
        n=st.integers(1, 3),
        lane=st.integers(0, 2),
        salt=st.sampled_from(["", "tenant"]),
        sampling=SAMPLING,
        alone=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=12,
).map(lambda jobs: [replace(job, request_id=f"r{i}") for i, job in enumerate(jobs)])


@settings(max_examples=150, deadline=None)
@given(
    jobs=JOBS,
    blocks=st.sampled_from([16, 24, 100]),
    budget=st.integers(8, 64),
    swaps=st.booleans(),
    prefix_cache=st.booleans(),
    speculate=st.booleans(),
    first_guess=st.sampled_from([1.0, 128.0]),
    pauses=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_a_job_says_the_same_in_any_company(
    jobs: list[Job],
    blocks: int,
    budget: int,
    swaps: bool,
    prefix_cache: bool,
    speculate: bool,
    first_guess: float,
    pauses: list[int],
) -> None:
    engine, runner, clock = build(
        blocks,
        swaps=swaps,
        prefix_cache=prefix_cache,
        speculate=speculate,
        max_batch_tokens=budget,
        policy=Policy(first_guess=first_guess),
    )
    said: dict[tuple[str, int], Said] = {}
    for job, pause in zip(jobs, pauses, strict=False):
        engine.add(job)
        for _ in range(pause):
            assert not collect(engine.step(), said)
            clock.now += 100
            pool = engine.pool
            pool.check()
            assert pool.free + pool.used + pool.cached == pool.total
    assert not finish(engine, said)
    for job in jobs:
        for choice in range(job.n):
            assert said[job.request_id, choice].ids == reference(job, choice)
            assert said[job.request_id, choice].finish in ("stop", "length")
    assert engine.pool.used == 0 and runner.swapped == 0
    assert max(runner.tokens) <= budget


@settings(max_examples=100, deadline=None)
@given(
    sampling=SAMPLING,
    n=st.integers(1, 3),
    tokens=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), min_size=3, max_size=3),
)
def test_a_continuation_says_what_the_first_attempt_would_have_said(
    sampling: Sampling, n: int, tokens: int, cuts: list[int]
) -> None:
    job = make(n=n, tokens=tokens, sampling=sampling)
    whole, _ = run(build()[0], job)
    prefix = []
    for choice in range(n):
        each = whole["r", choice]
        cut = min(cuts[choice], len(each.ids))
        prefix.append(Prefix(ids=tuple(each.ids[:cut]), pieces=tuple(each.pieces[:cut])))
    engine, _, _ = build()
    engine.add(replace(job, attempt=2, prefix=tuple(prefix)))
    said = {("r", c): Said(ids=list(p.ids), pieces=list(p.pieces)) for c, p in enumerate(prefix)}
    assert not finish(engine, said)
    for key, each in said.items():
        assert (each.ids, each.text, each.finish) == (
            whole[key].ids,
            whole[key].text,
            whole[key].finish,
        )


def test_the_text_is_the_tokens_text_up_to_the_stop_string() -> None:
    for seed in range(30):
        sampling = Sampling(seed=seed, stop=("b世", "ab"))
        (each,) = run(build()[0], make(tokens=60, sampling=sampling))[0].values()
        said = bytes(id for id in each.ids if id != EOS)
        whole = getincrementaldecoder("utf-8")("replace").decode(said)
        assert each.text == min(whole.split("b世")[0], whole.split("ab")[0], key=len)
        stopped = each.text != whole or each.ids[-1] == EOS
        assert each.finish == ("stop" if stopped else "length")


def test_preemption_happens_and_is_not_seen() -> None:
    for swaps in (False, True):
        engine, _, _ = build(12, swaps=swaps, policy=Policy(first_guess=1))
        jobs = [make(f"r{i}", tokens=40, sampling=Sampling(min_tokens=30)) for i in range(6)]
        said, failures = run(engine, *jobs)
        assert not failures
        assert engine.capacity().preemptions > 0
        assert (engine.capacity().swaps > 0) == swaps
        for job in jobs:
            assert said[job.request_id, 0].ids == reference(job)


def test_drafts_are_accepted_and_not_seen() -> None:
    engine, runner, _ = build(max_batch_tokens=64)
    job = make(tokens=100, sampling=Sampling(ignore_eos=True, temperature=0))
    said, _ = run(engine, job)
    assert said["r", 0].ids == reference(job)
    assert engine.capacity().accepted_drafts > 10
    assert len(runner.rows) < 100


def test_prompts_that_come_together_compute_what_they_share_once() -> None:
    engine, runner, _ = build(speculate=False)
    prompt = b"ab ba abab ba ba ab baa b"
    said, _ = run(engine, *[make(f"r{i}", prompt + b"%d" % i, 1) for i in range(8)])
    assert sum(runner.tokens) < 2 * len(prompt) + 8 * SIZE
    assert [said[f"r{i}", 0].cached_tokens for i in range(8)] == [0] + [24] * 7


def test_the_choices_of_a_job_share_its_prompt() -> None:
    engine, runner, _ = build(speculate=False)
    run(engine, make(prompt=b"ab ba abab ba ba ab baa b", tokens=1, n=8))
    assert sum(runner.tokens) <= 25 + 7 * (SIZE + 1)


def test_tenants_do_not_find_each_others_prompts() -> None:
    engine, _, _ = build()
    said, _ = run(engine, make("a", b"ab" * 10, salt="one"))
    said, _ = run(engine, make("b", b"ab" * 10, salt="two"))
    assert said["b", 0].cached_tokens == 0
    said, _ = run(engine, make("c", b"ab" * 10, salt="one"))
    assert said["c", 0].cached_tokens == 16


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    engine, _, _ = build(200, max_batch_tokens=16, prefix_cache=False)
    engine.add(make("long", bytes(97 + i * i % 7 for i in range(400))))
    engine.step()
    engine.add(make("short", b"hello"))
    said: dict[tuple[str, int], Said] = {}
    collect(engine.step(), said)
    assert said["short", 0].ids


def test_a_stream_goes_on_while_a_long_prompt_is_computed() -> None:
    engine, _, _ = build(200, max_batch_tokens=16, prefix_cache=False, speculate=False)
    engine.add(make("stream", b"hi", 30, sampling=Sampling(ignore_eos=True)))
    engine.step()
    engine.add(make("long", bytes(97 + i * i % 7 for i in range(300))))
    for _ in range(15):
        assert [e.request_id for e in engine.step()] == ["stream"]


@pytest.mark.parametrize(
    ("prompt", "tokens", "numbers"),
    [(b"a" * 100, 157, "65 KV blocks of 4, this worker has 64"), (b"", 5, "no tokens")],
)
def test_what_can_never_fit_is_refused_with_the_numbers(
    prompt: bytes, tokens: int, numbers: str
) -> None:
    said, (failure,) = run(build()[0], make(prompt=prompt, tokens=tokens))
    assert not said
    assert failure.code == "never_fits" and not failure.retryable
    assert numbers in failure.message


def test_a_prompt_over_the_context_is_refused_with_both_numbers() -> None:
    engine, _, _ = build(10_000)
    _, (failure,) = run(engine, make(prompt=b"a" * 9_990, tokens=11))
    assert "9990" in failure.message and "11" in failure.message and "10000" in failure.message


def test_what_just_fits_alone_is_served_to_the_end() -> None:
    job = make(prompt=b"ab" * 50, tokens=156, sampling=Sampling(ignore_eos=True))
    said, _ = run(build()[0], job, replace(job, request_id="other"))
    assert len(said["r", 0].ids) == len(said["other", 0].ids) == 156


def test_a_cancelled_job_frees_its_blocks_at_once() -> None:
    engine, _, _ = build()
    for name in "abc":
        engine.add(make(name, n=2, sampling=Sampling(ignore_eos=True)))
    engine.step()
    engine.step()
    used = engine.pool.used
    assert engine.cancel("b")
    assert engine.pool.used < used
    assert not engine.cancel("b")
    assert all(event.request_id != "b" for event in engine.step())
    assert engine.cancel("a", 1) and not engine.cancel("c", 0)
    engine.close()
    assert engine.pool.used == 0 and not engine.has_work()


def test_a_row_that_is_not_finite_fails_its_own_request_only() -> None:
    engine, runner, _ = build()
    runner.nan = "bad"
    good, bad = make("good"), make("bad", b"ab ab ab ab ab", n=2)
    said, (failure,) = run(engine, good, bad)
    assert (failure.request_id, failure.code, failure.retryable) == ("bad", "nan", False)
    assert said["good", 0].ids == reference(good)
    runner.nan = None
    said, _ = run(engine, replace(bad, request_id="again"))  # nothing of it was kept
    assert said["again", 0].cached_tokens == 0


@pytest.mark.parametrize(
    ("fault", "code"),
    [(RuntimeError("boom"), "engine_error"), (DeviceOutOfMemory("big"), "out_of_memory")],
)
def test_a_fault_in_a_step_gives_its_jobs_up_for_another_attempt(
    fault: Exception, code: str
) -> None:
    engine, runner, _ = build()
    engine.add(make("a"))
    engine.add(make("b", n=2))
    said: dict[tuple[str, int], Said] = {}
    collect(engine.step(), said)
    runner.fault = fault
    failures = collect(engine.step(), said)
    assert {f.request_id for f in failures} == {"a", "b"} and len(failures) == 2
    assert all(f.code == code and f.retryable for f in failures)
    assert engine.pool.used == 0
    said, failures = run(engine, make("c"))
    assert not failures and said["c", 0].ids == reference(make("c"))


def test_a_step_that_ran_out_of_memory_makes_the_next_ones_smaller() -> None:
    engine, runner, _ = build(max_batch_tokens=64)
    engine.add(make("a", b"ab" * 50))
    runner.fault = DeviceOutOfMemory("big")
    engine.step()
    run(engine, make("b", b"ba" * 50))
    assert max(runner.tokens) == 32


def test_a_lost_device_ends_the_engine() -> None:
    engine, runner, _ = build()
    engine.add(make())
    runner.fault = DeviceLost("gone")
    with pytest.raises(DeviceLost):
        engine.step()


def test_a_suspect_runs_without_company_until_it_has_said_a_token() -> None:
    engine, runner, _ = build()
    for i in range(5):
        engine.add(make(f"r{i}", alone=i == 2, sampling=Sampling(ignore_eos=True)))
    names: list[set[str]] = []
    while engine.has_work():
        names.append({event.request_id for event in engine.step()})
    assert max(runner.rows) > 1
    assert next(each for each in names if "r2" in each) == {"r2"}


def test_logprobs_belong_to_the_tokens() -> None:
    said, _ = run(build()[0], make(sampling=Sampling(logprobs=True, ignore_eos=True)))
    assert [each.id for each in said["r", 0].logprobs] == said["r", 0].ids
