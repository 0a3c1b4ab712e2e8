"""One budget of tokens: streams first, then prompts, then drafts; nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from workers.job import Job
from workers.planner import Work, plan
from workers.sequence import Sequence

SIZE = 4


def sequence(
    arrival: int, *, length: int = 8, computed: int = 0, drafts: int = 0, lane: int = 1
) -> Sequence:
    ids = [arrival % 3] * length
    job = Job(request_id=f"r{arrival}", attempt=1, prompt_ids=ids, max_tokens=100, lane=lane)
    each = Sequence(job, 0, arrival, 0, "revision")
    each.computed = min(computed, length - 1)
    each.drafts = [1] * drafts if each.decoding else []
    return each


RUNNING = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 4), st.integers(0, 2)),
    max_size=12,
).map(
    lambda rows: [
        sequence(i, length=length, computed=computed, drafts=drafts, lane=lane)
        for i, (length, computed, drafts, lane) in enumerate(rows)
    ]
)


def by_name(work: list[Work]) -> dict[str, int]:
    return {each.sequence.job.request_id: each.count for each in work}


@given(RUNNING, st.integers(12, 64), st.booleans())
def test_a_plan_keeps_the_budget_and_serves_every_stream(
    running: list[Sequence], budget: int, sharing: bool
) -> None:
    work = plan(running, budget, SIZE, sharing=sharing)
    assert sum(each.count for each in work) <= budget
    assert len({id(each.sequence) for each in work}) == len(work)
    for each in work:
        drafts = len(each.sequence.drafts)
        assert 1 <= each.count <= each.sequence.uncomputed + drafts
        whole = each.count == each.sequence.uncomputed + drafts
        assert each.draws == (1 + drafts if whole else 0)
    planned = {id(each.sequence) for each in work}
    assert all(id(s) in planned for s in running if s.decoding)


@given(RUNNING.filter(len), st.integers(13, 64))
def test_the_oldest_prompt_always_moves(running: list[Sequence], budget: int) -> None:
    prompts = [s for s in running if not s.decoding]
    if prompts:
        assert prompts[0].job.request_id in by_name(plan(running, budget, SIZE))


@given(RUNNING, st.integers(12, 64))
def test_nothing_is_left_over_while_prompts_wait(running: list[Sequence], budget: int) -> None:
    work = plan(running, budget, SIZE, sharing=False)
    counts = by_name(work)
    wait = [s for s in running if counts.get(s.job.request_id, 0) < s.uncomputed]
    assert not wait or sum(counts.values()) == budget


def test_a_short_prompt_is_computed_beside_a_long_one() -> None:
    counts = by_name(plan([sequence(0, length=500), sequence(1, length=6)], 32, SIZE))
    assert counts == {"r0": 26, "r1": 6}


def test_a_long_prompt_has_half_of_the_budget_whatever_else_there_is() -> None:
    crowd = [sequence(0, length=500), *(sequence(i, length=20) for i in (1, 2, 4, 5))]
    assert by_name(plan(crowd, 32, SIZE, sharing=False))["r0"] == 16


def test_prompts_of_a_higher_lane_go_first() -> None:
    crowd = [sequence(0, length=500), sequence(1, length=20), sequence(2, length=30, lane=0)]
    assert by_name(plan(crowd, 40, SIZE)) == {"r0": 20, "r2": 20}


def test_what_another_one_computes_in_this_step_is_waited_for() -> None:
    crowd = [sequence(0, length=20), sequence(3, length=20)]  # the same tokens
    assert by_name(plan(crowd, 64, SIZE)) == {"r0": 20}
    assert by_name(plan(crowd, 64, SIZE, sharing=False)) == {"r0": 20, "r3": 20}


def test_drafts_take_only_what_is_left_over() -> None:
    stream, prompt = sequence(0, computed=7, drafts=4), sequence(1, length=30)
    assert by_name(plan([stream, prompt], 40, SIZE)) == {"r0": 5, "r1": 30}
    stream.drafts = [1] * 4
    assert by_name(plan([stream, prompt], 33, SIZE)) == {"r0": 3, "r1": 30}
    stream.drafts = [1] * 4
    assert by_name(plan([stream, prompt], 20, SIZE)) == {"r0": 1, "r1": 19}
    assert stream.drafts == []
