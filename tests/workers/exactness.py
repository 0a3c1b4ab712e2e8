"""Whether a request's tokens and the bits of its logprobs are the same however it is run.

    python -m tests.workers.exactness --prompts 200

Every cell runs the same prompts another way and is compared with each prompt alone on a fresh
engine. A cell that did not do what its name says (no preemption happened, no draft was accepted)
counts as failed.
"""

import argparse
import random
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

from kernels.model import Model, load_model
from tests.flow.installation import MODEL_FILE, models_folder
from tests.workers.fakes import ManualClock, Said, collect
from tests.workers.prompts import mixed_jobs
from tests.workers.ways import ALONE, CONTINUED, Way, ways
from workers.engine import TorchEngine
from workers.job import Capacity, Job, Prefix

BLOCK = 16
Answers = dict[tuple[str, int], Said]


class Exactness:
    """The reference answers, and the cells compared with them."""

    def __init__(self, load: Callable[[int], Model], prompts: int, tokens: int) -> None:
        self._load, self._threads = load, ALONE.threads
        self.model = load(ALONE.threads)
        self._jobs = mixed_jobs(self.model.vocabulary, prompts, tokens)
        self._short = sorted(self._jobs, key=lambda job: len(job.prompt_ids))[: 1 + prompts // 2]
        self.reference: Answers = {}
        self._run(ALONE, self._jobs, [self.reference])

    def check(self, way: Way) -> list[str]:
        """What is wrong with one way of running, as sentences; [] = identical."""
        passes: list[Answers] = [{}, {}] if way.twice else [{}]
        capacity = self._run(way, self._jobs, passes)
        wrong = [f"{way.name}: no {what}" for what, need in way.needs if not need(capacity)]
        for again in passes[1:]:
            cold = [
                f"{id}.{choice}" for (id, choice), said in again.items() if not said.cached_tokens
            ]
            wrong += [f"{way.name}: {key} found nothing in the prefix cache" for key in cold]
        return wrong + [each for answers in passes for each in self._differences(way, answers)]

    def check_continuation(self, seed: int = 3) -> list[str]:
        """Each prompt is cut at some token and continued by a fresh engine."""
        chance = random.Random(seed)
        jobs: list[Job] = []
        answers: Answers = {}
        for job in self._jobs:
            whole = self.reference[job.request_id, 0]
            k = chance.randrange(len(whole.ids))
            prefix = Prefix(ids=tuple(whole.ids[:k]), pieces=tuple(whole.pieces[:k]))
            jobs.append(replace(job, attempt=2, prefix=(prefix,)))
            answers[job.request_id, 0] = Said(whole.ids[:k], whole.pieces[:k], whole.logprobs[:k])
        self._run(CONTINUED, jobs, [answers])
        return self._differences(CONTINUED, answers)

    def _run(self, way: Way, jobs: Sequence[Job], passes: Sequence[Answers]) -> Capacity:
        """Fill `passes` with what an engine says when all jobs are handed in once for each."""
        if way.threads != self._threads:
            self.model, self._threads = self._load(way.threads), way.threads
        options = {"max_batch_tokens": 512, "slots": 64, **dict(way.options)}
        engine = TorchEngine(
            way.runner(self.model, way.blocks, BLOCK),
            clock=ManualClock(),
            blocks=way.blocks,
            block_size=BLOCK,
            **options,
        )
        order = list(jobs)
        chance = random.Random(way.name)
        chance.shuffle(order)
        for answers in passes:
            for batch in self._batches(way, order, chance):
                self._finish(engine, batch, way, answers, chance)
        return engine.capacity()

    def _batches(self, way: Way, jobs: Sequence[Job], chance: random.Random) -> Iterator[list[Job]]:
        left = deque(jobs)
        for size in cycle(way.batches):
            if not left:
                return
            batch = [left.popleft() for _ in range(min(size, len(left)))]
            if way.company:
                others = chance.choices(self._short, k=size - len(batch))
                batch += [replace(each, request_id=f"company {i}") for i, each in enumerate(others)]
            yield batch

    def _finish(
        self,
        engine: TorchEngine,
        jobs: Sequence[Job],
        way: Way,
        answers: Answers,
        chance: random.Random,
    ) -> None:
        for job in jobs:
            engine.add(job)
        while engine.has_work():
            failures = collect(engine.step(), answers)
            assert not failures, failures
            engine.pool.check()
            if way.preempt and chance.random() < 0.2:
                engine.preempt_one()

    def _differences(self, way: Way, answers: Answers) -> list[str]:
        wrong, name = [], way.name
        for key, whole in self.reference.items():
            other = answers[key]
            if other.ids != whole.ids:
                at = next(
                    (
                        i
                        for i, (a, b) in enumerate(zip(other.ids, whole.ids, strict=False))
                        if a != b
                    ),
                    min(len(other.ids), len(whole.ids)),
                )
                wrong.append(f"{name}: {key[0]} says another token at {at}")
            elif other.logprobs != whole.logprobs:
                wrong.append(f"{name}: {key[0]} has other logprob bits")
            elif (other.text, other.finish) != (whole.text, whole.finish):
                wrong.append(f"{name}: {key[0]} has another text or finish")
        return wrong


def prepare(plan: str, prompts: int, tokens: int) -> Exactness:
    """The real model's reference answers to as many prompts, each alone and with one thread."""

    def load(threads: int) -> Model:
        return load_model(models_folder() / MODEL_FILE, plan=plan, threads=threads)

    return Exactness(load, prompts, tokens)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--plan", default="exact")
    parser.add_argument("--ways", default="", help="only ways whose name matches, a regex")
    arguments = parser.parse_args()
    exactness = prepare(arguments.plan, arguments.prompts, arguments.tokens)
    model = exactness.model
    print(f"{model.profile.device_type}, plan {model.plan}, {arguments.prompts} prompts")
    checks: list[tuple[str, Callable[[], list[str]]]]
    checks = [(way.name, partial(exactness.check, way)) for way in ways(arguments.prompts)]
    checks.append((CONTINUED.name, exactness.check_continuation))
    failed = 0
    for name, check in checks:
        if re.search(arguments.ways, name):
            begun, spent = time.monotonic(), time.process_time()
            wrong = check()
            failed += bool(wrong)
            _say(name, wrong, time.monotonic() - begun, time.process_time() - spent)
    return 1 if failed else 0


def _say(name: str, wrong: Sequence[str], seconds: float, cpu: float) -> None:
    verdict = f"{len(wrong)} WRONG" if wrong else "identical"
    print(f"{name:40} {verdict:12} {seconds:6.1f} s, {cpu:6.1f} s of CPU")
    for sentence in wrong[:5]:
        print(f"    {sentence}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
