"""Who waits, who runs, and whose are the blocks: the state that admission and planning work on."""

from typing import Protocol

from kernels.blocks import BlockPool
from workers.capacity import Expectation, Policy, admissible, queue, victim
from workers.planner import Work, plan
from workers.runner import Runner
from workers.sequence import Sequence
from workers.speculate import LONGEST, PromptLookup, least_right

_HOPELESS = 0.9  # few texts are guessed that well: beyond, looking them up is wasted too


class Clock(Protocol):
    """Wall time in milliseconds."""

    def ms(self) -> int: ...


class Scheduler:
    """Sequences by arrival; those that run hold blocks of the pool, the others hold none."""

    def __init__(
        self,
        runner: Runner,
        pool: BlockPool,
        *,
        clock: Clock,
        budget: int,
        slots: int,
        policy: Policy,
        prefix_cache: bool,
        speculate: bool,
    ) -> None:
        self.pool = pool
        self.slots = slots
        self.budget = budget  # tokens of a step, at most
        self.waiting: dict[int, Sequence] = {}
        self.running: dict[int, Sequence] = {}  # oldest first
        self.hit_tokens = self.preemptions = self.swaps = 0
        self._runner = runner
        self._clock = clock
        self._policy = policy
        self._prefix_cache = prefix_cache
        self._speculate = speculate
        self._expectation = Expectation(policy.first_guess)

    def add(self, sequence: Sequence) -> None:
        self.waiting[sequence.arrival] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is; its blocks are free at once."""
        self.waiting.pop(sequence.arrival, None)
        self.running.pop(sequence.arrival, None)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        if sequence.swapped is not None:
            self._runner.drop(sequence.swapped)
            sequence.swapped = None

    def end(self, sequence: Sequence) -> None:
        """Remove a sequence that said everything."""
        self._expectation.learn(sequence.generated)
        self.remove(sequence)

    def schedule(self) -> list[Work]:
        """Admit who fits, and plan a step, with blocks for all of it."""
        self._admit()
        running = list(self.running.values())
        least = least_right(self._runner.draft_cost, len(running))
        for sequence in running:
            if sequence.uncomputed > 1:
                self._reuse(sequence)
            elif self._speculate and least < _HOPELESS:
                self._draft(sequence, least)
        planned = plan(running, self.budget, self.pool.size, sharing=self._prefix_cache)
        kept = [work for work in planned if self._make_room(work)]
        return [work for work in kept if work.sequence.arrival in self.running]

    def register(self, sequence: Sequence) -> None:
        """Make the blocks that the last step filled findable."""
        size = self.pool.size
        for i in range(sequence.registered, sequence.computed // size):
            parent = sequence.digest(i - 1, size) if i else sequence.parent
            self.pool.register(sequence.blocks[i], parent, sequence.ids[i * size : (i + 1) * size])
            sequence.registered = i + 1

    def preempt_one(self) -> bool:
        """Take the blocks of one sequence, which keeps its place in the queue; False: of none."""
        sequence = victim(self.running.values(), self._policy)
        if sequence is None:
            return False
        del self.running[sequence.arrival]
        self.waiting[sequence.arrival] = sequence
        filled = sequence.blocks[: self.pool.blocks_for(sequence.computed)]
        sequence.swapped = self._runner.swap_out(filled, sequence.computed)
        self.swaps += sequence.swapped is not None
        if sequence.swapped is None:
            sequence.computed = 0
        self.pool.release(sequence.blocks)
        sequence.blocks, sequence.drafts, sequence.registered = [], [], 0
        sequence.since_ms = self._clock.ms()
        sequence.preemptions += 1
        self.preemptions += 1
        return True

    def _admit(self) -> None:
        if not self.waiting or len(self.running) >= self.slots:
            return
        running = list(self.running.values())
        candidates = queue(
            self.waiting.values(), running, self._expectation, self._policy, self._clock.ms()
        )
        for sequence in admissible(
            candidates, running, self.pool, self._expectation, self._policy, self.slots
        ):
            del self.waiting[sequence.arrival]
            self.running[sequence.arrival] = sequence
            if sequence.swapped is None:
                self._reuse(sequence)
            else:
                sequence.blocks = self.pool.take(self.pool.blocks_for(sequence.computed))
                self._runner.swap_in(sequence.swapped, sequence.blocks)
                sequence.swapped = None
        self.running = dict(sorted(self.running.items()))

    def _reuse(self, sequence: Sequence) -> None:
        """Go on behind the blocks that the prefix cache knows by now."""
        size = self.pool.size
        if not self._prefix_cache or sequence.computed % size or sequence.uncomputed <= size:
            return
        done = sequence.computed // size
        parent = sequence.digest(done - 1, size) if done else sequence.parent
        blocks, _ = self.pool.match(parent, sequence.ids[sequence.computed :])
        if not blocks:
            return
        self.pool.share(blocks)
        self.pool.release(sequence.blocks[done:])  # taken for a chunk that was not computed
        sequence.blocks[done:] = blocks
        sequence.registered = done + len(blocks)
        sequence.computed = sequence.registered * size
        self.hit_tokens += len(blocks) * size
        if not sequence.preemptions:
            sequence.cached += len(blocks) * size

    def _draft(self, sequence: Sequence, least: float) -> None:
        if sequence.lookup is None:
            sequence.lookup = PromptLookup()
        most = min(LONGEST, sequence.left - 1)
        sequence.drafts = sequence.lookup.propose(sequence.ids, most, least)

    def _make_room(self, work: Work) -> bool:
        """Take the blocks that a work needs; False: it has to wait for a later step.

        Drafts and prompts of all but the oldest take what is free. What must go on, a stream or the
        oldest prompt, preempts others.
        """
        sequence = work.sequence
        if sequence.arrival not in self.running:
            return False
        missing = self._missing(work)
        if missing <= 0:
            return True
        if missing > self.pool.available and sequence.drafts and work.draws:
            sequence.drafts = []
            work.count = work.draws = 1
            missing = max(0, self._missing(work))
        oldest = next(iter(self.running)) == sequence.arrival
        while missing > self.pool.available:
            if not (oldest or sequence.decoding):
                return self._shrink(work)
            if not self.preempt_one() or sequence.arrival not in self.running:
                return False
        sequence.blocks += self.pool.take(missing)
        return True

    def _missing(self, work: Work) -> int:
        tokens = work.sequence.computed + work.count
        return self.pool.blocks_for(tokens) - len(work.sequence.blocks)

    def _shrink(self, work: Work) -> bool:
        """Compute as much of a prompt chunk as there are blocks for."""
        sequence = work.sequence
        sequence.blocks += self.pool.take(self.pool.available)
        work.count = len(sequence.blocks) * self.pool.size - sequence.computed
        work.draws = 0
        return work.count > 0
