"""What the native kernels are told: a program of operators, and a step's sizes and buffers.

Structures mirror step.h field by field; `check` compares their sizes when the library is loaded.
"""

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import Any

from kernels.native.pack import Format

BUFFERS = 8


class Kind(IntEnum):
    """As in program.cpp."""

    NORM = 0
    PRODUCT = 1
    ROTATE = 2
    ATTENTION = 3
    QUANTISE = 4
    GATE = 5


class Buffer(IntEnum):
    """fp32 rows of one step, by token."""

    X = 0  # the residual stream, [tokens, dim]
    NORMED = 1  # [tokens, dim]
    QKV = 2  # [tokens, (heads + 2 kv_heads) * head_dim]
    MIXED = 3  # attention's output, [tokens, heads * head_dim]
    GATE_UP = 4  # [tokens, 2 * hidden]
    GATED = 5  # [tokens, hidden]
    LOGITS = 6  # [logit rows, vocab]


class Op(ctypes.Structure):
    """One operator of the program; fields as in step.h."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ["kind", "input", "output", "n", "k", "offset", "stride", "format"]
        ),
        *((name, c_int32) for name in ["accumulate", "layer", "rows", "rotate"]),
        *((name, c_void_p) for name in ["weight", "bias", "q_norm", "k_norm"]),
        ("eps", c_float),
        ("spare", c_int32),
    ]


class Step(ctypes.Structure):
    """Sizes and addresses of one step; fields as in step.h."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ["tokens", "rows", "logits", "heads", "kv_heads", "head_dim"]
        ),
        *((name, c_int32) for name in ["block_size", "blocks", "table_width", "spare"]),
        *((name, c_void_p) for name in ["positions", "slots", "bounds", "lengths", "tables"]),
        *((name, c_void_p) for name in ["logit_rows", "cosines", "sines", "cache"]),
        ("buffers", c_void_p * BUFFERS),
        *((name, c_void_p) for name in ["quantised", "scales", "sums", "halves", "scores"]),
        ("score_room", c_int64),
    ]


class Program:
    """Operators in the order in which they run."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self.table: Any = None  # the ctypes array, once finished

    def add(self, kind: Kind, source: Buffer, target: Buffer, **fields: Any) -> None:
        self._ops.append(Op(kind=kind, input=source, output=target, **fields))

    def product(
        self, source: Buffer, target: Buffer, form: Format, n: int, k: int, **fields: Any
    ) -> None:
        """target[:, offset : offset + n] (+)= source @ weight.T + bias."""
        self.add(Kind.PRODUCT, source, target, format=form, n=n, k=k, **fields)

    def finish(self) -> None:
        self.table = (Op * len(self._ops))(*self._ops)

    def __len__(self) -> int:
        return len(self._ops)


def check(library: ctypes.CDLL) -> bool:
    """Whether the library was built from the structures above."""
    sizes = (library.headrace_sizes(0), library.headrace_sizes(1))
    return sizes == (ctypes.sizeof(Op), ctypes.sizeof(Step))


def tile_rows(library: ctypes.CDLL) -> int:
    """Rows of quantised activations that lie side by side."""
    return int(library.headrace_sizes(2))
