"""A few products against numpy before the library is believed: some of its instruction sets are
compiled here and run somewhere else for the first time."""

import ctypes

import numpy as np

from kernels.native.pack import GROUP, pack
from kernels.native.program import Buffer, Kind, Program, Step, check, tile_rows
from kernels.weights import Weight

_ROWS, _COLUMNS, _INPUTS = 9, 40, 96  # a tile and a rest in each direction, on every machine
_TOLERANCE = 1e-5  # relative; only the order of a hundred fp32 sums differs


def is_sound(library: ctypes.CDLL) -> bool:
    """Whether products of 4-bit and 8-bit weights are what they should be."""
    return check(library) and all(_agrees(library, kind, size) for kind, size in _BLOCKS.items())


_BLOCKS = {"Q4_1": 20, "Q8_0": 34, "Q5_1": 24}  # bytes a block; one for each way of the integers


def _agrees(library: ctypes.CDLL, kind: str, block_bytes: int) -> bool:
    rng = np.random.default_rng(11)
    data = rng.integers(0, 256, (_COLUMNS, _INPUTS // GROUP, block_bytes), dtype=np.uint8)
    data[..., 1] = 0x2C  # scales around 0.06, in fp16
    if kind != "Q8_0":
        data[..., 3] = 0x2C
    weight = Weight("self-test", kind, (_COLUMNS, _INPUTS), data.reshape(_COLUMNS, -1))
    x = rng.standard_normal((_ROWS, _INPUTS)).astype(np.float32)
    out = np.empty((_ROWS, _COLUMNS), np.float32)
    form, packed = pack(weight)
    packed = np.ascontiguousarray(packed)
    program = Program()
    program.add(Kind.QUANTISE, Buffer.X, Buffer.X, k=_INPUTS)
    program.product(
        Buffer.X, Buffer.LOGITS, form, _COLUMNS, _INPUTS,
        stride=_COLUMNS, weight=packed.ctypes.data,
    )  # fmt: skip
    program.finish()
    tile, groups = tile_rows(library), _INPUTS // GROUP
    tiles = -(-_ROWS // tile)
    quantised = np.empty((tiles, _INPUTS // 4, tile, 4), np.int8)
    scales, sums = (np.empty((tiles, groups, tile), np.float32) for _ in range(2))
    halves = np.empty((tiles, 2 * groups, tile), np.int32)
    step = Step(tokens=_ROWS)
    step.buffers[Buffer.X], step.buffers[Buffer.LOGITS] = x.ctypes.data, out.ctypes.data
    step.quantised, step.scales = quantised.ctypes.data, scales.ctypes.data
    step.sums, step.halves = sums.ctypes.data, halves.ctypes.data
    if library.headrace_run(program.table, len(program), ctypes.byref(step), 1):
        return False
    integers = quantised.transpose(0, 2, 1, 3).reshape(-1, _INPUTS)[:_ROWS]
    factors = scales.transpose(0, 2, 1).reshape(-1, groups)[:_ROWS]
    rounded = integers.astype(np.float64) * np.repeat(factors, GROUP, axis=1)
    wanted = rounded @ weight.dequantise().astype(np.float64).T
    close = np.allclose(rounded, x, rtol=0, atol=float(np.abs(x).max()) / 127)
    return bool(close and np.abs(out - wanted).max() <= _TOLERANCE * np.abs(wanted).max())
