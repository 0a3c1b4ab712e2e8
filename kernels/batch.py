"""One step's work, packed: tokens of all sequences in a row, and where their keys and values go."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import CacheError

Ints = npt.NDArray[np.int32]


@dataclass(slots=True)
class Row:
    """Tokens of one sequence in this step: one when decoding, a chunk when prefilling.

    `start` is the position of ids[0]; `block_table` must cover start + len(ids) tokens;
    `logits` says how many of the last tokens need logits (several for draft verification).
    """

    ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    logits: int = 1


@dataclass(slots=True)
class Batch:
    """Rows packed along one token axis."""

    ids: Ints  # [tokens]
    positions: Ints  # [tokens]
    slots: Ints  # [tokens]; block * block_size + place in it
    bounds: Ints  # [rows + 1]; row r has tokens bounds[r] up to bounds[r + 1]
    lengths: Ints  # [rows]; tokens of the sequence after this step
    block_tables: Ints  # [rows, most blocks]; unused places are 0
    logit_rows: Ints  # [logits]; which tokens need logits, in the order of the rows
    block_size: int
    device: torch.device

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def rows(self) -> int:
        return len(self.lengths)


def pack(rows: Sequence[Row], block_size: int, device: str | torch.device = "cpu") -> Batch:
    """Pack the rows of one step. Raises CacheError for a block table that is too short."""
    counts = np.array([len(row.ids) for row in rows], np.int32)
    starts = np.array([row.start for row in rows], np.int32)
    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    lengths = starts + counts
    widest = max((len(row.block_table) for row in rows), default=0)
    tables = np.zeros((len(rows), max(widest, 1)), np.int32)
    for r, row in enumerate(rows):
        if len(row.block_table) * block_size < lengths[r]:
            raise CacheError(
                f"{len(row.block_table)} blocks of {block_size} do not hold {lengths[r]} tokens"
            )
        tables[r, : len(row.block_table)] = row.block_table
    total = int(bounds[-1])
    owner = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    positions = np.arange(total, dtype=np.int32) - bounds[owner] + starts[owner]
    slots = tables[owner, positions // block_size] * block_size + positions % block_size
    ids = np.fromiter((i for row in rows for i in row.ids), np.int32, total)
    logits = [np.arange(bounds[r + 1] - row.logits, bounds[r + 1]) for r, row in enumerate(rows)]
    return Batch(
        ids=ids,
        positions=positions,
        slots=slots.astype(np.int32, copy=False),
        bounds=bounds,
        lengths=lengths,
        block_tables=tables,
        logit_rows=np.concatenate(logits).astype(np.int32) if logits else np.zeros(0, np.int32),
        block_size=block_size,
        device=torch.device(device),
    )
