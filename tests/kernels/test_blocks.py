"""The prefix cache is never wrong, and no block is ever lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kernels.blocks import BlockPool, OutOfBlocks, root

ROOT = root("revision", "", "tenant")
SIZE = 4


def hold(pool: BlockPool, ids: list[int], parent: bytes = ROOT) -> list[int]:
    """What a sequence does: match, share, take the rest, register what is full."""
    blocks, digests = pool.match(parent, ids)
    pool.share(blocks)
    blocks += pool.take(pool.blocks_for(len(ids)) - len(blocks))
    digest = digests[-1] if digests else parent
    for i in range(len(digests), len(ids) // SIZE):
        digest = pool.register(blocks[i], digest, ids[i * SIZE : (i + 1) * SIZE])
    return blocks


def test_a_prompt_that_is_known_whole_still_computes_its_last_token() -> None:
    pool = BlockPool(8, SIZE)
    pool.release(hold(pool, list(range(8))))
    assert len(pool.match(ROOT, list(range(8)))[0]) == 1
    assert len(pool.match(ROOT, list(range(9)))[0]) == 2


def test_the_same_tokens_behind_another_beginning_are_no_hit() -> None:
    pool = BlockPool(8, SIZE)
    hold(pool, [1, 2, 3, 4, 9, 9, 9, 9])
    assert pool.match(ROOT, [9, 9, 9, 9, 0])[0] == []
    assert len(pool.match(ROOT, [1, 2, 3, 4, 9, 9, 9, 9, 0])[0]) == 2


def test_tenants_do_not_share_blocks() -> None:
    pool = BlockPool(8, SIZE)
    hold(pool, list(range(8)))
    assert pool.match(root("revision", "", "another"), list(range(9)))[0] == []


def test_root_parts_do_not_run_together() -> None:
    assert root("ab", "c") != root("a", "bc")


def test_a_digest_collision_is_no_hit() -> None:
    pool = BlockPool(8, SIZE, digest=lambda parent, tokens: b"same")
    hold(pool, [1, 2, 3, 4])
    assert pool.match(ROOT, [5, 6, 7, 8, 0])[0] == []
    assert len(pool.match(ROOT, [1, 2, 3, 4, 0])[0]) == 1
    pool.check()


def test_tails_are_evicted_before_heads_and_old_before_new() -> None:
    pool = BlockPool(4, SIZE)
    pool.release(hold(pool, [1] * 8))
    pool.release(hold(pool, [2] * 8))
    pool.take(1)
    assert len(pool.match(ROOT, [1] * 9)[0]) == 1
    pool.take(1)
    assert pool.match(ROOT, [1] * 9)[0] == []
    assert len(pool.match(ROOT, [2] * 9)[0]) == 2


def test_an_evicted_block_is_forgotten() -> None:
    pool = BlockPool(1, SIZE)
    pool.release(hold(pool, [1] * 4))
    (block,) = pool.take(1)
    assert pool.match(ROOT, [1] * 5)[0] == []
    pool.register(block, ROOT, [2] * 4)
    assert pool.match(ROOT, [2] * 5)[0] == [block]


def test_asking_for_too_many_takes_none() -> None:
    pool = BlockPool(4, SIZE)
    pool.take(3)
    with pytest.raises(OutOfBlocks, match="2 blocks wanted, 1 of 4"):
        pool.take(2)
    assert pool.available == 1


def test_untrusted_blocks_are_found_no_more() -> None:
    pool = BlockPool(4, SIZE)
    blocks = hold(pool, [1] * 8)
    pool.forget(blocks[:1])
    assert pool.match(ROOT, [1] * 9)[0] == []
    pool.release(blocks)
    pool.check()
    assert (pool.free, pool.cached) == (3, 1)
    pool.clear()
    assert (pool.free, pool.cached) == (4, 0)


class Books(RuleBasedStateMachine):
    """Random sequences come, grow, share, fail and go."""

    @initialize(total=st.integers(1, 12))
    def begin(self, total: int) -> None:
        self.pool = BlockPool(total, SIZE)
        self.held: list[tuple[list[int], list[int]]] = []

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def come(self, ids: list[int]) -> None:
        known, _ = self.pool.match(ROOT, ids)
        assert len(known) * SIZE < len(ids)
        need = self.pool.blocks_for(len(ids)) - len(known)
        if need + self.pool.cached_among(known) <= self.pool.available:
            self.held.append((ids, hold(self.pool, ids)))

    @rule(which=st.integers(0, 100), forget=st.booleans())
    def go(self, which: int, forget: bool) -> None:
        if self.held:
            _, blocks = self.held.pop(which % len(self.held))
            if forget:
                self.pool.forget(blocks)
            self.pool.release(blocks)

    @rule()
    def empty(self) -> None:
        self.pool.clear()

    @invariant()
    def balanced(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        assert self.pool.free + self.pool.used + self.pool.cached == self.pool.total
        assert self.pool.used == len({b for _, blocks in self.held for b in blocks})
        content: dict[int, tuple[int, ...]] = {}
        for ids, blocks in self.held:
            for i in range(len(ids) // SIZE):  # a shared full block means one text up to its end
                assert content.setdefault(blocks[i], tuple(ids[: (i + 1) * SIZE])) == tuple(
                    ids[: (i + 1) * SIZE]
                )


TestBooks = Books.TestCase


@given(st.lists(st.integers(0, 2**31), max_size=40))
def test_what_was_held_is_found_again(ids: list[int]) -> None:
    pool = BlockPool(20, SIZE)
    blocks = hold(pool, ids) if ids else []
    pool.release(blocks)
    assert pool.match(ROOT, [*ids, 0])[0] == blocks[: len(ids) // SIZE]
