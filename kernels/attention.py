"""Attention over paged keys and values in torch: one code for prefill chunks and for decoding.

Scaled-dot-product attention on the CPU chooses its way by the lengths it sees, so `tiled_attention`
shows it one shape: tiles of 16 queries that begin at multiples of 16, and keys padded to a multiple
of 512. A query then has the same place in the same tile in every chunking, and the same bits.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from kernels.batch import Batch

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Batch], torch.Tensor]

_QUERIES = 16  # queries a tile
_KEYS = 512  # keys are padded to a multiple of this


def gather_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch
) -> torch.Tensor:
    """The reference, one sequence at a time.

    q [tokens, heads, head_dim]; keys, values [blocks, kv_heads, block_size, head_dim] of one layer
    with this step's tokens written; gives [tokens, heads, head_dim].
    """
    out = torch.empty_like(q)
    for r in range(batch.rows):
        first, last, length = _extent(batch, r)
        k, v = _gather(keys, values, batch, r, length)
        start = length - (last - first)
        mask = _causal(start, last - first, length, q.device)
        out[first:last] = _sdpa(q[first:last], k, v, mask)
    return out


def tiled_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch
) -> torch.Tensor:
    """As `gather_attention`, in tiles aligned to absolute positions (see the module's text)."""
    out = torch.empty_like(q)
    for r in range(batch.rows):
        first, last, length = _extent(batch, r)
        start = length - (last - first)
        k, v = _gather(keys, values, batch, r, length)
        k, v = (F.pad(part, (0, 0, 0, -length % _KEYS)) for part in (k, v))
        for tile in range(start // _QUERIES * _QUERIES, length, _QUERIES):
            begin, end = max(tile, start), min(tile + _QUERIES, length)
            queries = q.new_zeros(_QUERIES, *q.shape[1:])
            rows = slice(first + begin - start, first + end - start)
            queries[begin - tile : end - tile] = q[rows]
            visible = -(-(tile + _QUERIES) // _KEYS) * _KEYS  # the same in every chunking
            k_tile, v_tile = k[:, :visible], v[:, :visible]
            mask = _causal(tile, _QUERIES, k_tile.shape[1], q.device)
            out[rows] = _sdpa(queries, k_tile, v_tile, mask)[begin - tile : end - tile]
    return out


def varlen_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch
) -> torch.Tensor:
    """CUDA: torch's paged flash attention; num_splits=1 makes it independent of the batch.

    Untried on a GPU so far: written from torch 2.13's documentation.
    """
    from torch.nn.attention.varlen import varlen_attn

    device = q.device
    bounds = torch.from_numpy(batch.bounds).to(device)
    lengths = torch.from_numpy(batch.lengths).to(device)
    counts = batch.bounds[1:] - batch.bounds[:-1]
    result = varlen_attn(
        q,
        keys.transpose(1, 2),
        values.transpose(1, 2),
        bounds,
        bounds,
        int(counts.max()),
        int(batch.lengths.max()),
        window_size=(-1, 0),
        enable_gqa=True,
        seqused_k=lengths,
        block_table=torch.from_numpy(batch.block_tables).to(device),
        num_splits=1,
    )
    return torch.as_tensor(result)


def _extent(batch: Batch, row: int) -> tuple[int, int, int]:
    return int(batch.bounds[row]), int(batch.bounds[row + 1]), int(batch.lengths[row])


def _gather(
    keys: torch.Tensor, values: torch.Tensor, batch: Batch, row: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one sequence, [kv_heads, length, head_dim] each, in fp32 on the CPU."""
    blocks = -(-length // batch.block_size)
    table = torch.from_numpy(batch.block_tables[row, :blocks]).to(keys.device)

    def rows(cache: torch.Tensor) -> torch.Tensor:
        picked = cache[table].transpose(0, 1)  # [kv_heads, blocks, block_size, head_dim]
        return picked.flatten(1, 2)[:, :length]

    return rows(keys), rows(values)


def _causal(start: int, queries: int, keys: int, device: torch.device) -> torch.Tensor:
    """True where a query at start + i may see key j."""
    at = torch.arange(start, start + queries, device=device)[:, None]
    return torch.arange(keys, device=device)[None] <= at  # [queries, keys]


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """q [queries, heads, dim], k and v [kv_heads, keys, dim] -> [queries, heads, dim]."""
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask, enable_gqa=True
    )
    return out[0].transpose(0, 1)
