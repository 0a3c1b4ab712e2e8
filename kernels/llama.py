"""The Llama family in torch operators, eager: the reference, and what runs without native kernels.

x -> x + attention(norm(x)) -> x + ffn(norm(x)), per block; then norm and head.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from kernels.attention import Attend
from kernels.batch import Batch
from kernels.config import ModelConfig
from kernels.fused import rms_norm, rope_table, rotate, silu_mul
from kernels.kv_cache import KVCache
from kernels.layers import LayerWeights, ModelWeights
from kernels.linear import Linear
from kernels.weights import Floats, Weight, dequantize_rows


@dataclass(slots=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    ffn_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class TorchLlama:
    """A model of torch operators. `make` packs one weight; `attend` is one of kernels.attention."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        layers: Iterable[LayerWeights],
        make: Callable[[Weight], Linear],
        attend: Attend,
        device: torch.device,
    ) -> None:
        self.config, self._attend, self._device = config, attend, device
        self._embedding = weights.embedding
        self._norm = self._tensor(weights.output_norm)
        self._head = make(weights.head)
        cos, sin = rope_table(config, weights.rope_factors)
        self._cos, self._sin = self._tensor(cos), self._tensor(sin)
        self._layers = [self._pack(layer, make) for layer in layers]

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """fp32 logits [logit rows, vocab] of one step; keys and values are written to the cache."""
        rows = dequantize_rows(self._embedding.data[batch.ids], self._embedding.type)
        x = self._tensor(rows)  # [tokens, dim]
        positions = torch.from_numpy(batch.positions).to(self._device)
        cos, sin = self._cos[positions], self._sin[positions]  # [tokens, head_dim / 2]
        for index, layer in enumerate(self._layers):
            x = x + self._attention(index, layer, x, cos, sin, batch, cache)
            gate_up = layer.gate_up(rms_norm(x, layer.ffn_norm, self.config.eps))
            x = x + layer.down(silu_mul(gate_up))
        wanted = x[torch.from_numpy(batch.logit_rows).to(self._device)]
        return self._head(rms_norm(wanted, self._norm, self.config.eps))

    def _attention(
        self,
        index: int,
        layer: _Layer,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        batch: Batch,
        cache: KVCache,
    ) -> torch.Tensor:
        config = self.config
        qkv = layer.qkv(rms_norm(x, layer.attention_norm, config.eps))
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.view(batch.tokens, config.heads + 2 * config.kv_heads, config.head_dim)
        q, k, v = torch.split(heads, [config.heads, config.kv_heads, config.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, config.eps), rms_norm(k, layer.k_norm, config.eps)
        if config.has_rope(index):
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys, values = cache.layer(index)
        slots = torch.from_numpy(batch.slots).to(self._device)
        block, place = slots // batch.block_size, slots % batch.block_size
        keys[block, :, place] = k.to(keys.dtype)
        values[block, :, place] = v.to(values.dtype)
        mixed = self._attend(q.to(keys.dtype), keys, values, batch).float()
        return layer.output(mixed.reshape(batch.tokens, -1))

    def _pack(self, layer: LayerWeights, make: Callable[[Weight], Linear]) -> _Layer:
        return _Layer(
            attention_norm=self._tensor(layer.attention_norm),
            qkv=side_by_side([make(part) for part in layer.qkv]),
            qkv_bias=self._optional(layer.qkv_bias),
            q_norm=self._optional(layer.q_norm),
            k_norm=self._optional(layer.k_norm),
            output=make(layer.output),
            ffn_norm=self._tensor(layer.ffn_norm),
            gate_up=side_by_side([make(part) for part in layer.gate_up]),
            down=make(layer.down),
        )

    def _tensor(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def _optional(self, values: Floats | None) -> torch.Tensor | None:
        return None if values is None else self._tensor(values)


def side_by_side(parts: list[Linear]) -> Linear:
    """Several products of the same input, their outputs in a row."""
    if len(parts) == 1:
        return parts[0]

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(x) for part in parts], dim=-1)

    return run
