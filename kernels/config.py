"""What a model is, by configuration: one table row per architecture, for GGUF and safetensors."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.errors import ArchitectureError, ModelFileError


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one family differs from Llama.

    `permuted`: GGUF conversion interleaved the rows of q and k for another form of RoPE.
    `qk_norm`: RMS norm on each head of q and k. `nope_interval`: every n-th layer has no RoPE.
    """

    permuted: bool = False
    qk_norm: bool = False
    nope_interval: int = 0


# Keys are GGUF's `general.architecture` and Hugging Face's `model_type` alike.
# Mistral is "llama" in GGUF, SmolLM2 is "llama" in both, Qwen2.5 is "qwen2" in both.
ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(permuted=True),
    "mistral": Architecture(permuted=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(qk_norm=True),
    "smollm3": Architecture(permuted=True, nope_interval=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a model. Lengths in tokens."""

    name: str
    architecture: str
    vocab_size: int
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    rope_base: float
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()

    @property
    def family(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    def has_rope(self, layer: int) -> bool:
        interval = self.family.nope_interval
        return not interval or (layer + 1) % interval != 0


class _Reader:
    """Typed look-ups that name the file and the key when something is wrong."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values

    def positive(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise ModelFileError(self.path, f"{key} is {value!r}, not a positive integer")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
            raise ModelFileError(self.path, f"{key} is {value!r}, not a positive number")
        return float(value)


def from_gguf(path: Path, metadata: dict[str, Any]) -> ModelConfig:
    """Raises ArchitectureError or ModelFileError, naming the key."""
    arch = metadata.get("general.architecture")
    _check_known(path, arch)
    read = _Reader(path, metadata)
    if not isinstance(tokens := metadata.get("tokenizer.ggml.tokens"), list) or not tokens:
        raise ModelFileError(path, "tokenizer.ggml.tokens is missing")
    scaling = metadata.get(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear") or metadata.get(f"{arch}.rope.scaling.factor", 1.0) != 1.0:
        raise ArchitectureError(path, f"RoPE scaling {scaling!r} is not known here")
    heads, dim = (
        read.positive(f"{arch}.attention.head_count"),
        read.positive(f"{arch}.embedding_length"),
    )
    context = read.positive(f"{arch}.context_length")
    window = read.positive(f"{arch}.attention.sliding_window", context)
    return _checked(
        path,
        ModelConfig(
            name=str(metadata.get("general.name", path.stem)),
            architecture=str(arch),
            vocab_size=len(tokens),
            dim=dim,
            hidden=read.positive(f"{arch}.feed_forward_length"),
            layers=read.positive(f"{arch}.block_count"),
            heads=heads,
            kv_heads=read.positive(f"{arch}.attention.head_count_kv", heads),
            head_dim=read.positive(f"{arch}.attention.key_length", max(dim // heads, 1)),
            context=min(context, window),  # inside its window, sliding attention is full attention
            eps=read.real(f"{arch}.attention.layer_norm_rms_epsilon"),
            rope_base=read.real(f"{arch}.rope.freq_base", 10_000.0),
        ),
        rotated=metadata.get(f"{arch}.rope.dimension_count"),
    )


def from_huggingface(path: Path, values: dict[str, Any]) -> ModelConfig:
    """From the `config.json` that lies beside safetensors."""
    arch = values.get("model_type")
    _check_known(path, arch)
    read = _Reader(path, values)
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ArchitectureError(path, f"RoPE scaling {rope!r} is not known here")
    heads, dim = read.positive("num_attention_heads"), read.positive("hidden_size")
    context = read.positive("max_position_embeddings")
    window = values.get("sliding_window") if values.get("use_sliding_window", True) else None
    if not isinstance(head_dim := values.get("head_dim"), int):
        head_dim = dim // heads
    eos = values.get("eos_token_id")
    return _checked(
        path,
        ModelConfig(
            name=path.parent.name,
            architecture=str(arch),
            vocab_size=read.positive("vocab_size"),
            dim=dim,
            hidden=read.positive("intermediate_size"),
            layers=read.positive("num_hidden_layers"),
            heads=heads,
            kv_heads=read.positive("num_key_value_heads", heads),
            head_dim=head_dim,
            context=min(context, window) if isinstance(window, int) and window > 0 else context,
            eps=read.real("rms_norm_eps"),
            rope_base=float(rope.get("rope_theta") or read.real("rope_theta", 10_000.0)),
            bos_id=values.get("bos_token_id"),
            eos_ids=frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos]),
        ),
        rotated=None,
    )


def _check_known(path: Path, arch: object) -> None:
    if arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ArchitectureError(path, f"architecture {arch!r} is not known; known are {known}")


def _checked(path: Path, config: ModelConfig, rotated: int | None) -> ModelConfig:
    if config.heads % config.kv_heads:
        raise ModelFileError(
            path, f"{config.heads} heads cannot share {config.kv_heads} key/value heads"
        )
    if config.head_dim % 2:
        raise ModelFileError(path, f"a head of odd size {config.head_dim} cannot be rotated")
    if rotated is not None and rotated != config.head_dim:
        raise ArchitectureError(
            path, f"RoPE over {rotated} of {config.head_dim} dimensions is not known here"
        )
    return config


def with_ends(config: ModelConfig, bos_id: int | None, eos_ids: frozenset[int]) -> ModelConfig:
    """The configuration with the token ids that begin a text and end a turn."""
    return replace(config, bos_id=bos_id, eos_ids=eos_ids or config.eos_ids)
