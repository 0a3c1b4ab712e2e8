"""Stored weights -> the layout that the native products read: blocks of 16 columns, groups of 32.

Nothing is requantised: integers stay the file's, scales stay fp16 where the file has them so and are
fp32 where the file computes them (K-quants). value = scale * q + minimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.quants import Q4_K

from kernels.gguf import Bytes
from kernels.weights import Weight

COLUMNS, GROUP = 16, 32  # as in step.h
Array = npt.NDArray[Any]


class Format(IntEnum):
    """As in product.cpp."""

    Q4_HALF = 0
    Q4_FLOAT = 1
    Q8_HALF = 2
    Q8_HALF_MIN = 3
    Q8_FLOAT_MIN = 4
    Q8_SIXTEEN = 5
    F32 = 6
    BF16 = 7
    F16 = 8


@dataclass(frozen=True, slots=True)
class _Split:
    """A weight taken apart: integers [N, K], scales and minima [N, K / group]."""

    quants: Array
    scale: Array
    minimum: Array | None = None


def _half(rows: Bytes) -> npt.NDArray[np.float16]:
    """[..., 2] bytes -> [...] halves."""
    return np.ascontiguousarray(rows).view(np.float16)[..., 0]


def _nibbles(blocks: Bytes) -> Bytes:
    """Low nibbles first: [..., 16] -> [..., 32]."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=-1)


def _fifth_bits(blocks: Bytes) -> Bytes:
    """[..., 4] bytes -> their 32 bits, lowest first, each at bit 4."""
    bits = np.unpackbits(blocks, axis=-1, bitorder="little")
    return bits << np.uint8(4)


def _q4_0(b: Bytes) -> _Split:
    d = _half(b[..., :2])
    return _Split(_nibbles(b[..., 2:]), d, (d * np.float16(-8)).astype(np.float16))


def _q4_1(b: Bytes) -> _Split:
    return _Split(_nibbles(b[..., 4:]), _half(b[..., :2]), _half(b[..., 2:4]))


def _q5_0(b: Bytes) -> _Split:
    quants = _nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])
    return _Split(quants.astype(np.int8) - np.int8(16), _half(b[..., :2]))


def _q5_1(b: Bytes) -> _Split:
    quants = _nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8])
    return _Split(quants, _half(b[..., :2]), _half(b[..., 2:4]))


def _q8_0(b: Bytes) -> _Split:
    return _Split(np.ascontiguousarray(b[..., 2:]).view(np.int8), _half(b[..., :2]))


def _scales_k(b: Bytes) -> tuple[Array, Array]:
    """Scales and minima of a Q4_K or Q5_K block's eight groups, fp32, [..., 8]."""
    flat = np.ascontiguousarray(b[..., 4:16]).reshape(-1, 12)
    scale, least = Q4_K.get_scale_min(flat)
    d = _half(b[..., :2]).astype(np.float32)[..., None]
    d_min = _half(b[..., 2:4]).astype(np.float32)[..., None]
    shape = (*b.shape[:-1], 8)
    return d * scale.reshape(shape).astype(np.float32), -d_min * least.reshape(shape).astype(
        np.float32
    )


def _nibbles_k(b: Bytes, run: int) -> Bytes:
    """Low nibbles of each `run` bytes, then their high ones."""
    runs = b.reshape(*b.shape[:-1], -1, run)
    return np.stack([runs & 15, runs >> 4], axis=-2).reshape(*b.shape[:-1], -1)


def _q4_k(b: Bytes) -> _Split:
    return _Split(_nibbles_k(b[..., 16:], 32), *_scales_k(b))


def _q5_k(b: Bytes) -> _Split:
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    high = ((b[..., None, 16:48] >> shifts) & 1).reshape(*b.shape[:-1], 256)
    return _Split(_nibbles_k(b[..., 48:], 32) | (high << 4), *_scales_k(b))


def _q6_k(b: Bytes) -> _Split:
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    runs = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32)
    high = ((runs >> shifts) & 3).reshape(*b.shape[:-1], 256)
    quants = (_nibbles_k(b[..., :128], 64) | (high << 4)).astype(np.int8) - np.int8(32)
    scale = np.ascontiguousarray(b[..., 192:208]).view(np.int8).astype(np.float32)
    return _Split(quants, _half(b[..., 208:]).astype(np.float32)[..., None] * scale)


# type -> (bytes a block, how it is taken apart, packed format)
_QUANTISED: dict[str, tuple[int, Callable[[Bytes], _Split], Format]] = {
    "Q4_0": (18, _q4_0, Format.Q4_HALF),
    "Q4_1": (20, _q4_1, Format.Q4_HALF),
    "Q5_0": (22, _q5_0, Format.Q8_HALF),
    "Q5_1": (24, _q5_1, Format.Q8_HALF_MIN),
    "Q8_0": (34, _q8_0, Format.Q8_HALF),
    "Q4_K": (144, _q4_k, Format.Q4_FLOAT),
    "Q5_K": (176, _q5_k, Format.Q8_FLOAT_MIN),
    "Q6_K": (210, _q6_k, Format.Q8_SIXTEEN),
}
_DENSE = {
    "F32": (np.uint32, Format.F32),
    "BF16": (np.uint16, Format.BF16),
    "F16": (np.uint16, Format.F16),
}


def pack(weight: Weight) -> tuple[Format, Bytes]:
    """The packed bytes of a matrix, flat, and how they are to be read."""
    rows, columns = weight.shape
    if weight.type in _DENSE:
        dtype, form = _DENSE[weight.type]
        values = np.ascontiguousarray(weight.data).view(dtype)
        return form, _blocks(values).transpose(0, 2, 1).copy().view(np.uint8).reshape(-1)
    block_bytes, take_apart, form = _QUANTISED[weight.type]
    split = take_apart(weight.data.reshape(rows, -1, block_bytes))
    quants = _blocks(split.quants.reshape(rows, columns).view(np.uint8))
    parts = [_pack4(quants) if form <= Format.Q4_FLOAT else _pack8(quants, split.scale, rows)]
    parts += [_side(part, rows) for part in (split.scale, split.minimum) if part is not None]
    return form, np.concatenate(parts, axis=-1).reshape(-1)


def _blocks(values: Array) -> Array:
    """[N, K] -> [N / 16, 16, K], the last block padded with zeros."""
    missing = -values.shape[0] % COLUMNS
    if missing:
        values = np.pad(values, ((0, missing), (0, 0)))
    return values.reshape(-1, COLUMNS, values.shape[1])


def _pack4(q: Array) -> Bytes:
    """[blocks, 16, K] -> [blocks, K / 32, 256], two quads of a column in each run of bytes."""
    split = q.reshape(q.shape[0], COLUMNS, -1, 4, 2, 4)  # block, column, group, pair, odd, input
    packed = split[..., 0, :] | (split[..., 1, :] << 4)  # block, column, group, pair, input
    bytes_: Bytes = packed.transpose(0, 2, 3, 1, 4).reshape(q.shape[0], -1, 4 * COLUMNS * 4)
    return bytes_


def _pack8(q: Array, scale: Array, rows: int) -> Bytes:
    """[blocks, 16, K] -> [blocks, groups, 16 * inputs a group]."""
    groups = scale.size // rows
    split = q.reshape(q.shape[0], COLUMNS, groups, -1, 4)  # block, column, group, quad, input
    return split.transpose(0, 2, 3, 1, 4).reshape(q.shape[0], groups, -1)


def _side(values: Array, rows: int) -> Bytes:
    """Scales or minima, [N, groups] -> bytes [blocks, groups, 16 * item size]."""
    blocks = _blocks(values.reshape(rows, -1)).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks).view(np.uint8)
