"""Keys and values of every layer in one tensor, by block, so that nothing can fragment later."""

from collections.abc import Sequence

import torch

from kernels.config import ModelConfig
from kernels.errors import CacheError

BLOCK_MULTIPLE = 16  # positions that the CPU kernels take at once: one vector of keys


class KVCache:
    """[layers, 2 (keys, values), blocks, kv_heads, block_size * head_dim].

    What lies inside a block is the operators' affair: torch keeps [block_size, kv_heads, head_dim],
    the native kernels [kv_heads, head_dim, block_size] for keys and [kv_heads, block_size,
    head_dim] for values. Blocks move whole, so copies and swaps
    need not know.
    """

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: str = "cpu",
    ) -> None:
        if block_size < 1 or block_size % BLOCK_MULTIPLE:
            raise CacheError(f"block size {block_size} is no multiple of {BLOCK_MULTIPLE}")
        if blocks < 1:
            raise CacheError(f"a cache of {blocks} blocks")
        self.blocks, self.block_size, self.head_dim = blocks, block_size, config.head_dim
        shape = (config.layers, 2, blocks, config.kv_heads, block_size * config.head_dim)
        try:
            # zeroed, so that a stale place never holds a NaN, and so that memory is there for sure
            self.data = torch.zeros(shape, dtype=dtype, device=device)
        except RuntimeError as error:  # torch has no other name for "out of memory" on the CPU
            size = block_bytes(config, block_size, dtype) * blocks
            raise CacheError(f"no memory for a KV cache of {size >> 20} MiB: {error}") from error

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer for torch, each [blocks, kv_heads, block_size, head_dim]."""
        pair = self.data[index]
        shape = (self.blocks, self.block_size, pair.shape[2], self.head_dim)
        return pair[0].view(shape).transpose(1, 2), pair[1].view(shape).transpose(1, 2)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (from, to) each: a forked choice's last, half-full block."""
        if pairs:
            source, target = zip(*pairs, strict=True)
            self.data[:, :, list(target)] = self.data[:, :, list(source)]

    def swap_out(self, blocks: Sequence[int]) -> torch.Tensor:
        """The blocks' content on the host, [layers, 2, len(blocks), kv_heads, ...]."""
        return self.data[:, :, list(blocks)].to("cpu")

    def swap_in(self, content: torch.Tensor, blocks: Sequence[int]) -> None:
        """Put what `swap_out` gave into other blocks, in the same order."""
        if content.shape[2] != len(blocks):
            raise CacheError(f"{content.shape[2]} blocks cannot go into {len(blocks)}")
        self.data[:, :, list(blocks)] = content.to(self.data.device)


def block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers."""
    return 2 * config.layers * config.kv_heads * block_size * config.head_dim * dtype.itemsize
