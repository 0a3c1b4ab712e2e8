"""Where a step's time goes at 1, 16 and 64 streams, what drawing in other ways costs, and how long
short prompts wait beside a long one.

    python -m benchmarks.step [--model PATH] [--plan exact]

CPU time of one thread, so that other processes on the machine disturb it little; with more threads
the forward is shorter, and the rest, which is Python and sampling, stays as it is.
"""

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.machine import describe, model_file, quantile, table
from kernels.batch import Batch
from kernels.kv_cache import KVCache
from kernels.model import Model, load_model
from kernels.sampling import Drawn
from pipeline.settings import WorkerSettings
from workers.engine import TorchEngine
from workers.job import Job, Sampling
from workers.model_runner import ModelRunner
from workers.planner import Work
from workers.runner import Draws
from workers.runtime import step_tokens

GREEDY = Sampling(temperature=0.0, ignore_eos=True)
CASES = (
    ("greedy", 1, 40, GREEDY),
    ("greedy", 16, 12, GREEDY),
    ("greedy", 64, 6, GREEDY),
    ("temperature 1", 64, 6, Sampling(ignore_eos=True)),
    ("temperature 0.8, top_p 0.95", 64, 6, Sampling(temperature=0.8, top_p=0.95, ignore_eos=True)),
    (
        "greedy, 2 top_logprobs",
        64,
        6,
        Sampling(temperature=0.0, logprobs=True, top_logprobs=2, ignore_eos=True),
    ),
)
Spent = dict[str, float]
_PROMPT, _BLOCKS, _BLOCK = 32, 1024, 16


class TimedModel:
    """Counts the CPU time of the forwards."""

    def __init__(self, model: Model, spent: Spent) -> None:
        self._model, self._spent = model, spent

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        begun = time.thread_time()
        logits = self._model.forward(batch, cache)
        self._spent["forward"] += time.thread_time() - begun
        return logits


class TimedRunner(ModelRunner):
    """Counts the CPU time of runs and of draws."""

    def __init__(self, model: Model, spent: Spent) -> None:
        self._spent = spent
        super().__init__(TimedModel(model, spent), _BLOCKS, _BLOCK)  # type: ignore[arg-type]

    def run(self, work: Sequence[Work]) -> Draws:
        begun = time.thread_time()
        draws = super().run(work)
        self._spent["run"] += time.thread_time() - begun
        return draws

    def _draw(self, logits: torch.Tensor, work: Sequence[Work]) -> Drawn:
        begun = time.thread_time()
        drawn = super()._draw(logits, work)
        self._spent["draw"] += time.thread_time() - begun
        return drawn


class NoClock:
    def ms(self) -> int:
        return 0


def measure(
    runner: TimedRunner, spent: Spent, streams: int, steps: int, sampling: Sampling
) -> list[float]:
    """Milliseconds of a step: all, forward, draw, pack, engine."""
    chance = random.Random(streams)
    engine = TorchEngine(
        runner, clock=NoClock(), blocks=_BLOCKS, block_size=_BLOCK, speculate=False
    )
    for i in range(streams):
        _add(engine, chance, str(i), _PROMPT, steps + streams, sampling)
    said: set[str] = set()
    while len(said) < streams:
        said |= {event.request_id for event in engine.step()}
    spent.clear()
    begun = time.thread_time()
    for _ in range(steps):
        engine.step()
    whole = time.thread_time() - begun
    pack = spent["run"] - spent["forward"] - spent["draw"]
    parts = [whole, spent["forward"], spent["draw"], pack, whole - spent["run"]]
    return [part / steps * 1e3 for part in parts]


def beside_a_long_prompt(runner: TimedRunner, tokens: int = 2000, every: int = 3) -> str:
    """How long short prompts that come during a long prompt's prefill wait for their first token."""
    settings = WorkerSettings()
    engine = TorchEngine(
        runner,
        clock=NoClock(),
        blocks=_BLOCKS,
        block_size=_BLOCK,
        max_batch_tokens=step_tokens(settings),
        slots=settings.slots,
    )
    chance = random.Random(1)
    came: dict[str, tuple[int, float]] = {}
    steps: list[float] = []
    waits: list[float] = []
    lengths: list[float] = []
    _add(engine, chance, "long", tokens, 1)
    while True:
        if len(lengths) % every == 1:
            name = str(len(lengths))
            came[name] = len(lengths), time.thread_time()
            _add(engine, chance, name, _PROMPT, 8)
        begun = time.thread_time()
        said = {event.request_id for event in engine.step()}
        lengths.append(time.thread_time() - begun)
        for name in came.keys() & said:
            step, at = came.pop(name)
            steps.append(len(lengths) - step)
            waits.append(time.thread_time() - at)
        if "long" in said:
            break
    whole = f"{1e3 * quantile(waits, 0.95):.0f} ms, steps of {1e3 * max(lengths):.0f} ms at most"
    return (
        f"\nfirst token of {len(steps)} short prompts during the prefill of {tokens} tokens: "
        f"p95 {quantile(steps, 0.95):.0f} steps, {whole}"
    )


def _add(
    engine: TorchEngine,
    chance: random.Random,
    name: str,
    prompt: int,
    answer: int,
    sampling: Sampling = GREEDY,
) -> None:
    ids = [chance.randrange(100, 30_000) for _ in range(prompt)]
    engine.add(
        Job(request_id=name, attempt=1, prompt_ids=ids, max_tokens=answer, sampling=sampling)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=model_file(), help="a GGUF file")
    parser.add_argument("--plan", default="exact")
    parser.add_argument("--rows", default="", help="only rows whose name has this in it")
    arguments = parser.parse_args()
    spent: Spent = defaultdict(float)
    runner = TimedRunner(load_model(arguments.model, plan=arguments.plan, threads=1), spent)
    lines = []
    for name, streams, steps, sampling in CASES:
        if arguments.rows not in f"{streams}, {name}":
            continue
        parts = measure(runner, spent, streams, steps, sampling)
        lines.append([f"{streams}, {name}", *[f"{part:.2f}" for part in parts]])
        print(lines[-1], file=sys.stderr)
    print(describe(), f"· 1 thread · plan {arguments.plan}")
    columns = ["streams", "step", "forward", "draw", "pack", "schedule, commit, emit"]
    print(table("ms of CPU time", columns, lines))
    print(beside_a_long_prompt(runner))
    return 0


if __name__ == "__main__":
    sys.exit(main())
