"""Reads the GGUF container: metadata, and tensors as views of the mapped file.

The `gguf` package's own reader takes seconds for a vocabulary and trusts the lengths it reads, so
the container is parsed here, every length checked against the file before anything is allocated.
Layouts and dequantisation of the tensor types stay the package's. Imports no torch: the ingress
stage reads vocabularies with it.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.errors import ModelFileError, QuantisationError

Bytes = npt.NDArray[np.uint8]

# type id -> (name, elements a block, bytes a block); ids and sizes are the GGUF specification's
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
}

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")  # before each string
_MAX_DIMS = 4  # the specification's limit
_MAX_NAME = 1024  # bytes; the longest tensor names in use have about 60


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is outermost first: a matrix is (rows, columns)."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int  # from the beginning of the file
    nbytes: int

    @property
    def row_bytes(self) -> int:
        rows = int(np.prod(self.shape[:-1], dtype=np.int64)) if len(self.shape) > 1 else 1
        return self.nbytes // max(rows, 1)


class GGUFFile:
    """A mapped GGUF file: `metadata` by key, `tensors` by name, `data(name)` as raw bytes.

    Raises ModelFileError or QuantisationError, naming file, tensor and reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(path, f"cannot be read: {error}") from error
        self._size = len(self._map)
        self._at = 0
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._parse()

    def data(self, name: str) -> Bytes:
        """The bytes of one tensor, [rows, bytes a row], a view of the file."""
        info = self.tensors[name]
        flat = np.frombuffer(self._map, np.uint8, info.nbytes, info.offset)
        return flat.reshape(-1, info.row_bytes)

    def release(self) -> None:
        """Give back the memory of pages that were read; they come again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _parse(self) -> None:
        if self._take(4) != b"GGUF":
            raise self._corrupt("not a GGUF file: the first four bytes are not 'GGUF'")
        version = self._scalar("I")
        if version not in (2, 3):
            raise self._corrupt(f"GGUF version {version}; versions 2 and 3 can be read")
        tensor_count, entry_count = self._scalar("Q"), self._scalar("Q")
        self._fits(entry_count, 12, "metadata entries")  # key length + type, at least
        for _ in range(entry_count):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"), depth=0)
        self._fits(tensor_count, 24, "tensors")  # name length + dimensions + type + offset
        infos = [self._tensor_info() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._corrupt(f"general.alignment is {alignment!r}, not a power of two")
        base = -(-self._at // alignment) * alignment
        for name, type_id, shape, offset in infos:
            self.tensors[name] = self._place(name, type_id, shape, base + offset)

    def _tensor_info(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self._string(limit=_MAX_NAME)
        dims = self._scalar("I")
        if not 1 <= dims <= _MAX_DIMS:
            raise self._corrupt(f"{dims} dimensions; 1 to {_MAX_DIMS} are allowed", name)
        shape = tuple(self._scalar("Q") for _ in range(dims))[::-1]  # stored innermost first
        return name, self._scalar("I"), shape, self._scalar("Q")

    def _place(self, name: str, type_id: int, shape: tuple[int, ...], offset: int) -> TensorInfo:
        if type_id not in TENSOR_TYPES:
            known = ", ".join(entry[0] for entry in TENSOR_TYPES.values())
            raise QuantisationError(
                self.path, f"tensor type {type_id} is not known; known are {known}", name
            )
        kind, block, block_bytes = TENSOR_TYPES[type_id]
        if 0 in shape or shape[-1] % block:
            raise self._corrupt(f"shape {shape} is no whole number of {kind} blocks", name)
        elements = 1
        for dim in shape:
            elements *= dim  # Python integers: cannot overflow
        nbytes = elements // block * block_bytes
        if offset + nbytes > self._size:
            raise self._corrupt(
                f"needs bytes {offset} to {offset + nbytes}, the file has {self._size}: truncated?",
                name,
            )
        if name in self.tensors:
            raise self._corrupt("appears twice", name)
        return TensorInfo(name, kind, shape, offset, nbytes)

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY or depth > 1:
            raise self._corrupt(f"metadata value of unknown type {kind} at byte {self._at}")
        item, count = self._scalar("I"), self._scalar("Q")
        if item in _SCALARS:
            dtype = np.dtype(_SCALARS[item]).newbyteorder("<")
            self._fits(count, dtype.itemsize, "array items")
            return np.frombuffer(self._take(count * dtype.itemsize), dtype).tolist()
        self._fits(count, 8, "array items")  # each has a length of 8 bytes, at least
        if item == _STRING:
            return self._strings(count)
        return [self._value(item, depth + 1) for _ in range(count)]

    def _string(self, limit: int | None = None) -> str:
        length = self._scalar("Q")
        if limit is not None and length > limit:
            raise self._corrupt(f"a name of {length} bytes at byte {self._at}")
        raw = self._take(length)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._corrupt(
                f"a string that is not UTF-8 at byte {self._at - length}"
            ) from error

    def _strings(self, count: int) -> list[str]:
        """An array of strings: a vocabulary has a hundred thousand, so without a call for each."""
        data, size, at = self._map, self._size, self._at
        found: list[str] = []
        for _ in range(count):
            start = at + _LENGTH.size
            if start > size or (at := start + _LENGTH.unpack_from(data, at)[0]) > size:
                break
            try:
                found.append(data[start:at].decode("utf-8"))
            except UnicodeDecodeError as error:
                raise self._corrupt(f"a string that is not UTF-8 at byte {start}") from error
        if len(found) < count:
            raise self._corrupt(f"{count} strings announced at byte {self._at}: truncated?")
        self._at = at
        return found

    def _scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        return struct.unpack("<" + code, self._take(size))[0]

    def _take(self, count: int) -> bytes:
        self._fits(count, 1, "bytes")
        start, self._at = self._at, self._at + count
        return self._map[start : self._at]

    def _fits(self, count: int, least_bytes: int, what: str) -> None:
        left = self._size - self._at
        if count * least_bytes > left:
            raise self._corrupt(
                f"{count} {what} announced at byte {self._at}, but {left} bytes are left: truncated?"
            )

    def _corrupt(self, reason: str, tensor: str | None = None) -> ModelFileError:
        return ModelFileError(self.path, reason, tensor)
