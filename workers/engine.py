"""The step: cancels, admit, plan, run, sample, commit text, emit.

Continuous batching over paged KV. Every step computes tokens that are not computed yet, of whatever
sequences there are; what a sequence says does not depend on which others those were.
"""

import logging
from collections.abc import Sequence as Seq

from kernels.blocks import BlockPool
from workers.capacity import Policy, never_fits
from workers.job import Capacity, Emission, Failure, Job, TokenLogprob
from workers.planner import Work
from workers.runner import DeviceLost, DeviceOutOfMemory, Draws, Runner
from workers.scheduler import Clock, Scheduler
from workers.sequence import Sequence

log = logging.getLogger(__name__)

Key = tuple[str, int]  # request id, attempt
Event = Emission | Failure


class TorchEngine:
    """Implements `workers.job.Engine` over a `Runner`.

    `max_batch_tokens` bounds a step; `slots` bounds the sequences admitted at once. Not thread-safe:
    one thread calls everything.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        clock: Clock,
        blocks: int,
        block_size: int = 16,
        max_batch_tokens: int = 512,
        slots: int = 64,
        policy: Policy | None = None,
        prefix_cache: bool = True,
        speculate: bool = True,
    ) -> None:
        if max_batch_tokens < slots:
            raise ValueError(f"max_batch_tokens {max_batch_tokens} is less than slots {slots}")
        self._runner = runner
        self.device_type = runner.device_type
        self._clock = clock
        self.pool = BlockPool(blocks, block_size)
        self._scheduler = Scheduler(
            runner,
            self.pool,
            clock=clock,
            budget=max_batch_tokens,
            slots=slots,
            policy=policy or Policy(),
            prefix_cache=prefix_cache,
            speculate=speculate,
        )
        self._jobs: dict[Key, list[Sequence]] = {}  # the unfinished choices of each job
        self._early: list[Event] = []  # refusals, and ends that a prefix already held
        self._arrivals = self._steps = self._batch_tokens = self._tokens = 0
        self._max_occupancy = self._drafts = self._accepted = self._failures = 0

    def add(self, job: Job) -> None:
        refusal = never_fits(job, self.pool, self._runner.context, self._runner.vocab_size)
        if refusal is not None:
            self._early.append(_failure(job, "never_fits", refusal, retryable=False))
            return
        for choice in range(job.n):
            sequence = Sequence(
                job, choice, self._arrivals, self._clock.ms(), self._runner.revision
            )
            self._arrivals += 1
            if sequence.prefix.finish is not None:
                continue
            for token in sequence.prefix.ids:
                self._append(sequence, token)
            if sequence.finish is not None:  # all was said but that it was the end
                self._early.append(sequence.emission(len(sequence.prefix.ids)))
                continue
            self._scheduler.add(sequence)
            self._jobs.setdefault(sequence.key, []).append(sequence)

    def cancel(self, request_id: str, attempt: int | None = None) -> bool:
        keys = [
            key
            for key in self._jobs
            if key[0] == request_id and (attempt is None or key[1] <= attempt)
        ]
        for key in keys:
            self._drop(key)
        self._early = [
            event
            for event in self._early
            if event.request_id != request_id or not (attempt is None or event.attempt <= attempt)
        ]
        return bool(keys)

    def preempt_one(self) -> bool:
        """Preempt whom a lack of blocks would; what `exactness` does at random steps."""
        return self._scheduler.preempt_one()

    def step(self) -> list[Event]:
        events, self._early = self._early, []
        work = self._scheduler.schedule()
        if not work:
            return events
        try:
            draws = self._runner.run(work)
        except DeviceLost:
            raise
        except DeviceOutOfMemory as fault:
            budget = max(self._scheduler.slots, self._scheduler.budget // 2)
            self._scheduler.budget = budget
            log.warning("out of memory: a step has %d tokens at most from now on", budget)
            return events + self._fail(work, "out_of_memory", str(fault))
        except Exception as fault:  # whatever a kernel raises ends these jobs only
            log.exception("a step of %d sequences failed", len(work))
            return events + self._fail(work, "engine_error", f"{type(fault).__name__}: {fault}")
        self._steps += 1
        self._batch_tokens = sum(each.count for each in work)
        self._max_occupancy = max(self._max_occupancy, len(work))
        self._commit(work, draws, events)
        return events

    def has_work(self) -> bool:
        return bool(self._jobs or self._early)

    def wait_ms(self) -> float:
        return 0.0

    def capacity(self) -> Capacity:
        scheduler = self._scheduler
        return Capacity(
            running=len({s.key for s in scheduler.running.values()}),
            waiting=len({s.key for s in scheduler.waiting.values()}),
            slots=scheduler.slots,
            blocks_total=self.pool.total,
            blocks_used=self.pool.used,
            blocks_cached=self.pool.cached,
            batch_tokens=self._batch_tokens,
            steps=self._steps,
            tokens=self._tokens,
            preemptions=scheduler.preemptions,
            cache_hit_tokens=scheduler.hit_tokens,
            max_occupancy=self._max_occupancy,
            swaps=scheduler.swaps,
            drafts=self._drafts,
            accepted_drafts=self._accepted,
            failures=self._failures,
        )

    def token_text(self, token_id: int) -> bytes:
        return self._runner.token_bytes(token_id)

    def close(self) -> None:
        for key in list(self._jobs):
            self._drop(key)

    def _commit(self, work: Seq[Work], draws: Draws, events: list[Event]) -> None:
        """Take what a step computed and drew, and say it."""
        at = 0
        for each in work:
            first, at = at, at + each.draws
            sequence = each.sequence
            if sequence.key not in self._jobs:  # another choice of its job has just failed
                continue
            if not each.draws:
                sequence.computed += each.count
                self._scheduler.register(sequence)
                continue
            emission = self._accept(sequence, draws, first)
            if emission is None:
                self.pool.forget(sequence.blocks)
                message = "the model's output was not finite"
                self._give_up(sequence.key, "nan", message, events, retryable=False)
                continue
            events.append(emission)
            self._scheduler.register(sequence)
            if sequence.finish is not None:
                self._end(sequence)

    def _accept(self, sequence: Sequence, draws: Draws, first: int) -> Emission | None:
        """Append drawn tokens for as long as the drafts were right; None: not finite."""
        k = sequence.generated
        drafts, sequence.drafts = sequence.drafts, []
        pieces: list[str] = []
        logprobs: list[TokenLogprob] = []
        for i in range(len(drafts) + 1):
            if not draws.finite[first + i]:
                return None
            token = draws.ids[first + i]
            pieces.append(self._append(sequence, token))
            if sequence.job.sampling.logprobs:
                logprobs.append(draws.logprobs[first + i])
            if sequence.finish is not None or i == len(drafts) or drafts[i] != token:
                break
        sequence.computed = len(sequence.ids) - 1
        self._tokens += len(pieces)
        if drafts and sequence.lookup is not None:
            self._drafts += len(drafts)
            self._accepted += len(pieces) - 1
            sequence.lookup.learn(len(drafts), len(pieces) - 1)
        return sequence.emission(k, pieces, logprobs)

    def _append(self, sequence: Sequence, token: int) -> str:
        data = self._runner.token_bytes(token)
        return sequence.append(token, data, eos=token in self._runner.eos_ids)

    def _end(self, sequence: Sequence) -> None:
        self._scheduler.end(sequence)
        left = self._jobs[sequence.key]
        left.remove(sequence)
        if not left:
            del self._jobs[sequence.key]

    def _drop(self, key: Key) -> None:
        for sequence in self._jobs.pop(key):
            self._scheduler.remove(sequence)

    def _fail(self, work: Seq[Work], code: str, message: str) -> list[Event]:
        """Every job of a step that failed as a whole; another attempt may succeed."""
        events: list[Event] = []
        for key in {each.sequence.key: None for each in work}:
            self._give_up(key, code, message, events, retryable=True)
        return events

    def _give_up(
        self, key: Key, code: str, message: str, events: list[Event], *, retryable: bool
    ) -> None:
        job = self._jobs[key][0].job
        self._drop(key)
        self._failures += 1
        events.append(_failure(job, code, message, retryable=retryable))


def _failure(job: Job, code: str, message: str, *, retryable: bool) -> Failure:
    return Failure(
        request_id=job.request_id,
        attempt=job.attempt,
        code=code,
        message=message,
        retryable=retryable,
    )
