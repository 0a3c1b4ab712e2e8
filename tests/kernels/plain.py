"""An independent reference: the Llama family in the plainest torch, from dequantised tensors.

Shares nothing with `kernels`: tensors come through the `gguf` package's reader, rows of q and k stay
as the file has them, and the rotation is by neighbouring pairs, as such files want it.
"""

from pathlib import Path

import torch
from gguf import GGUFReader
from gguf.quants import dequantize

# file type "llama" and its like interleave q and k; the Qwen family rotates by halves
INTERLEAVED = ("llama", "smollm3")


def tensors(reader: GGUFReader) -> dict[str, torch.Tensor]:
    found = {}
    for tensor in reader.tensors:
        flat = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        found[tensor.name] = flat.float().reshape(tensor.shape.tolist()[::-1])
    return found


def field(reader: GGUFReader, key: str) -> float:
    return float(reader.fields[key].contents())


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x: torch.Tensor, base: float, interleaved: bool) -> torch.Tensor:
    """x [tokens, heads, dim], positions from 0."""
    dim = x.shape[-1]
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]  # [tokens, 1, dim / 2]
    if interleaved:
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], dim // 2, 2).contiguous())
        return torch.view_as_real(pairs * turn).reshape(x.shape).float()
    low, high = x.double().chunk(2, -1)
    turned = torch.complex(low, high) * turn
    return torch.cat([turned.real, turned.imag], -1).float()


def logits(file: Path, arch: str, ids: list[int], heads: int, kv_heads: int) -> torch.Tensor:
    """[tokens, vocab] of one sequence from its beginning."""
    reader = GGUFReader(file)  # parses for seconds: once
    w = tensors(reader)
    eps = field(reader, f"{arch}.attention.layer_norm_rms_epsilon")
    base = field(reader, f"{arch}.rope.freq_base")
    layers = int(field(reader, f"{arch}.block_count"))
    x = w["token_embd.weight"][torch.tensor(ids)]
    count = len(ids)
    hidden = torch.full((count, count), -torch.inf).triu(1)
    for i in range(layers):
        p = f"blk.{i}."
        h = norm(x, w[p + "attn_norm.weight"], eps)
        q, k, v = (
            (h @ w[f"{p}attn_{n}.weight"].T + w.get(f"{p}attn_{n}.bias", torch.zeros(1)))
            .reshape(count, n_heads, -1)
            for n, n_heads in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )  # fmt: skip
        if p + "attn_q_norm.weight" in w:
            q, k = (
                norm(q, w[p + "attn_q_norm.weight"], eps),
                norm(k, w[p + "attn_k_norm.weight"], eps),
            )
        if arch != "smollm3" or (i + 1) % 4:
            q, k = (rotate(part, base, arch in INTERLEAVED) for part in (q, k))
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5 + hidden
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(count, -1)
        x = x + mixed @ w[p + "attn_output.weight"].T
        h = norm(x, w[p + "ffn_norm.weight"], eps)
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[p + "ffn_down.weight"].T
    head = w.get("output.weight", w["token_embd.weight"])
    return norm(x, w["output_norm.weight"], eps) @ head.T
