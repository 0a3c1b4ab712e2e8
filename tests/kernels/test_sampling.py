"""A draw depends on its own row, seed and position; the distribution is the one that was asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.philox import philox4x32, uniform
from kernels.sampling import DrawParams, draw

VOCAB = 2000


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def test_philox_is_the_published_one() -> None:
    """Known answers of the Random123 distribution."""
    ones, zeros = np.array([0xFFFFFFFF], np.uint64), np.array([0], np.uint64)
    words = [int(w[0]) for w in philox4x32([zeros] * 4, [zeros] * 2)]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    words = [int(w[0]) for w in philox4x32([ones] * 4, [ones] * 2)]
    assert words == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_uniform_numbers_are_uniform_and_differ_by_seed_position_and_stream() -> None:
    chance = uniform([7] * 50_000, range(50_000), [0] * 50_000)
    assert chance.min() >= 0 and chance.max() < 1
    assert abs(chance.mean() - 0.5) < 0.01
    some = uniform([1, 1, 1, 2, 2**64 - 1], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0])
    assert len(set(some.tolist())) == 5


params = st.builds(
    DrawParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05]),
    top_k=st.sampled_from([0, 1, 5, 50, 10**6]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 1.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([(), ((3, 5.0), (4, -100.0))]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 1000),
    logprobs=st.sampled_from([-1, 0, 5]),
)


@settings(max_examples=60, deadline=None)
@given(batch=st.lists(params, min_size=1, max_size=9))
def test_a_row_draws_the_same_alone_and_in_company(batch: list[DrawParams]) -> None:
    logits = rows(len(batch))
    seen = [list(range(r, r + 4)) for r in range(len(batch))]
    together = draw(logits, batch, seen, seen)
    for r, p in enumerate(batch):
        alone = draw(logits[r : r + 1], [p], seen[r : r + 1], seen[r : r + 1])
        assert alone.ids[0] == together.ids[r]
        assert alone.logprobs[0] == together.logprobs[r]
        assert alone.top[0] == together.top[r]


def test_asking_for_logprobs_changes_no_token() -> None:
    logits = rows(1)
    for position in range(50):
        plain, asked = (DrawParams(position=position, logprobs=n) for n in (-1, 5))
        assert draw(logits, [plain]).ids == draw(logits, [asked]).ids


def test_logprobs_are_those_of_the_unmodified_logits_best_first() -> None:
    logits = rows(1)
    scores = logits.log_softmax(-1)[0]
    p = DrawParams(temperature=0, logit_bias=((7, 100.0),), logprobs=3)
    drawn = draw(logits, [p])
    assert drawn.ids == [7]
    assert drawn.logprobs[0] == pytest.approx(float(scores[7]), abs=1e-6)
    best = scores.topk(3)
    assert [i for i, _ in drawn.top[0]] == best.indices.tolist()
    assert torch.equal(logits, rows(1)), "the caller's logits were changed"


def frequencies(logits: torch.Tensor, count: int = 4000, **kind: float) -> torch.Tensor:
    many = logits.expand(count, -1)
    drawn = draw(many, [DrawParams(position=i, seed=5, **kind) for i in range(count)])  # type: ignore[arg-type]
    return torch.bincount(torch.tensor(drawn.ids), minlength=logits.shape[-1]) / count


def test_the_distribution_is_the_softmax() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    for temperature in (1.0, 0.5):
        wanted = (logits[0] / temperature).softmax(-1)
        assert (frequencies(logits, temperature=temperature) - wanted).abs().max() < 0.03


def test_filters_keep_what_they_should() -> None:
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.07, 0.03]]))
    kept = {"top_k": (2, 2), "top_p": (0.75, 3), "min_p": (0.2, 3)}
    for name, (value, count) in kept.items():
        seen = frequencies(logits, 1500, **{name: value})
        assert (seen > 0).tolist() == [i < count for i in range(5)], name


def test_a_flat_distribution_is_sorted_whole() -> None:
    flat = torch.zeros(1, 5000)
    drawn = draw(flat, [DrawParams(top_p=0.9, seed=3)])
    assert drawn.finite == [True] and 0 <= drawn.ids[0] < 5000


def test_penalties_and_bans() -> None:
    logits = torch.tensor([[2.0, 1.9, -1.0]])
    greedy = DrawParams(temperature=0)

    def first(p: DrawParams, seen: list[int]) -> int:
        return draw(logits, [p], [seen], [[]]).ids[0]

    assert first(greedy, [0]) == 0
    assert first(DrawParams(temperature=0, presence_penalty=0.2), [0]) == 1
    assert first(DrawParams(temperature=0, frequency_penalty=0.04), [0]) == 0
    assert first(DrawParams(temperature=0, frequency_penalty=0.04), [0, 0, 0]) == 1
    assert first(DrawParams(temperature=0, repetition_penalty=1.2), [0]) == 1
    assert first(DrawParams(temperature=0, banned_ids=(0, 1)), []) == 2


def test_rows_that_are_no_numbers_are_told_and_others_go_on() -> None:
    logits = rows(4)
    logits[1, 5] = torch.nan
    logits[2] = -torch.inf
    wanted = draw(logits[:1], [DrawParams(seed=1)]).ids[0]
    drawn = draw(logits, [DrawParams(seed=1)] * 3 + [DrawParams(temperature=0)])
    assert drawn.finite == [True, False, False, True]
    assert drawn.ids[0] == wanted
