"""Norms, rotation and gate in torch: the reference of what the native kernels fuse."""

import numpy as np
import torch
import torch.nn.functional as F

from kernels.config import ModelConfig
from kernels.weights import Floats


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rope_table(config: ModelConfig, factors: Floats | None = None) -> tuple[Floats, Floats]:
    """(cos, sin), each [context, head_dim / 2] fp32, computed in fp64.

    `factors` divide the frequencies (Llama 3's `rope_freqs`), [head_dim / 2].
    """
    half = config.head_dim // 2
    frequency = config.rope_base ** (-np.arange(half) / half)
    if factors is not None:
        frequency = frequency / factors
    angle = np.outer(np.arange(config.context), frequency)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding by halves (Su et al. 2021, GPT-NeoX's order).

    x [tokens, heads, head_dim]; cos, sin [tokens, head_dim / 2] of the tokens' positions.
    """
    low, high = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, the two halves of [tokens, 2 * hidden]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up
