"""The block pool: which KV blocks are free, in use, or kept for a prompt that may come back.

A block holds the keys and values of `size` tokens. A full block is known by the digest of all
tokens up to its end, chained block by block (as in vLLM's automatic prefix caching), from a root
that names the model revision, the adapter and the tenant's salt: two tenants never share a block.
Pure bookkeeping; no tensor is touched here.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

Digest = Callable[[bytes, bytes], bytes]


class OutOfBlocks(Exception):
    """More blocks were asked for than are free or evictable."""


def chain(parent: bytes, tokens: bytes) -> bytes:
    """The digest of a block, given its parent's and its token ids as 32-bit words."""
    return blake2b(tokens, key=parent, digest_size=16).digest()


def root(*parts: str) -> bytes:
    """The parent of first blocks: model revision, adapter version, tenant salt."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def token_bytes(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


class BlockPool:
    """`total` blocks of `size` tokens; always `free + used + cached == total`.

    A block is free (no one's, nothing in it), used (by one or more sequences), or cached (no one's,
    its tokens known, evicted least recently used first). Sequences that share a prefix share its
    blocks; nobody writes into a full block.
    """

    def __init__(self, total: int, size: int, *, digest: Digest = chain) -> None:
        if total < 1 or size < 1:
            raise ValueError(f"a pool needs blocks and a block tokens, not {total} and {size}")
        self.total = total
        self.size = size
        self._digest = digest
        self._free = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._holders = [0] * total
        self._used = 0
        self._by_digest: dict[bytes, int] = {}
        self._known: dict[int, tuple[bytes, bytes, bytes]] = {}  # block: digest, parent, tokens

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self._used

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that `take` could hand out now."""
        return len(self._free) + len(self._cached)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def match(self, parent: bytes, ids: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """The known blocks that `ids` begins with, and their digests. Takes nothing.

        Never covers the last id: its logits are still to be computed. A digest whose tokens or
        parent differ is another prompt's, and no hit.
        """
        blocks: list[int] = []
        digests: list[bytes] = []
        for end in range(self.size, len(ids), self.size):
            tokens = token_bytes(ids[end - self.size : end])
            digest = self._digest(parent, tokens)
            block = self._by_digest.get(digest)
            if block is None or self._known[block] != (digest, parent, tokens):
                break
            blocks.append(block)
            digests.append(digest)
            parent = digest
        return blocks, digests

    def cached_among(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` nobody holds: sharing them makes as many unavailable."""
        return sum(not self._holders[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Hold blocks that `match` found."""
        for block in blocks:
            if not self._holders[block]:
                del self._cached[block]
                self._used += 1
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Hold `count` blocks of one's own; evicts the least recently used cached ones.

        Raises OutOfBlocks, and takes nothing, where fewer are available.
        """
        if count > self.available:
            raise OutOfBlocks(f"{count} blocks wanted, {self.available} of {self.total} available")
        blocks = []
        for _ in range(count):
            if self._free:
                block = self._free.pop()
            else:
                block, _ = self._cached.popitem(last=False)
                self._forget(block)
            self._holders[block] = 1
            blocks.append(block)
        self._used += count
        return blocks

    def register(self, block: int, parent: bytes, ids: Sequence[int]) -> bytes:
        """Make a full, computed block findable; returns its digest.

        Where the same tokens are known already, that block stays the known one.
        """
        tokens = token_bytes(ids)
        digest = self._digest(parent, tokens)
        if block not in self._known and self._by_digest.setdefault(digest, block) == block:
            self._known[block] = (digest, parent, tokens)
        return digest

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of a sequence's blocks, last first, so that tails are evicted before heads."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            self._used -= 1
            if block in self._known:
                self._cached[block] = None
            else:
                self._free.append(block)

    def forget(self, blocks: Sequence[int]) -> None:
        """Make blocks unfindable, held or not: what is in them is not to be trusted."""
        for block in blocks:
            if block in self._known:
                self._forget(block)
            if block in self._cached:
                del self._cached[block]
                self._free.append(block)

    def clear(self) -> None:
        """Empty the prefix cache; blocks in use stay so."""
        self.forget(list(self._known))

    def check(self) -> None:
        """Raise AssertionError where the books do not balance. For tests and idle moments."""
        free, cached = set(self._free), set(self._cached)
        used = {block for block, holders in enumerate(self._holders) if holders}
        assert len(free) == len(self._free), "a block is free twice"
        assert not (free & cached or free & used or cached & used), "a block is in two states"
        assert self._used == len(used), f"{self._used} counted as used, {len(used)} are"
        assert len(free) + len(used) + len(cached) == self.total, "a block is lost"
        assert cached <= self._known.keys(), "a cached block cannot be found"
        assert all(self._known[b][0] == d for d, b in self._by_digest.items()), "a stale digest"
        assert len(self._known) == len(self._by_digest), "a known block cannot be found"

    def _forget(self, block: int) -> None:
        digest = self._known.pop(block)[0]
        del self._by_digest[digest]
