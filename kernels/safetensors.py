"""Weights of a safetensors file or folder, under GGUF's names, as views of the mapped files.

The `safetensors` package gives numpy no bfloat16 and torch a copy; the format is a JSON header and
plain rows, so it is read here, every offset checked against the file.
"""

import json
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernels.errors import ModelFileError, QuantisationError, ShapeError
from kernels.weights import Weight

_TYPES = {"F32": 4, "F16": 2, "BF16": 2}  # bytes an element
_HEADER_LIMIT = 100 << 20  # the format's own

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class SafetensorsWeights:
    """Implements `WeightSource`. `tied` models have no head of their own.

    Raises ModelFileError, QuantisationError or ShapeError, naming file, tensor and reason.
    """

    def __init__(self, path: Path, *, tied: bool = False) -> None:
        self.path, self._tied = path, tied
        self._tensors: dict[str, tuple[mmap.mmap, Path, str, tuple[int, ...], int, int]] = {}
        for file in weight_files(path):
            self._read_header(file)

    def has(self, name: str) -> bool:
        if name == "output.weight" and self._tied:
            return False
        return _huggingface_name(name) in self._tensors

    def read(self, name: str) -> Weight:
        found = self._tensors.get(_huggingface_name(name))
        if found is None:
            raise ShapeError(self.path, "is missing", _huggingface_name(name))
        mapped, path, kind, shape, offset, nbytes = found
        if kind not in _TYPES:
            raise QuantisationError(
                path, f"dtype {kind} is not known; known are {', '.join(_TYPES)}", name
            )
        flat = np.frombuffer(mapped, np.uint8, nbytes, offset)
        rows = shape[0] if len(shape) > 1 else 1
        return Weight(name, kind, shape, flat.reshape(rows, -1))

    def release(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in {id(entry[0]): entry[0] for entry in self._tensors.values()}.values():
                mapped.madvise(mmap.MADV_DONTNEED)

    def _read_header(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(path, f"cannot be read: {error}") from error
        if len(mapped) < 8:
            raise ModelFileError(path, f"{len(mapped)} bytes are no safetensors file")
        length = struct.unpack("<Q", mapped[:8])[0]
        if length > min(_HEADER_LIMIT, len(mapped) - 8):
            raise ModelFileError(path, f"a header of {length} bytes in a file of {len(mapped)}")
        try:
            header = json.loads(mapped[8 : 8 + length])
        except (ValueError, RecursionError) as error:
            raise ModelFileError(path, f"the header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise ModelFileError(path, "the header is no JSON object")
        for name, entry in header.items():
            if name != "__metadata__":
                kind, shape, begin, end = _entry(path, name, entry)
                base = 8 + length
                if base + end > len(mapped):
                    reason = f"ends at byte {base + end}, the file has {len(mapped)}: truncated?"
                    raise ModelFileError(path, reason, name)
                self._tensors[name] = (mapped, path, kind, shape, base + begin, end - begin)


def weight_files(path: Path) -> Iterator[Path]:
    """The file itself, or a folder's parts in order of name."""
    if path.is_file():
        yield path
        return
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelFileError(path, "has no *.safetensors file")
    yield from files


def _huggingface_name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_INNER.get(parts[2], parts[2])}.{parts[3]}"
    return name


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, begin and end of one header entry, checked against each other."""
    try:
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelFileError(path, f"a header entry that is none: {entry!r:.200}", name) from error
    numbers = (*shape, begin, end)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise ModelFileError(path, f"shape {shape} at {begin} to {end}", name)
    if not isinstance(kind, str) or 0 in shape or not shape:
        raise ModelFileError(path, f"dtype {kind!r} of shape {shape}", name)
    elements = 1
    for size in shape:
        elements *= size
    if (end - begin != elements * _TYPES.get(kind, 0) and kind in _TYPES) or end < begin:
        raise ModelFileError(path, f"{end - begin} bytes for {kind} of shape {shape}", name)
    return kind, shape, begin, end


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or ModelFileError."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(path, f"cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(path, "is no JSON object")
    return value
