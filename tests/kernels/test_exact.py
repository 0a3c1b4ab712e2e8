"""A token's logits depend on its own text alone, bit for bit: not on company, chunks or blocks."""

import ctypes
from pathlib import Path

import pytest
import torch

from kernels.batch import Row, pack
from kernels.kv_cache import KVCache
from kernels.model import Model, load_model
from kernels.native import library
from kernels.native.build import NativeBuildError, build, load
from kernels.native.selftest import is_sound
from kernels.sampling import DrawParams, draw

TEXT = (
    "A headrace is the channel that carries water to the turbine. Above it lies the reservoir, "
    "below it the tailrace; between them the wheel turns at one speed, whatever the river does. "
    "In spring the water is high and brown, in August one can walk across the stones. The miller "
    "opens the gate a hand's breadth more or less, and the grain falls as it always fell."
)
BLOCKS = 400


@pytest.fixture(scope="module")
def ids(exact: Model) -> list[int]:
    return exact.vocabulary.encode(TEXT)


@pytest.fixture(scope="module")
def whole(exact: Model, ids: list[int]) -> torch.Tensor:
    """Logits of every position, the text alone and in one piece, [tokens, vocab]."""
    return forward(exact, [Row(ids, 0, table(0), len(ids))], exact.new_cache(BLOCKS))


def table(row: int) -> list[int]:
    """Six blocks of a row, scattered."""
    return [(row * 6 + place) * 37 % BLOCKS for place in range(6)]


def forward(model: Model, rows: list[Row], cache: KVCache) -> torch.Tensor:
    return model.forward(pack(rows, cache.block_size), cache).clone()


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_a_prompt_in_chunks_gives_the_logits_of_the_prompt_in_one_piece(
    chunk: int, exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache, parts = exact.new_cache(BLOCKS), []
    for at in range(0, len(ids), chunk):
        piece = ids[at : at + chunk]
        parts.append(forward(exact, [Row(piece, at, table(3), len(piece))], cache))
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16, 17, 33, 64])
def test_decoding_in_a_batch_gives_the_logits_of_decoding_alone(
    size: int, exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache = exact.new_cache(BLOCKS)
    starts = [1 + (29 * r) % (len(ids) - 1) for r in range(size)]  # each row is elsewhere
    forward(exact, [Row(ids[:n], 0, table(r), 0) for r, n in enumerate(starts)], cache)
    logits = forward(exact, [Row([ids[n]], n, table(r)) for r, n in enumerate(starts)], cache)
    for r, n in enumerate(starts):
        assert torch.equal(logits[r], whole[n]), f"row {r} of {size} at position {n}"


def test_prompts_and_decoding_rows_share_a_step(
    exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache = exact.new_cache(BLOCKS)
    forward(exact, [Row(ids[:40], 0, table(0), 0), Row(ids[:20], 0, table(1), 0)], cache)
    rows = [
        Row(ids[40:41], 40, table(0)),
        Row(ids[20:45], 20, table(1), 25),
        Row(ids, 0, table(2), 1),
        Row([9, 9, 9], 0, table(4), 0),
    ]
    logits = forward(exact, rows, cache)
    assert torch.equal(logits[0], whole[40])
    assert torch.equal(logits[1:26], whole[20:45])
    assert torch.equal(logits[26], whole[-1])


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_the_size_of_a_block_changes_nothing(
    block_size: int, exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache = exact.new_cache(8, block_size)
    found = forward(exact, [Row(ids, 0, [5, 2, 7, 1, 0, 3], len(ids))], cache)
    assert torch.equal(found, whole)


def test_swapped_out_and_in_and_forked_blocks_continue_identically(
    exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache = exact.new_cache(BLOCKS)
    forward(exact, [Row(ids[:50], 0, table(0), 0)], cache)
    content = cache.swap_out(table(0)[:4])
    cache.data.fill_(torch.nan)  # whatever another request leaves behind
    cache.swap_in(content, table(9)[:4])
    cache.copy_blocks([(table(9)[3], 399)])
    fork = [*table(9)[:3], 399, *table(9)[4:]]
    logits = forward(exact, [Row(ids[50:51], 50, table(9)), Row(ids[50:51], 50, fork)], cache)
    assert torch.equal(logits[0], whole[50])
    assert torch.equal(logits[1], whole[50])


def test_a_row_that_is_no_number_fails_alone(
    exact: Model, ids: list[int], whole: torch.Tensor
) -> None:
    cache = exact.new_cache(BLOCKS)
    forward(exact, [Row(ids[:30], 0, table(r), 0) for r in range(2)], cache)
    cache.data[:, :, table(1)[0]] = torch.nan
    logits = forward(exact, [Row(ids[30:31], 30, table(r)) for r in range(2)], cache)
    drawn = draw(logits, [DrawParams(temperature=0), DrawParams(temperature=0.7)])
    assert drawn.finite == [True, False]
    assert torch.equal(logits[0], whole[30])


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(
    threads: int, smollm2: Path, ids: list[int], whole: torch.Tensor
) -> None:
    model = load_model(smollm2, threads=threads)
    found = forward(model, [Row(ids, 0, table(0), len(ids))], model.new_cache(BLOCKS))
    assert torch.equal(found, whole)


def _other(tmp_path: Path, *flags: str) -> ctypes.CDLL:
    try:
        return load(build(flags, tmp_path))
    except NativeBuildError as error:
        pytest.skip(f"cannot build: {error}")


def test_another_instruction_set_gives_the_same_bits(
    tmp_path: Path,
    smollm2: Path,
    ids: list[int],
    whole: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plain loops with fused multiply-add against whatever this machine has."""
    if library() is None:
        pytest.skip("no compiler")
    other = _other(tmp_path, "-march=x86-64", "-mfma", "-mno-avx2")
    assert other.headrace_dots() == b"plain"
    assert is_sound(other)
    monkeypatch.setattr("kernels.model.library", lambda: other)
    model = load_model(smollm2)
    found = forward(model, [Row(ids[:12], 0, table(0), 12)], model.new_cache(BLOCKS))
    assert torch.equal(found, whole[:12])
