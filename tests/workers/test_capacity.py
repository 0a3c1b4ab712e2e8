"""Who is admitted, in which order, and who has to make room."""

from dataclasses import replace
from typing import Any

from kernels.blocks import BlockPool
from workers.capacity import Expectation, Policy, admissible, never_fits, queue, victim
from workers.job import Job, Prefix, Sampling
from workers.sequence import Sequence

POLICY = Policy(margin=0.0)


def sequence(arrival: int, *, tokens: int = 8, prompt: int = 8, **fields: Any) -> Sequence:
    job = Job(
        request_id=f"r{arrival}",
        attempt=1,
        prompt_ids=[arrival] * prompt,
        max_tokens=tokens,
        lane=fields.pop("lane", 1),
        alone=fields.pop("alone", False),
        sampling=Sampling(ignore_eos=True),
    )
    each = Sequence(job, 0, arrival, 0, "revision")
    for name, value in fields.items():
        setattr(each, name, value)
    return each


def names(sequences: list[Sequence]) -> list[str]:
    return [each.job.request_id for each in sequences]


def order(
    waiting: list[Sequence], running: list[Sequence] | None = None, now_ms: int = 0
) -> list[str]:
    return names(queue(waiting, running or [], Expectation(8), POLICY, now_ms))


def admit(
    waiting: list[Sequence],
    running: list[Sequence] | None = None,
    blocks: int = 16,
    slots: int = 8,
    policy: Policy = POLICY,
) -> list[str]:
    pool = BlockPool(blocks, 4)
    admitted = []
    for each in admissible(waiting, running or [], pool, Expectation(8), policy, slots):
        admitted.append(each)
        each.blocks = pool.take(pool.blocks_for(len(each.ids)))
    return names(admitted)


def test_lanes_go_first_and_waiting_lifts_a_lane() -> None:
    crowd = [sequence(0, lane=2), sequence(1, lane=1), sequence(2, lane=0)]
    assert order(crowd) == ["r2", "r1", "r0"]
    crowd = [sequence(0, lane=2), sequence(1, lane=0, since_ms=4_000)]
    assert order(crowd, now_ms=4_000) == ["r0", "r1"]


def test_a_preempted_one_goes_before_those_that_never_ran() -> None:
    assert order([sequence(0), sequence(1, preemptions=1)]) == ["r1", "r0"]


def test_those_whose_end_is_near_the_running_ones_end_go_first() -> None:
    running = [sequence(0, tokens=64)]
    crowd = [sequence(1, tokens=8), sequence(2, tokens=70), sequence(3, tokens=500)]
    assert order(crowd, running) == ["r2", "r3", "r1"] or order(crowd, running) == [
        "r2",
        "r1",
        "r3",
    ]


def test_who_waited_longer_than_the_patience_is_taken_whatever_its_group() -> None:
    running = [sequence(0, tokens=64)]
    crowd = [sequence(1, tokens=8), sequence(2, tokens=70, since_ms=200)]
    assert order(crowd, running, now_ms=200) == ["r2", "r1"]
    assert order(crowd, running, now_ms=300) == ["r1", "r2"]


def test_as_many_are_admitted_as_will_probably_find_blocks_to_their_end() -> None:
    def crowd() -> list[Sequence]:
        return [sequence(i) for i in range(6)]  # 8 + 8 tokens: 4 blocks each

    assert admit(crowd(), blocks=16) == ["r0", "r1", "r2", "r3"]
    assert admit(crowd(), blocks=16, slots=2) == ["r0", "r1"]
    assert admit(crowd(), blocks=16, policy=Policy(margin=0.1)) == ["r0", "r1", "r2"]


def test_blocks_that_the_running_ones_will_take_are_not_given_away() -> None:
    pool_left = 8
    running = [sequence(9, tokens=16)]  # holds none yet and will take 6
    assert admit([sequence(0)], running, blocks=pool_left) == []
    assert admit([sequence(0)], [], blocks=pool_left) == ["r0"]


def test_a_small_one_passes_a_large_one_but_not_for_ever() -> None:
    running = [sequence(9)]
    large, small = sequence(0, prompt=60), sequence(1)
    assert admit([large, small], running) == ["r1"]
    large.skipped = POLICY.max_skips
    small.blocks = []
    assert admit([large, small], running) == []


def test_a_suspect_is_admitted_alone() -> None:
    assert admit([sequence(0, alone=True), sequence(1)]) == ["r0"]
    assert admit([sequence(0), sequence(1, alone=True), sequence(2)]) == ["r0"]
    assert admit([sequence(1)], [sequence(0, alone=True)]) == []


def test_a_suspect_that_has_said_a_token_may_have_company() -> None:
    cleared = sequence(0, alone=True)
    cleared.ids.append(1)
    assert admit([sequence(1)], [cleared]) == ["r1"]
    assert admit([sequence(1, alone=True)], [cleared]) == []


def test_the_victim_is_of_the_lowest_lane_then_the_least_computed_and_never_the_oldest() -> None:
    oldest = sequence(0, lane=2, computed=1)
    gold, silver = sequence(1, lane=0, computed=1), sequence(2, computed=50)
    young = sequence(3, computed=20)
    assert victim([oldest, gold, silver, young], POLICY) is young
    assert victim([oldest, gold], POLICY) is gold
    assert victim([oldest], POLICY) is None
    young.preemptions = POLICY.max_preemptions
    assert victim([oldest, gold, silver, young], POLICY) is silver


def test_what_never_fits_is_said_with_the_numbers() -> None:
    pool = BlockPool(10, 4)
    assert never_fits(sequence(0, prompt=20, tokens=20).job, pool, 100, 50) is None
    why = never_fits(sequence(0, prompt=20, tokens=21).job, pool, 100, 50)
    assert why is not None and "11 KV blocks of 4" in why and "has 10" in why
    why = never_fits(sequence(0, prompt=20, tokens=20).job, pool, 39, 50)
    assert why is not None and "20" in why and "39" in why


def test_a_token_that_the_model_does_not_have_is_named() -> None:
    pool, job = BlockPool(10, 4), sequence(7).job
    assert never_fits(job, pool, 100, 8) is None
    why = never_fits(job, pool, 100, 7)
    assert why is not None and "token 7" in why and "end at 6" in why
    biased = replace(job, sampling=Sampling(logit_bias=((9, 1.0),)))
    assert "token 9" in str(never_fits(biased, pool, 100, 8))
    continued = replace(job, prefix=(Prefix(ids=(-1,)),))
    assert "token -1" in str(never_fits(continued, pool, 100, 8))


def test_the_expected_length_is_learnt_from_those_that_ended() -> None:
    job = Job(request_id="r", attempt=1, prompt_ids=[1], max_tokens=1_000)
    each = Sequence(job, 0, 0, 0, "revision")
    expectation = Expectation(8)
    assert expectation.left(each) <= 17
    for _ in range(100):
        expectation.learn(200)
    assert 390 < expectation.left(each) <= 401
    each.ids += [1] * 900
    assert expectation.left(each) == 100
