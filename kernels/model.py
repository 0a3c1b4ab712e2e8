"""A model from a file to logits: check, read, pack for this device, run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import torch

from kernels import config as configs
from kernels import device as devices
from kernels import operators
from kernels.batch import Batch
from kernels.config import ModelConfig
from kernels.errors import ModelFileError, ModelTooLargeError, PlanError
from kernels.gguf import GGUFFile
from kernels.kv_cache import KVCache, block_bytes
from kernels.layers import LayerWeights, read_layer, read_model
from kernels.llama import TorchLlama
from kernels.native import library
from kernels.native.llama import NativeLlama, fits
from kernels.safetensors import SafetensorsWeights, read_json, weight_files
from kernels.vocabulary import Vocabulary, load_vocabulary, vocabulary_of
from kernels.weights import GGUFWeights, WeightSource, check_sha256, sha256_of

PLANS = ("exact", "fast", "reference")
Progress = Callable[[str, float], None]  # (what: "verify" or "load", share done 0..1)


class Runner(Protocol):
    """What computes a step: torch operators or the native program."""

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor: ...


class Model:
    """A loaded model. `forward` may be called from one thread at a time."""

    def __init__(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        runner: Runner,
        *,
        revision: str,
        plan: str,
        profile: devices.DeviceProfile,
        cache_dtype: torch.dtype,
    ) -> None:
        self.config, self.vocabulary = config, vocabulary
        self.revision, self.plan, self.profile = revision, plan, profile
        self._runner, self._cache_dtype = runner, cache_dtype

    def new_cache(self, blocks: int, block_size: int = 16) -> KVCache:
        """Room for `blocks` * `block_size` tokens. Raises CacheError."""
        return KVCache(self.config, blocks, block_size, self._cache_dtype, self.profile.device)

    def cache_bytes(self, block_size: int = 16) -> int:
        """Bytes that one block of the KV cache takes."""
        return block_bytes(self.config, block_size, self._cache_dtype)

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """fp32 logits [logit rows, vocab]; writes the step's keys and values into `cache`.

        The tensor is the caller's until the next call of `forward`.
        """
        return self._runner.forward(batch, cache)


def load_model(
    path: Path,
    *,
    plan: str = "exact",
    device: str = "cpu",
    sha256: str | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Model:
    """Load a GGUF file, or a safetensors file or folder.

    Plans: `exact` (a row's bits do not depend on its company), `fast`, `reference` (plain fp32).
    `threads` defaults to what this process may use.
    Raises a ModelError that names file, tensor and reason, or PlanError.
    """
    if plan not in PLANS:
        raise PlanError(f"plan {plan!r} is not known; known are {', '.join(PLANS)}")
    profile = devices.profile(device)
    if not path.exists():
        raise ModelFileError(path, "does not exist")
    files = list(weight_files(path))
    revision = sha256_of(files, progress)
    check_sha256(path, revision, sha256)
    size = sum(file.stat().st_size for file in files)
    if size > profile.memory:
        raise ModelTooLargeError(
            path, f"{size >> 20} MiB of weights, {profile.memory >> 20} MiB of memory"
        )
    config, source, vocabulary = _open(path)
    runner, cache_dtype = _runner(config, source, plan, profile, threads, progress)
    source.release()
    return Model(
        config,
        vocabulary,
        runner,
        revision=revision,
        plan=plan,
        profile=profile,
        cache_dtype=cache_dtype,
    )


def _runner(
    config: ModelConfig,
    source: WeightSource,
    plan: str,
    profile: devices.DeviceProfile,
    threads: int | None,
    progress: Progress | None,
) -> tuple[Runner, torch.dtype]:
    """Native kernels where they can be had, torch operators elsewhere; and the cache's dtype."""
    weights = read_model(source, config)
    layers = _layers(config, source, progress)
    count = threads or profile.threads
    native = library() if plan != "reference" and profile.device == "cpu" else None
    if native is not None and fits(config):
        torch.set_num_threads(1)  # sampling only; a second pool would spin against the kernels'
        return NativeLlama(config, weights, layers, native, count), torch.float16
    torch.set_num_threads(count)
    chosen = operators.TorchOperators(profile, plan)
    device = torch.device(profile.device)
    runner = TorchLlama(
        config, weights, layers, lambda w: chosen.linear(w, device), chosen.attend(), device
    )
    return runner, torch.bfloat16 if profile.device == "cuda" else torch.float32


def _layers(
    config: ModelConfig, source: WeightSource, progress: Progress | None
) -> Iterator[LayerWeights]:
    """One layer after the other, so that only one is ever unpacked."""
    for index in range(config.layers):
        yield read_layer(source, config, index)
        if progress:
            progress("load", (index + 1) / config.layers)


def _open(path: Path) -> tuple[ModelConfig, WeightSource, Vocabulary]:
    """Configuration, weights and vocabulary of a GGUF file, a safetensors file or a folder."""
    if path.is_dir() or path.suffix == ".safetensors":
        folder = path if path.is_dir() else path.parent
        values = read_json(folder / "config.json")
        config = configs.from_huggingface(folder / "config.json", values)
        tied = bool(values.get("tie_word_embeddings", False))
        return config, SafetensorsWeights(path, tied=tied), load_vocabulary(path)
    file = GGUFFile(path)
    config = configs.from_gguf(path, file.metadata)
    vocabulary = vocabulary_of(file)
    config = configs.with_ends(config, vocabulary.bos_id, vocabulary.eos_ids)
    return config, GGUFWeights(file, config), vocabulary
