"""How fast the kernels decode and prefill, by plan, beside what the machine could do at most.

    python -m benchmarks.kernels MODEL.gguf [--plan exact] [--rounds 7] [--threads N]

Medians of wall time and of CPU time; on a machine that others use, the CPU time says more.
`bound` is the time in which memory delivers the packed weights once, measured by summing them.
"""

import argparse
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kernels import operators
from kernels.batch import Row, pack
from kernels.device import profile
from kernels.model import Model, load_model
from kernels.sampling import DrawParams, draw

STREAMS = (1, 4, 16, 64)
PROMPTS = (512, 2048)
CONTEXT = 128  # tokens behind each stream while it decodes
BLOCK = 16
WARM_UP = 2  # steps that are not counted


def median_seconds(step: Callable[[], object], rounds: int) -> tuple[float, float]:
    """(wall, CPU of all threads) of one step."""
    wall, cpu = [], []
    for i in range(WARM_UP + rounds):
        begun, used = time.perf_counter(), time.process_time()
        step()
        if i >= WARM_UP:
            wall.append(time.perf_counter() - begun)
            cpu.append(time.process_time() - used)
    return statistics.median(wall), statistics.median(cpu)


def decode(model: Model, streams: int, rounds: int) -> tuple[float, float]:
    """One step of `streams` sequences, sampling included."""
    blocks = CONTEXT // BLOCK + 1
    cache = model.new_cache(streams * blocks, BLOCK)
    rows = [Row([100 + r], CONTEXT, range(r * blocks, (r + 1) * blocks)) for r in range(streams)]
    greedy = [DrawParams(temperature=0)] * streams
    return median_seconds(lambda: draw(model.forward(pack(rows, BLOCK), cache), greedy), rounds)


def prefill(model: Model, tokens: int, rounds: int) -> tuple[float, float]:
    """A prompt in chunks of 512, logits of its last token."""
    cache = model.new_cache(tokens // BLOCK, BLOCK)
    ids = np.random.default_rng(1).integers(100, model.config.vocab_size, tokens).tolist()

    def run() -> None:
        for at in range(0, tokens, 512):
            last = int(at + 512 >= tokens)
            model.forward(
                pack([Row(ids[at : at + 512], at, range(tokens // BLOCK), last)], BLOCK), cache
            )

    return median_seconds(run, rounds)


def memory_gb_per_second() -> float:
    """Reading a piece far larger than the caches, one thread."""
    piece = np.ones(64 << 20, np.float32)
    wall, _ = median_seconds(lambda: piece.sum(), 3)
    return piece.nbytes / wall / 1e9


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--plan", default="exact", choices=["exact", "fast", "reference"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    here = profile("cpu")
    model = load_model(arguments.model, plan=arguments.plan, threads=arguments.threads)
    size = arguments.model.stat().st_size
    rate = memory_gb_per_second()
    chosen = operators.choose("linear", "Q4_1", here, arguments.plan).operator.name
    print(f"{here.name}, {here.device_type}, {arguments.threads or here.threads} threads, "
          f"Python {platform.python_version()}, commit {commit()}")  # fmt: skip
    print(f"{arguments.model.name}, plan {arguments.plan} ({chosen}), memory {rate:.1f} GB/s a thread, "
          f"bound {size / rate / 1e6:.1f} ms a step and thread")  # fmt: skip
    print(f"{'':14}{'ms':>10}{'tokens/s':>11}{'CPU ms':>10}{'tokens per CPU-s':>18}")
    cases = [(f"decode {n}", n, lambda n=n: decode(model, n, arguments.rounds)) for n in STREAMS]
    cases += [(f"prefill {n}", n, lambda n=n: prefill(model, n, arguments.rounds)) for n in PROMPTS]
    for name, tokens, run in cases:
        wall, cpu = run()
        print(
            f"{name:14}{wall * 1e3:10.1f}{tokens / wall:11.0f}{cpu * 1e3:10.1f}{tokens / cpu:18.0f}"
        )


if __name__ == "__main__":
    main()
