"""From settings and a model file to an engine that is warm."""

import logging
from pathlib import Path

from kernels import device as devices
from kernels.model import Model, Progress, load_model
from pipeline.settings import WorkerSettings
from workers.engine import TorchEngine
from workers.job import Failure, Job, Sampling
from workers.model_runner import ModelRunner
from workers.scheduler import Clock

log = logging.getLogger(__name__)

_LEAST_BLOCKS = 16  # below it nothing useful fits
_CPU_STEP = 128  # prompts are as fast in chunks of 64 as of 512, and streams stall for less
_GPU_STEP = 2048  # below it the weights are read for too few tokens


class EngineError(Exception):
    """An engine cannot be built from these settings; the message says what to change."""


def build_engine(
    path: Path,
    settings: WorkerSettings,
    *,
    clock: Clock,
    plan: str = "exact",
    sha256: str | None = None,
    progress: Progress | None = None,
) -> TorchEngine:
    """Load, size, and warm up. `settings.plan` goes before `plan`, the registry's.

    Raises a kernels.errors.KernelError for a model that cannot be served, EngineError for settings
    that cannot be met.
    """
    model = load_model(
        path,
        plan=settings.plan or plan,
        device=settings.device,
        sha256=sha256,
        progress=progress,
        threads=bounded(settings.threads),
    )
    return engine_of(model, settings, clock=clock)


def engine_of(model: Model, settings: WorkerSettings, *, clock: Clock) -> TorchEngine:
    """An engine over a loaded model, warm."""
    blocks = kv_blocks(model, settings)
    runner = ModelRunner(
        model, blocks, settings.block_size, swap_bytes=settings.kv_bytes // 4
    )  # swapped sequences are few: a quarter holds the largest one and some more
    batch_tokens = step_tokens(settings)

    def engine() -> TorchEngine:
        return TorchEngine(
            runner,
            clock=clock,
            blocks=blocks,
            block_size=settings.block_size,
            max_batch_tokens=batch_tokens,
            slots=settings.slots,
            prefix_cache=settings.prefix_cache,
            speculate=settings.speculate,
        )

    warm_up(engine(), batch_tokens)  # an engine of its own: its blocks and counts are thrown away
    return engine()


def step_tokens(settings: WorkerSettings) -> int:
    """The token budget of a step: every slot can decode in it."""
    suits = _CPU_STEP if settings.device == "cpu" else _GPU_STEP
    return max(settings.batch_tokens or suits, settings.slots)


def kv_blocks(model: Model, settings: WorkerSettings) -> int:
    """Blocks that the settings give the KV cache. Raises EngineError where they are too few."""
    size = model.cache_bytes(settings.block_size)
    blocks = settings.kv_bytes // size
    room = model.profile.memory
    if settings.kv_bytes > room:
        raise EngineError(
            f"worker.kv_bytes is {settings.kv_bytes >> 20} MiB, the device has {room >> 20} MiB: "
            "set HEADRACE_WORKER_KV_BYTES lower"
        )
    if blocks < _LEAST_BLOCKS:
        raise EngineError(
            f"worker.kv_bytes of {settings.kv_bytes} holds {blocks} blocks of {size} bytes, "
            f"at least {_LEAST_BLOCKS} are needed: set HEADRACE_WORKER_KV_BYTES higher"
        )
    # more than this no set of sequences can use
    return min(blocks, settings.slots * -(-model.config.context // settings.block_size))


def bounded(threads: int = 0) -> int:
    """`threads`, or 0 for as many CPUs as affinity and quota allow; never more than these."""
    allowed = devices.threads()
    if threads > allowed:
        log.warning("worker.threads is %d, this process may use %d CPUs", threads, allowed)
    return min(threads, allowed) if threads > 0 else allowed


def warm_up(engine: TorchEngine, batch_tokens: int) -> None:
    """One full prompt chunk and a few decoding steps, so that the first request pays for nothing.

    Raises EngineError where the model cannot do even that.
    """
    prompt = [i % 7 + 3 for i in range(min(batch_tokens, engine.pool.total * engine.pool.size - 8))]
    for temperature in (0.0, 1.0):
        engine.add(
            Job(
                request_id=f"warm-up {temperature}",
                attempt=1,
                prompt_ids=prompt[:8] if temperature else prompt,
                max_tokens=4,
                sampling=Sampling(temperature=temperature, ignore_eos=True),
            )
        )
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, Failure):
                raise EngineError(f"the warm-up failed: {event.code}: {event.message}")
