"""Named weights from a file, as raw rows in the file's own format, checked for shape.

Names are GGUF's (`blk.0.attn_q.weight`) whatever the file. Rows stay views of the mapped file until
an operator packs them, so loading holds one copy.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from kernels.config import ModelConfig
from kernels.errors import HashError, ModelFileError, ShapeError
from kernels.gguf import Bytes, GGUFFile

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix or vector in its stored format. `data` is [rows, bytes a row]."""

    name: str
    type: str  # a name of kernels.gguf.TENSOR_TYPES
    shape: tuple[int, ...]  # (rows, columns), or (size,)
    data: Bytes

    def dequantise(self) -> Floats:
        """The values in fp32, of `shape`."""
        values = dequantize_rows(self.data, self.type)
        if not values.flags.writeable:  # a view of the mapped file
            values = values.copy()
        return values.reshape(self.shape)


def dequantize_rows(rows: Bytes, kind: str) -> Floats:
    """Raw rows of one format -> fp32 rows."""
    contiguous = np.ascontiguousarray(rows)
    if kind == "BF16":  # the upper half of an fp32
        wide = contiguous.view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32)
    if kind == "F16":
        return contiguous.view(np.float16).astype(np.float32)
    if kind == "F32":
        return contiguous.view(np.float32)
    values: Floats = dequantize(contiguous, GGMLQuantizationType[kind])
    return values.astype(np.float32, copy=False)


class WeightSource(Protocol):
    """A file that has weights by name."""

    path: Path

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> Weight: ...

    def release(self) -> None:
        """After loading: give back the memory of what was read."""


class GGUFWeights:
    """Weights of a GGUF file; rows of q and k in the order that rotation by halves needs."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self.path, self._file, self._config = file.path, file, config

    def has(self, name: str) -> bool:
        return name in self._file.tensors

    def release(self) -> None:
        self._file.release()

    def read(self, name: str) -> Weight:
        if name not in self._file.tensors:
            raise ShapeError(self.path, "is missing", name)
        info = self._file.tensors[name]
        data = self._file.data(name)
        part = name.split(".")[-2]
        if self._config.family.permuted and part in ("attn_q", "attn_k"):
            heads = self._config.heads if part == "attn_q" else self._config.kv_heads
            if len(info.shape) == 1:  # a bias: its elements are the rows
                data = data.reshape(info.shape[0], -1)
            data = _unpermute(self.path, name, data, heads)
            if len(info.shape) == 1:
                data = data.reshape(1, -1)
        return Weight(name, info.type, info.shape, data)


def _unpermute(path: Path, name: str, rows: Bytes, heads: int) -> Bytes:
    """Undo GGUF's interleaving: row pairs (i, i + half) of each head lie beside each other."""
    if rows.shape[0] % (2 * heads):
        raise ShapeError(path, f"{rows.shape[0]} rows cannot be {heads} heads", name)
    split = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return split.swapaxes(1, 2).reshape(rows.shape)


def read_matrix(source: WeightSource, name: str, rows: int, columns: int) -> Weight:
    """A weight of exactly this shape, or ShapeError with both shapes."""
    return _shaped(source, name, (rows, columns))


def read_vector(source: WeightSource, name: str, size: int) -> Floats:
    """A vector in fp32, or ShapeError."""
    return _shaped(source, name, (size,)).dequantise()


def _shaped(source: WeightSource, name: str, shape: tuple[int, ...]) -> Weight:
    weight = source.read(name)
    if weight.shape != shape:
        raise ShapeError(
            source.path, f"has shape {weight.shape}, the configuration needs {shape}", name
        )
    return weight


_PIECE = 8 << 20  # bytes hashed between two reports of progress


def sha256_of(files: Sequence[Path], progress: Callable[[str, float], None] | None = None) -> str:
    """SHA-256 of the files' bytes one after the other, in hex. `progress`: ("verify", share)."""
    digest = hashlib.sha256()
    done = 0
    for path in files:
        try:
            size = sum(file.stat().st_size for file in files) or 1
            for piece in _pieces(path):
                digest.update(piece)
                done += len(piece)
                if progress:
                    progress("verify", done / size)
        except OSError as error:
            raise ModelFileError(path, f"cannot be read: {error}") from error
    return digest.hexdigest()


def check_sha256(path: Path, found: str, wanted: str | None) -> None:
    """HashError unless nothing particular was wanted or this is it."""
    if wanted is not None and found != wanted.lower():
        raise HashError(path, f"SHA-256 is {found}, wanted was {wanted.lower()}")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
