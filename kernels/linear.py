"""Matrix products with stored weights, in torch. The native ones are in kernels/native.

Every implementation takes fp32 rows [M, K] and gives fp32 rows [M, N]. "Exact" ones give a row the
same bits whatever M is; which ones do on this machine is probed, not assumed (kernels/operators.py).
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from kernels.weights import Weight

Linear = Callable[[torch.Tensor], torch.Tensor]  # [M, K] -> [M, N], fp32
MakeLinear = Callable[[Weight, torch.device], Linear]

_TILE = 16  # rows of a fixed product: small enough for decoding, large enough for prefill


def dense_f32(weight: Weight, device: torch.device) -> Linear:
    """The reference: dequantised to fp32, one product."""
    matrix = torch.from_numpy(weight.dequantise()).to(device)  # [N, K]

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, matrix)

    return run


def tiled_f32(weight: Weight, device: torch.device) -> Linear:
    """fp32 in tiles of 16 rows, the last one padded: the library sees one shape only.

    BLAS libraries choose their way by the number of rows; with one shape there is one way.
    """
    matrix = torch.from_numpy(weight.dequantise()).to(device).t().contiguous()  # [K, N]

    def run(x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        padded = F.pad(x, (0, 0, 0, -rows % _TILE))
        out = torch.empty(padded.shape[0], matrix.shape[1], device=x.device)
        for at in range(0, rows, _TILE):
            torch.mm(padded[at : at + _TILE], matrix, out=out[at : at + _TILE])
        return out[:rows]

    return run


def dense_bf16(weight: Weight, device: torch.device) -> Linear:
    """bf16 weights and activations, fp32 sums. Only where the device multiplies bf16 itself."""
    matrix = torch.from_numpy(weight.dequantise()).to(device, torch.bfloat16)

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.to(torch.bfloat16), matrix).float()

    return run


def int4pack(weight: Weight, device: torch.device) -> Linear:
    """torch's int4 kernel on Q4_0 and Q4_1 without requantising: w = (q - 8) * scale + zero.

    Only d and m are rounded, from fp16 to bf16. The packed layout depends on the running ISA.
    """
    rows, columns = weight.shape
    groups = weight.data.reshape(rows, columns // 32, -1)
    affine = weight.type == "Q4_1"
    scale = groups[..., 0:2].copy().view(np.float16).astype(np.float32)[..., 0]  # [N, K / 32]
    if affine:
        zero = groups[..., 2:4].copy().view(np.float16).astype(np.float32)[..., 0] + 8 * scale
    else:
        zero = np.zeros_like(scale)
    nibbles = groups[..., 4 if affine else 2 :]  # low nibbles are elements 0-15, high 16-31
    values = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).reshape(rows, columns)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.from_numpy(values.astype(np.int32)), 1
    )
    pairs = torch.from_numpy(np.stack([scale.T, zero.T], axis=-1).copy())  # [K / 32, N, 2]
    pairs = pairs.to(torch.bfloat16)

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x.to(torch.bfloat16), packed, 32, pairs)
        return torch.as_tensor(y).float()

    return run


def by_rows(few: Linear, many: Linear, limit: int) -> Linear:
    """`few` up to `limit` rows, `many` above: quick, but a row's bits depend on its company."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return few(x) if x.shape[0] <= limit else many(x)

    return run
