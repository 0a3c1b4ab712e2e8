"""`hr.models` (compacted): the model registry."""

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="model/1"):
    """One model that this installation serves; key = name."""

    name: str
    revision: str  # SHA-256 of the file
    format: str  # gguf | safetensors | null
    file: str = ""  # below HEADRACE_HOME/models, or an absolute path
    source: str = ""  # file:… | hf:<org>/<repo> | pypi:<wheel>
    sha256: str = ""
    context: int  # tokens
    batch: int = 64  # recommended sequences at once
    memory_floor: int = 0  # bytes
    precisions: list[str] = []
    devices: list[str] = []  # device affinity: cpu, cuda, or types of them: cpu-avx2; empty: any
    plan: str = "exact"
    engine: str = "torch"  # torch | null
    bytes_per_token: int = 16  # of text at most, for the output's size limit
    created: int = 0
