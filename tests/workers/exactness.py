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
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernels.model import Model, load_model
from tests.flow.installation import MODEL_FILE, models_folder
from tests.workers.fakes import ManualClock, Said, collect
from tests.workers.prompts import mixed_jobs
from tests.workers.ways import PLAIN, Way, ways
from workers.engine import TorchEngine
from workers.job import Capacity, Job, Prefix

BLOCK = 16
Answers = dict[tuple[str, int], Said]


class Exactness:
    """The reference answers, and the cells compared with them."""

    def __init__(self, model: Model, jobs: Sequence[Job], reload: Callable[[int], Model]) -> None:
        self._model, self._reload = model, reload
        self._jobs = list(jobs)
        alone = Way("alone", group=1, blocks=256, options=PLAIN)
        self.reference, _ = self._run(alone, self._jobs)

    def check(self, way: Way) -> list[str]:
        """What is wrong with one way of running, as sentences; [] = identical."""
        model = self._reload(way.threads) if way.threads else self._model
        answers, capacity = self._run(way, self._jobs, model=model)
        wrong = [f"{way.name}: no {what}" for what, need in way.needs if not need(capacity)]
        return wrong + self._differences(way.name, answers)

    def check_continuation(self, seed: int = 3) -> list[str]:
        """Each prompt is cut at some token and continued by a fresh engine."""
        chance = random.Random(seed)
        jobs, answers = [], {}
        for job in self._jobs:
            whole = self.reference[job.request_id, 0]
            k = chance.randrange(len(whole.ids))
            prefix = Prefix(ids=tuple(whole.ids[:k]), pieces=tuple(whole.pieces[:k]))
            jobs.append(replace(job, attempt=2, prefix=(prefix,)))
            answers[job.request_id, 0] = Said(whole.ids[:k], whole.pieces[:k], whole.logprobs[:k])
        self._run(Way("continued", blocks=2048), jobs, answers)
        return self._differences("continued at token k", answers)

    def _run(
        self,
        way: Way,
        jobs: Sequence[Job],
        answers: Answers | None = None,
        model: Model | None = None,
    ) -> tuple[Answers, Capacity]:
        options = {"max_batch_tokens": 512, "slots": 64, **dict(way.options)}
        engine = TorchEngine(
            way.runner(model or self._model, way.blocks, BLOCK),
            clock=ManualClock(),
            blocks=way.blocks,
            block_size=BLOCK,
            **options,
        )
        order = list(jobs)
        random.Random(way.name).shuffle(order)  # the company is random
        if way.warm:
            self._finish(
                engine, [replace(j, request_id="w" + j.request_id) for j in order], way, {}
            )
        answers = {} if answers is None else answers
        for i in range(0, len(order), way.group):
            self._finish(engine, order[i : i + way.group], way, answers)
        return answers, engine.capacity()

    def _finish(self, engine: TorchEngine, jobs: Sequence[Job], way: Way, answers: Answers) -> None:
        chance = random.Random(way.name)
        for job in jobs:
            engine.add(job)
        while engine.has_work():
            failures = collect(engine.step(), answers)
            assert not failures, failures
            engine.pool.check()
            if way.preempt and chance.random() < 0.2:
                engine.preempt_one()

    def _differences(self, name: str, answers: Answers) -> list[str]:
        wrong = []
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


def prepare(plan: str, prompts: int, tokens: int) -> tuple[Model, Exactness]:
    """The real model, and the reference answers to as many prompts."""

    def load(threads: int | None = None) -> Model:
        return load_model(models_folder() / MODEL_FILE, plan=plan, threads=threads)

    model = load()
    return model, Exactness(model, mixed_jobs(model.vocabulary, prompts, tokens), load)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--plan", default="exact")
    parser.add_argument("--ways", default="", help="only ways whose name matches, a regex")
    arguments = parser.parse_args()
    model, exactness = prepare(arguments.plan, arguments.prompts, arguments.tokens)
    print(f"{model.profile.device_type}, plan {model.plan}, {arguments.prompts} prompts")
    failed = 0
    for way in ways(arguments.prompts):
        if not re.search(arguments.ways, way.name):
            continue
        begun = time.monotonic()
        wrong = exactness.check(way)
        failed += _say(way.name, wrong, time.monotonic() - begun)
    begun = time.monotonic()
    wrong = exactness.check_continuation()
    failed += _say("continued at token k", wrong, time.monotonic() - begun)
    return 1 if failed else 0


def _say(name: str, wrong: list[str], seconds: float) -> bool:
    print(f"{name:40} {'identical' if not wrong else f'{len(wrong)} WRONG':12} {seconds:6.1f} s")
    for sentence in wrong[:5]:
        print(f"    {sentence}")
    sys.stdout.flush()
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
