"""A model's weights by their place in it, read from any source and checked for shape.

The one place that knows the tensor names of the Llama family; operators pack what it reads.
"""

from dataclasses import dataclass

import numpy as np

from kernels.config import ModelConfig
from kernels.weights import Floats, Weight, WeightSource, read_matrix, read_vector


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer block. qkv and gate_up are joined where their parts share a format."""

    attention_norm: Floats  # [dim]
    qkv: list[Weight]  # rows together: heads * head_dim + 2 * kv_heads * head_dim
    qkv_bias: Floats | None
    q_norm: Floats | None  # [head_dim]
    k_norm: Floats | None
    output: Weight  # [dim, heads * head_dim]
    ffn_norm: Floats  # [dim]
    gate_up: list[Weight]  # rows together: 2 * hidden
    down: Weight  # [dim, hidden]


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Everything outside the blocks. `head` is the embedding where the two are tied."""

    embedding: Weight  # [vocab, dim]
    output_norm: Floats  # [dim]
    head: Weight  # [vocab, dim]
    rope_factors: Floats | None  # [head_dim / 2]


def read_model(source: WeightSource, config: ModelConfig) -> ModelWeights:
    """Raises ShapeError, naming the tensor."""
    embedding = read_matrix(source, "token_embd.weight", config.vocab_size, config.dim)
    head = embedding
    if source.has("output.weight"):
        head = read_matrix(source, "output.weight", config.vocab_size, config.dim)
    factors = None
    if source.has("rope_freqs.weight"):
        factors = read_vector(source, "rope_freqs.weight", config.head_dim // 2)
    norm = read_vector(source, "output_norm.weight", config.dim)
    return ModelWeights(embedding, norm, head, factors)


def read_layer(source: WeightSource, config: ModelConfig, index: int) -> LayerWeights:
    """Raises ShapeError, naming the tensor."""
    name = f"blk.{index}."
    dim, hidden = config.dim, config.hidden
    q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes = {"attn_q": q_rows, "attn_k": kv_rows, "attn_v": kv_rows}
    parts = [read_matrix(source, f"{name}{p}.weight", rows, dim) for p, rows in sizes.items()]
    bias = None
    if source.has(f"{name}attn_q.bias"):
        bias = np.concatenate(
            [read_vector(source, f"{name}{p}.bias", rows) for p, rows in sizes.items()]
        )
    q_norm = k_norm = None
    if config.family.qk_norm:
        q_norm = read_vector(source, f"{name}attn_q_norm.weight", config.head_dim)
        k_norm = read_vector(source, f"{name}attn_k_norm.weight", config.head_dim)
    gate = read_matrix(source, f"{name}ffn_gate.weight", hidden, dim)
    up = read_matrix(source, f"{name}ffn_up.weight", hidden, dim)
    return LayerWeights(
        attention_norm=read_vector(source, f"{name}attn_norm.weight", dim),
        qkv=join(parts),
        qkv_bias=bias,
        q_norm=q_norm,
        k_norm=k_norm,
        output=read_matrix(source, f"{name}attn_output.weight", dim, q_rows),
        ffn_norm=read_vector(source, f"{name}ffn_norm.weight", dim),
        gate_up=join([gate, up]),
        down=read_matrix(source, f"{name}ffn_down.weight", dim, hidden),
    )


def join(parts: list[Weight]) -> list[Weight]:
    """One weight with the rows of all where they share a format, else the parts as they are."""
    if len({part.type for part in parts}) > 1:
        return parts
    rows = sum(part.shape[0] for part in parts)
    data = np.concatenate([part.data for part in parts])
    name = " + ".join(part.name for part in parts)
    return [Weight(name, parts[0].type, (rows, parts[0].shape[1]), data)]
