"""What can be wrong with a model, told with file, tensor and reason.

KernelError
├── ModelError               a model file cannot be served
│   ├── ModelFileError       missing, truncated or corrupt
│   ├── ArchitectureError    an architecture or a variant of one that is not known
│   ├── QuantisationError    a tensor in a format that is not known
│   ├── ShapeError           a tensor is missing or has the wrong shape
│   ├── HashError            the file is not the one that was asked for
│   ├── VocabularyError      the tokenizer is incomplete or of an unknown kind
│   └── ModelTooLargeError   more bytes than this machine has
├── PlanError                an unknown plan, or one that this device cannot keep
└── CacheError               blocks that do not fit, or a wrong block size
"""

from pathlib import Path


class KernelError(Exception):
    """Base of everything that `kernels` raises by itself."""


class ModelError(KernelError):
    """A model cannot be served. `path`, `tensor` and `reason` are the message's parts."""

    def __init__(self, path: Path, reason: str, tensor: str | None = None) -> None:
        self.path, self.reason, self.tensor = path, reason, tensor
        where = f"{path}: tensor {tensor!r}" if tensor else str(path)
        super().__init__(f"{where}: {reason}")


class ModelFileError(ModelError):
    """The file is missing, truncated or corrupt."""


class ArchitectureError(ModelError):
    """The architecture, or a variant of it, is not known here."""


class QuantisationError(ModelError):
    """A tensor is stored in a format that is not known here."""


class ShapeError(ModelError):
    """A tensor is missing or has a shape that the configuration does not allow."""


class HashError(ModelError):
    """The file's SHA-256 is not the one that was asked for."""


class VocabularyError(ModelError):
    """The tokenizer is incomplete or of an unknown kind."""


class ModelTooLargeError(ModelError):
    """The weights need more memory than there is."""


class PlanError(KernelError):
    """An unknown plan, or one that this device cannot keep."""


class CacheError(KernelError):
    """A KV cache of a size or block size that cannot be."""
