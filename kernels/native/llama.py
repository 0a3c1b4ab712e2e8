"""The Llama family as a program of native kernels: one call a step, nothing of Python in between."""

import ctypes
from collections.abc import Iterable

import numpy as np
import torch

from kernels.batch import Batch
from kernels.config import ModelConfig
from kernels.errors import KernelError
from kernels.fused import rope_table
from kernels.kv_cache import KVCache
from kernels.layers import LayerWeights, ModelWeights
from kernels.native.arena import Arena
from kernels.native.pack import GROUP, pack
from kernels.native.program import Buffer, Kind, Program, Step, check, tile_rows
from kernels.weights import Floats, Weight, dequantize_rows

_TILE = 12  # query rows whose scores a thread holds at most, as in attention.cpp
_ROW = 16  # scores are written by sixteen


def fits(config: ModelConfig) -> bool:
    """Whether the native kernels can compute a model of these sizes."""
    widths = (config.dim, config.hidden, config.heads * config.head_dim)
    return config.head_dim % 16 == 0 and all(width % GROUP == 0 for width in widths)


class NativeLlama:
    """A model packed for the native kernels. Exact: every sum has one order (vector.h, product.cpp)."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        layers: Iterable[LayerWeights],
        library: ctypes.CDLL,
        threads: int,
    ) -> None:
        if not check(library):
            raise KernelError("the native library was built from other sources; remove its cache")
        self.config, self.threads, self._library = config, threads, library
        self._embedding = weights.embedding
        self._arena = Arena()
        self._kept: list[Floats] = []  # vectors whose addresses the program holds
        self._program = Program()
        for index, layer in enumerate(layers):
            self._add_layer(index, layer)
        self._add_head(weights)
        self._program.finish()
        cosines, sines = rope_table(config, weights.rope_factors)
        self._step = Step(
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            cosines=self._address(cosines),
            sines=self._address(sines),
        )
        self._tile = tile_rows(library)
        self._room = self._logit_room = self._score_room = 0
        self._buffers: list[torch.Tensor] = []

    @property
    def weight_bytes(self) -> int:
        return self._arena.used

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """fp32 logits [logit rows, vocab]; the tensor is reused by the next step."""
        step = self._step
        self._make_room(batch)
        x = self._buffers[Buffer.X]
        rows = dequantize_rows(self._embedding.data[batch.ids], self._embedding.type)
        x[: batch.tokens].copy_(torch.from_numpy(rows))
        step.tokens, step.rows, step.logits = batch.tokens, batch.rows, len(batch.logit_rows)
        step.block_size, step.blocks = batch.block_size, cache.blocks
        step.table_width = batch.block_tables.shape[1]
        step.positions = batch.positions.ctypes.data
        step.slots = batch.slots.ctypes.data
        step.bounds = batch.bounds.ctypes.data
        step.lengths = batch.lengths.ctypes.data
        step.tables = batch.block_tables.ctypes.data
        step.logit_rows = batch.logit_rows.ctypes.data
        step.cache = cache.data.data_ptr()
        failed = self._library.headrace_run(
            self._program.table, len(self._program), ctypes.byref(step), self.threads
        )
        if failed:
            raise MemoryError("no memory or no thread for a step")
        return self._buffers[Buffer.LOGITS][: step.logits]

    def _add_layer(self, index: int, layer: LayerWeights) -> None:
        config, program = self.config, self._program
        dim, hidden, mixed = config.dim, config.hidden, config.heads * config.head_dim
        width = mixed + 2 * config.kv_heads * config.head_dim
        self._add_norm(Buffer.X, Buffer.NORMED, layer.attention_norm)
        self._add_products(Buffer.NORMED, Buffer.QKV, layer.qkv, width, bias=layer.qkv_bias)
        program.add(
            Kind.ROTATE,
            Buffer.QKV,
            Buffer.QKV,
            layer=index,
            rotate=int(config.has_rope(index)),
            q_norm=self._optional(layer.q_norm),
            k_norm=self._optional(layer.k_norm),
            eps=config.eps,
        )
        program.add(Kind.ATTENTION, Buffer.QKV, Buffer.MIXED, layer=index)
        program.add(Kind.QUANTISE, Buffer.MIXED, Buffer.MIXED, k=mixed)
        self._add_products(Buffer.MIXED, Buffer.X, [layer.output], dim, accumulate=1)
        self._add_norm(Buffer.X, Buffer.NORMED, layer.ffn_norm)
        self._add_products(Buffer.NORMED, Buffer.GATE_UP, layer.gate_up, 2 * hidden)
        program.add(Kind.GATE, Buffer.GATE_UP, Buffer.GATED, k=hidden)
        self._add_products(Buffer.GATED, Buffer.X, [layer.down], dim, accumulate=1)

    def _add_head(self, weights: ModelWeights) -> None:
        self._add_norm(Buffer.X, Buffer.NORMED, weights.output_norm, rows=1)
        vocab = self.config.vocab_size
        self._add_products(Buffer.NORMED, Buffer.LOGITS, [weights.head], vocab, rows=1)

    def _add_norm(self, source: Buffer, target: Buffer, weight: Floats, rows: int = 0) -> None:
        address, eps = self._address(weight), self.config.eps
        self._program.add(
            Kind.NORM, source, target, k=self.config.dim, weight=address, eps=eps, rows=rows
        )

    def _add_products(
        self,
        source: Buffer,
        target: Buffer,
        parts: list[Weight],
        stride: int,
        *,
        bias: Floats | None = None,
        accumulate: int = 0,
        rows: int = 0,
    ) -> None:
        offset = 0
        for part in parts:
            form, packed = pack(part)
            n, k = part.shape
            self._program.product(
                source,
                target,
                form,
                n,
                k,
                offset=offset,
                stride=stride,
                weight=self._arena.put(packed),
                bias=None if bias is None else self._address(bias[offset : offset + n].copy()),
                accumulate=accumulate,
                rows=rows,
            )
            offset += n

    def _address(self, values: Floats) -> int:
        self._kept.append(values)
        return int(values.ctypes.data)

    def _optional(self, values: Floats | None) -> int | None:
        return None if values is None else self._address(values)

    def _make_room(self, batch: Batch) -> None:
        """Buffers for the step; they grow by doubling and never shrink."""
        config, step = self.config, self._step
        if batch.tokens > self._room or len(batch.logit_rows) > self._logit_room:
            self._room = max(
                batch.tokens, 2 * self._room if batch.tokens > self._room else self._room
            )
            self._logit_room = max(len(batch.logit_rows), self._logit_room)
            self._allocate(self._room, self._logit_room)
        longest = -(-int(batch.lengths.max()) // _ROW) * _ROW
        if longest > self._score_room:
            self._score_room = min(2 * longest, -(-config.context // _ROW) * _ROW)
            self._score_room = max(self._score_room, longest)
            self._scores = np.empty((self.threads, _TILE, self._score_room), np.float32)
            step.scores = self._scores.ctypes.data
            step.score_room = _TILE * self._score_room

    def _allocate(self, tokens: int, logits: int) -> None:
        config, step = self.config, self._step
        mixed = config.heads * config.head_dim
        widest = max(config.dim, config.hidden, mixed)
        widths = {
            Buffer.X: config.dim,
            Buffer.NORMED: config.dim,
            Buffer.QKV: mixed + 2 * config.kv_heads * config.head_dim,
            Buffer.MIXED: mixed,
            Buffer.GATE_UP: 2 * config.hidden,
            Buffer.GATED: config.hidden,
        }
        self._buffers = [torch.empty(tokens, width) for width in widths.values()]
        self._buffers.append(torch.empty(max(logits, 1), config.vocab_size))
        for number, buffer in enumerate(self._buffers):
            step.buffers[number] = buffer.data_ptr()
        rows = -(-tokens // self._tile) * self._tile
        self._integers = (
            torch.empty(rows, widest, dtype=torch.int8),
            torch.empty(rows, widest // GROUP),
            torch.empty(rows, widest // GROUP),
            torch.empty(rows, widest // 16, dtype=torch.int32),
        )
        step.quantised, step.scales, step.sums, step.halves = (
            tensor.data_ptr() for tensor in self._integers
        )
