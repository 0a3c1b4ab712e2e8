"""What a model file says of itself, for the registry: no tensor is read, no torch imported."""

import json
from dataclasses import dataclass
from pathlib import Path

from kernels.config import from_gguf, from_huggingface
from kernels.errors import ModelFileError
from kernels.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Figures:
    format: str  # gguf | safetensors
    context: int  # tokens
    memory_floor: int  # bytes: the weights as they lie in the file
    precisions: tuple[str, ...]  # tensor formats in the file


def read_figures(path: Path) -> Figures:
    """Raises a ModelError that names file and reason."""
    if path.suffix == ".gguf":
        file = GGUFFile(path)
        config = from_gguf(path, file.metadata)
        kinds = sorted({tensor.type for tensor in file.tensors.values()})
        return Figures("gguf", config.context, path.stat().st_size, tuple(kinds))
    if path.suffix == ".safetensors" or path.is_dir():
        folder = path if path.is_dir() else path.parent
        try:
            values = json.loads((folder / "config.json").read_bytes())
        except (OSError, ValueError) as error:
            raise ModelFileError(folder / "config.json", f"cannot be read: {error}") from error
        config = from_huggingface(folder / "config.json", values)
        size = sum(part.stat().st_size for part in folder.glob("*.safetensors"))
        kind = str(values.get("torch_dtype") or values.get("dtype") or "float32")
        return Figures("safetensors", config.context, size, (kind,))
    raise ModelFileError(path, "is neither a .gguf file nor safetensors")
