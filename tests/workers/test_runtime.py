"""An engine is sized by its settings, and says what to change where they cannot be met."""

from typing import Any, cast

import pytest

from kernels.device import profile
from kernels.model import Model
from kernels.vocabulary import load_vocabulary
from pipeline.settings import WorkerSettings
from tests.flow.installation import MODEL_FILE, models_folder
from tests.workers.fakes import HashRunner, ManualClock, Said, collect
from workers.engine import TorchEngine
from workers.job import Job, Sampling
from workers.runtime import EngineError, bounded, build_engine, kv_blocks, step_tokens, warm_up


class Figures:
    """The figures of a model: 1 KiB a block, a context of 1,000 tokens, 1 GiB of memory."""

    context = 1_000
    memory = 1 << 30

    @property
    def config(self) -> Any:
        return self

    @property
    def profile(self) -> Any:
        return self

    def cache_bytes(self, block_size: int) -> int:
        return 64 * block_size


MODEL = cast(Model, Figures())


def test_memory_becomes_blocks() -> None:
    assert kv_blocks(MODEL, WorkerSettings(kv_bytes=1 << 20)) == 1_024


def test_no_more_blocks_than_all_sequences_could_use() -> None:
    assert kv_blocks(MODEL, WorkerSettings(kv_bytes=1 << 29, slots=2)) == 2 * 63


@pytest.mark.parametrize(
    ("kv_bytes", "why"), [(1 << 31, "has 1024 MiB.*lower"), (1 << 10, "at least 16.*higher")]
)
def test_settings_that_cannot_be_met_are_named(kv_bytes: int, why: str) -> None:
    with pytest.raises(EngineError, match=why) as caught:
        kv_blocks(MODEL, WorkerSettings(kv_bytes=kv_bytes))
    assert "HEADRACE_WORKER_KV_BYTES" in str(caught.value)


def test_every_slot_can_decode_in_one_step() -> None:
    assert step_tokens(WorkerSettings(batch_tokens=8, slots=32)) == 32
    assert step_tokens(WorkerSettings(slots=32)) > 32
    assert step_tokens(WorkerSettings(batch_tokens=700, slots=32)) == 700


def test_never_more_threads_than_this_process_may_use() -> None:
    allowed = bounded(0)
    assert bounded(1) == 1
    assert bounded(10_000) == allowed


def test_the_warm_up_computes_a_whole_step_and_tells_when_it_cannot() -> None:
    runner = HashRunner(64, 16)
    engine = TorchEngine(runner, clock=ManualClock(), blocks=64, max_batch_tokens=128)
    warm_up(engine, 128)
    assert max(runner.tokens) == 128
    runner.fault = RuntimeError("no such kernel")
    with pytest.raises(EngineError, match="no such kernel"):
        warm_up(engine, 128)


@pytest.mark.model
def test_a_real_model_answers_a_real_question() -> None:
    path = models_folder() / MODEL_FILE
    settings = WorkerSettings(kv_bytes=1 << 26, batch_tokens=64, slots=4)
    engine = build_engine(path, settings, clock=ManualClock())
    assert engine.pool.free == engine.pool.total and engine.capacity().steps == 0  # warm and clean
    assert engine.device_type == profile("cpu").device_type
    prompt = load_vocabulary(path).encode_pieces(
        [
            ("<|im_start|>user\n", True),
            ("What is the capital of France?", False),
            ("<|im_end|>\n<|im_start|>assistant\n", True),
        ]
    )
    greedy = Sampling(temperature=0.0)
    engine.add(Job(request_id="r", attempt=1, prompt_ids=prompt, max_tokens=24, sampling=greedy))
    said: dict[tuple[str, int], Said] = {}
    while engine.has_work():
        assert not collect(engine.step(), said)
    assert "Paris" in said["r", 0].text and "<|" not in said["r", 0].text
    assert said["r", 0].finish == "stop"
