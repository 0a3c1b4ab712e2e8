"""The engine alone, beside llama.cpp in the same run, as ratios.

    python -m benchmarks.engine [--model PATH] [--rounds 5] [--plans exact,fast]

Medians of alternating rounds; greedy, without speculation unless the row says so. llama.cpp runs
with as many threads as we do, and the better of flash attention on and off counts.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from benchmarks.machine import describe, model_file, table
from benchmarks.peers import LlamaCpp, products
from kernels.model import Model, load_model
from pipeline.settings import WorkerSettings
from workers.engine import TorchEngine
from workers.job import Emission, Job, Sampling
from workers.model_runner import ModelRunner
from workers.runtime import bounded, kv_blocks, step_tokens

DECODE = {1: 96, 4: 96, 16: 48, 64: 32}  # streams: steps that are timed
PREFILL = (512, 2048)
PROMPT = 32  # tokens before the timed ones
SHARED = (64, 512)  # requests, tokens that they share


Contestants = dict[str, Callable[[], float]]  # who: one run, in seconds


class WallClock:
    def ms(self) -> int:
        return int(time.time() * 1000)


class Ours:
    """One engine for every row; only prompts that were never seen are timed as prefill."""

    def __init__(self, model: Model, settings: WorkerSettings, threads: int) -> None:
        self.config, self.threads, self._settings = model.config, threads, settings
        self._blocks = kv_blocks(model, settings)
        self._runner = ModelRunner(model, self._blocks, settings.block_size)

    def prefill(self, prompt: list[int]) -> float:
        engine = self._engine()
        engine.add(_job("p", prompt, 1))
        return _drain(engine)

    def decode(self, prompts: list[list[int]], tokens: int, *, speculate: bool = False) -> float:
        """Seconds for `tokens` tokens of every prompt, behind their prefill."""
        engine = self._engine(speculate=speculate)
        for i, prompt in enumerate(prompts):
            engine.add(_job(str(i), prompt, tokens + 1))
        begun: set[str] = set()
        while len(begun) < len(prompts):
            begun |= {event.request_id for event in engine.step()}
        said = engine.capacity().tokens
        seconds = _drain(engine)
        missing = len(prompts) * (tokens + 1) - said  # the first ones decode during prefill
        return seconds * tokens * len(prompts) / missing

    def share(self, prompts: list[list[int]], *, prefix_cache: bool) -> float:
        engine = self._engine(prefix_cache=prefix_cache)
        for i, prompt in enumerate(prompts):
            engine.add(_job(str(i), prompt, 1))
        return _drain(engine)

    def _engine(self, *, speculate: bool = False, prefix_cache: bool = True) -> TorchEngine:
        return TorchEngine(
            self._runner,
            clock=WallClock(),
            blocks=self._blocks,
            block_size=self._settings.block_size,
            max_batch_tokens=step_tokens(self._settings),
            slots=self._settings.slots,
            prefix_cache=prefix_cache,
            speculate=speculate,
        )


@dataclass
class Row:
    """One line of the table: tokens a second of each contestant."""

    name: str
    tokens: int
    contestants: Contestants
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def round(self) -> None:
        for who, run in self.contestants.items():
            self.seconds.setdefault(who, []).append(run())

    def rate(self, who: str) -> float:
        return self.tokens / statistics.median(self.seconds[who])


def rows(plan: str, ours: Ours, peers: dict[str, LlamaCpp], vocabulary: int) -> list[Row]:
    chance = random.Random(5)

    def prompt(length: int) -> list[int]:
        return [chance.randrange(100, vocabulary) for _ in range(length)]

    def fresh(prefill: Callable[[list[int]], float], length: int) -> Callable[[], float]:
        return lambda: prefill(prompt(length))

    made = []
    for streams, steps in DECODE.items():
        prompts = [prompt(PROMPT) for _ in range(streams)]
        contestants: Contestants = {plan: partial(ours.decode, prompts, steps)}
        for name, peer in peers.items():
            contestants[name] = partial(peer.decode, prompts, steps)
        if streams == max(DECODE):
            contestants["bf16 products"] = partial(
                products, ours.config, streams, steps, ours.threads
            )
        made.append(Row(f"decode, {streams} streams", streams * steps, contestants))
    repeating = prompt(16) * 8
    made.append(
        Row(
            "decode, 1 stream, repeating text, drafts",
            96,
            {
                plan: lambda: ours.decode([repeating], 96, speculate=True),
                f"{plan} without drafts": lambda: ours.decode([repeating], 96),
            },
        )
    )
    for length in PREFILL:
        contestants = {plan: fresh(ours.prefill, length)}
        for name, peer in peers.items():
            contestants[name] = fresh(peer.prefill, length)
        made.append(Row(f"prefill {length}", length, contestants))
    count, length = SHARED

    def crowd() -> list[list[int]]:
        shared = prompt(length)
        return [shared + prompt(8) for _ in range(count)]

    made.append(
        Row(
            f"{count} requests sharing {length} tokens",
            count * (length + 8),
            {
                plan: lambda: ours.share(crowd(), prefix_cache=True),
                f"{plan} without prefix cache": lambda: ours.share(crowd(), prefix_cache=False),
            },
        )
    )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=model_file(), help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plans", default="exact,fast")
    parser.add_argument("--rows", default="", help="only rows whose name has this in it")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    threads = bounded(arguments.threads)
    print(describe(), f"· {threads} threads · {arguments.model.name}")
    for plan in arguments.plans.split(","):
        _bench(arguments.model, plan, threads, arguments.rounds, arguments.rows)
    return 0


def _bench(path: Path, plan: str, threads: int, rounds: int, only: str) -> None:
    settings = WorkerSettings(kv_bytes=1 << 29)
    before = psutil.Process().memory_info().rss
    model = load_model(path, plan=plan, threads=threads)
    ours = Ours(model, settings, threads)
    held = psutil.Process().memory_info().rss - before
    peers = _peers(path, threads)
    todo = [r for r in rows(plan, ours, peers, model.config.vocab_size) if only in r.name]
    for number in range(rounds):
        for row in todo:
            row.round()
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    for peer in peers.values():
        peer.close()
    lines = []
    for row in todo:
        mine = row.rate(plan)
        others = {who: row.rate(who) for who in row.contestants if who != plan}
        ratios = [f"{mine / rate:.2f} × {who} ({rate:.0f})" for who, rate in others.items()]
        lines.append([row.name, f"{mine:.0f}", ", ".join(ratios)])
    print(table(f"plan {plan}, tokens/s", ["", "ours", "beside"], lines))
    print(
        f"\nresident: {held >> 20} MiB with a KV cache of {settings.kv_bytes >> 20} MiB; "
        f"the file has {path.stat().st_size >> 20} MiB"
    )


def _peers(path: Path, threads: int) -> dict[str, LlamaCpp]:
    try:
        return {
            f"llama.cpp{' flash' * flash}": LlamaCpp(path, threads=threads, flash=flash)
            for flash in (False, True)
        }
    except ImportError:
        print("llama-cpp-python is not installed (pip install .[bench]): no peer", file=sys.stderr)
        return {}


def _job(name: str, prompt: list[int], tokens: int) -> Job:
    sampling = Sampling(temperature=0.0, ignore_eos=True)
    return Job(request_id=name, attempt=1, prompt_ids=prompt, max_tokens=tokens, sampling=sampling)


def _drain(engine: TorchEngine) -> float:
    begun = time.perf_counter()
    while engine.has_work():
        for event in engine.step():
            if not isinstance(event, Emission):
                raise RuntimeError(event.message)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
