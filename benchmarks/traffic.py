"""The engine inside its service: beside itself alone, and beside llama.cpp's own server.

    python -m benchmarks.traffic [--rows inside,mixed] [--rounds 5] [--llama-server PATH]

`inside`: 16 streams of the same length through HTTP and Kafka, beside the same jobs given to an engine
in this process. `mixed`: requests that come as a Poisson process, with lengths as in ShareGPT's
conversations (log-normal; means of about 160 and 190 tokens), made with a seed and sent to Headrace and
to llama.cpp's server (`LLAMA_BUILD_SERVER=ON`, continuous batching) in turn. Greedy, prompts of random
tokens, answers of exactly the wanted length. Medians of alternating rounds.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.engine import WallClock
from benchmarks.load import arrivals
from benchmarks.machine import describe, model_file, quantile, table
from benchmarks.peers import llama_server
from pipeline.settings import WorkerSettings
from tests.flow.installation import MODEL, installation
from workers.engine import TorchEngine
from workers.job import Job, Sampling
from workers.runtime import bounded, build_engine

STREAMS, PROMPT = 16, 32  # of the row `inside`
LONGEST_PROMPT, LONGEST_ANSWER = 1024, 512
LIMIT = 1800.0  # s that a round may take


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    tokens: int

    def body(self) -> bytes:
        return json.dumps(
            {
                "model": MODEL,
                "prompt": self.prompt,
                "max_tokens": self.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
            }
        ).encode()


@dataclass
class Round:
    """What one round took; times in seconds."""

    tokens: int = 0
    seconds: float = 0.0
    first: list[float] = field(default_factory=list)
    pace: list[float] = field(default_factory=list)  # between two tokens, by request

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def same_length(chance: random.Random, answer: int) -> list[Request]:
    return [Request(_prompt(chance, PROMPT), answer) for _ in range(STREAMS)]


def mixed(chance: random.Random, count: int) -> list[Request]:
    def length(middle: float, spread: float, longest: int) -> int:
        return min(longest, max(4, int(chance.lognormvariate(middle, spread))))

    return [
        Request(_prompt(chance, length(4.5, 1.1, LONGEST_PROMPT)), length(5.0, 0.8, LONGEST_ANSWER))
        for _ in range(count)
    ]


def _prompt(chance: random.Random, length: int) -> list[int]:
    return [chance.randrange(100, 30_000) for _ in range(length)]


async def send(url: str, requests: list[Request], rate: float) -> Round:
    """All of them at `url`, as they come at `rate` a second; 0: at once."""
    done, begun = Round(), time.perf_counter()
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        if rate:
            async for number in arrivals(len(requests), rate):
                tasks.create_task(_stream(url, requests[number], done))
        else:
            for request in requests:
                tasks.create_task(_stream(url, request, done))
    done.seconds = time.perf_counter() - begun
    return done


async def _stream(url: str, request: Request, done: Round) -> None:
    """One answer. Raises RuntimeError where it is not what was asked for."""
    host, body = urlsplit(url), request.body()
    begun, first, end = time.perf_counter(), 0.0, b""
    reader, writer = await asyncio.open_connection(host.hostname, host.port, limit=1 << 20)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    async for line in reader:
        if line.startswith(b"data: {") and not first:
            first = time.perf_counter()
        if line.startswith(b"data: "):
            end = line
    writer.close()
    if end.strip() != b"data: [DONE]":
        raise RuntimeError(f"{url} ended a stream with {end[:200]!r}")
    done.tokens += request.tokens
    done.first.append(first - begun)
    done.pace.append((time.perf_counter() - first) / max(1, request.tokens - 1))


def alone(engine: TorchEngine, requests: list[Request]) -> Round:
    """The same as jobs of an engine in this process."""
    begun, done = time.perf_counter(), Round(sum(request.tokens for request in requests))
    for number, request in enumerate(requests):
        engine.add(
            Job(
                request_id=str(number),
                attempt=1,
                prompt_ids=request.prompt,
                max_tokens=request.tokens,
                sampling=Sampling(temperature=0.0, ignore_eos=True),
            )
        )
    while engine.has_work():
        engine.step()
    done.seconds = time.perf_counter() - begun
    return done


@contextmanager
def headrace(plan: str) -> Iterator[str]:
    """The URL of an installation of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        installation(Path(home), "embedded", HEADRACE_WORKER_PLAN=plan) as made,
    ):
        yield made.url()


def bench_inside(plan: str, rounds: int, answer: int) -> None:
    settings = WorkerSettings(plan=plan)  # type: ignore[arg-type]
    engine = build_engine(model_file(), settings, clock=WallClock())
    chance = random.Random(5)
    with headrace(plan) as url:
        asyncio.run(send(url, same_length(chance, 8), 0))  # warm
        inside, bare = [], []
        for number in range(rounds):
            requests = same_length(chance, answer)
            bare.append(alone(engine, requests).rate)
            inside.append(asyncio.run(send(url, requests, 0)).rate)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    engine.close()
    share = median(inside) / median(bare)
    row = [f"{median(inside):.0f}", f"{median(bare):.0f}", f"{100 * share:.0f} %"]
    title = f"plan {plan}, tokens/s of {STREAMS} streams, {PROMPT} tokens and {answer} more"
    print(table(title, ["inside Headrace", "engine alone", "share"], [row]), flush=True)


def bench_mixed(plan: str, rounds: int, count: int, rate: float, binary: Path | None) -> None:
    took: dict[str, list[Round]] = {}
    threads = bounded()
    for number in range(rounds):
        requests = mixed(random.Random(number), count)
        with headrace(plan) as url:
            took.setdefault("headrace", []).append(asyncio.run(send(url, requests, rate)))
        if binary is not None:
            longest = LONGEST_PROMPT + LONGEST_ANSWER
            with llama_server(binary, model_file(), threads, longest) as url:
                took.setdefault("llama.cpp", []).append(asyncio.run(send(url, requests, rate)))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    lines = []
    for who, seen in took.items():
        cells = [f"{median(one.rate for one in seen):.0f}"]
        cells += [f"{1000 * median(quantile(o.first, s) for o in seen):.0f}" for s in (0.5, 0.95)]
        cells += [f"{1000 * median(quantile(o.pace, s) for o in seen):.0f}" for s in (0.5, 0.95)]
        lines.append([who, *cells])
    columns = ["", "tokens/s", "first token, ms p50", "p95", "between tokens, ms p50", "p95"]
    title = f"plan {plan}, {count} requests, {rate:g} a second"
    print(table(title, columns, lines), flush=True)
    if "llama.cpp" in took:
        ratio = median(a.rate / b.rate for a, b in zip(*took.values(), strict=True))
        print(f"\ntokens/s: {ratio:.2f} × llama.cpp's server", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="inside,mixed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plan", default="exact", choices=["exact", "fast"])
    parser.add_argument("--answer", type=int, default=192, help="tokens of an answer of `inside`")
    parser.add_argument("--requests", type=int, default=64, help="of a round of `mixed`")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second of `mixed`")
    parser.add_argument("--llama-server", type=Path, help="the binary; without it no peer")
    chosen = parser.parse_args()
    binary = chosen.llama_server
    if binary is not None and not binary.is_file():
        print(f"{binary} is not there: no peer", file=sys.stderr)
        binary = None
    print(describe(), f"· {bounded()} threads", flush=True)
    if "inside" in chosen.rows:
        bench_inside(chosen.plan, chosen.rounds, chosen.answer)
    if "mixed" in chosen.rows:
        bench_mixed(chosen.plan, chosen.rounds, chosen.requests, chosen.rate, binary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
