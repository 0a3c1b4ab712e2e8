"""May a sequence live, and who has to make room. Pure.

A sequence is admitted when the blocks of its prompt and of what it will probably say are free after
what the running ones will probably still take. Where that guess was wrong and blocks run out, one is
preempted: it gives its blocks back, keeps its place in the queue, and goes on later identically.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import chain

from kernels.blocks import BlockPool
from workers.job import Job
from workers.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How admission and preemption weigh things."""

    first_guess: float = 128.0  # tokens of an answer, before any has ended; learnt from then on
    margin: float = 0.02  # of all blocks stay free at admission, for guesses that were too low
    patience_ms: int = 200  # whoever waited longer is taken whatever its group
    promotion_ms: int = 2_000  # of waiting lift a sequence by one lane, so that none starves
    max_preemptions: int = 3  # of one sequence, as long as there is another victim
    max_skips: int = 16  # times that others may pass one which does not fit
    considered: int = (
        128  # waiting sequences weighed in one step; sorting more costs more than it gives
    )


class Expectation:
    """How much a sequence will probably still say: learnt from those that ended."""

    def __init__(self, first_guess: float) -> None:
        self._mean = first_guess

    def learn(self, generated: int) -> None:
        self._mean += (generated - self._mean) / 16  # about the last sixteen answers

    def left(self, sequence: Sequence) -> int:
        """Tokens, never more than it may say; who says on beyond the guess is guessed to double."""
        if sequence.job.sampling.ignore_eos and not sequence.job.sampling.stop:
            return max(0, sequence.left)
        guess = max(2 * self._mean, 2.0 * sequence.generated) - sequence.generated
        return max(0, min(sequence.left, int(guess) + 1))


def never_fits(job: Job, pool: BlockPool, context: int, vocab_size: int) -> str | None:
    """Why a job could not run even alone, with the numbers; None: it could.

    A token that the model does not have would fail a whole step, and with it other jobs.
    """
    tokens = len(job.prompt_ids) + job.max_tokens
    if not job.prompt_ids:
        return "the prompt has no tokens: at least 1 is needed"
    named = chain(
        job.prompt_ids, *(p.ids for p in job.prefix), (id for id, _ in job.sampling.logit_bias)
    )
    strange = [id for id in named if not 0 <= id < vocab_size]
    if strange:
        return f"token {strange[0]} is none of the model's, which end at {vocab_size - 1}"
    if tokens > context:
        return (
            f"{len(job.prompt_ids)} prompt tokens and max_tokens {job.max_tokens} are {tokens}, "
            f"the model's context is {context}"
        )
    if pool.blocks_for(tokens) > pool.total:
        return (
            f"{len(job.prompt_ids)} prompt tokens and max_tokens {job.max_tokens} need "
            f"{pool.blocks_for(tokens)} KV blocks of {pool.size}, this worker has {pool.total}"
        )
    return None


def queue(
    waiting: Iterable[Sequence],
    running: Seq[Sequence],
    expectation: Expectation,
    policy: Policy,
    now_ms: int,
) -> list[Sequence]:
    """Waiting sequences in the order in which they should be admitted.

    By lane, which rises with the time waited; in a lane first those that were preempted, then the
    impatient, then those of the running ones' group: whose lives probably end with theirs, so that
    blocks come free together.
    """
    group = _group(sum(map(expectation.left, running)) // len(running)) if running else None

    def rank(sequence: Sequence) -> tuple[int, bool, int, int]:
        waited = now_ms - sequence.since_ms
        lane = max(0, sequence.job.lane - waited // policy.promotion_ms)
        distance = 0
        if group is not None and waited <= policy.patience_ms:
            distance = 1 + abs(_group(expectation.left(sequence)) - group)
        return lane, not sequence.preemptions, distance, sequence.arrival

    return sorted(waiting, key=rank)


def admissible(
    sequences: Iterable[Sequence],
    running: Seq[Sequence],
    pool: BlockPool,
    expectation: Expectation,
    policy: Policy,
    slots: int,
) -> Iterator[Sequence]:
    """Of the queue those that fit now. The caller admits each one before it asks for the next."""
    admitted = list(running)
    reserved = sum(_growth(s, pool, expectation) for s in running)
    margin = int(pool.total * policy.margin)
    for sequence in sequences:
        if len(admitted) >= slots or _unwanted_company(sequence, admitted):
            return
        need = _growth(sequence, pool, expectation)
        if need + reserved + margin > pool.available and sequence.swapped is None:
            known, _ = pool.match(sequence.parent, sequence.ids)
            need -= len(known) - pool.cached_among(known)  # these are held by others already
        if admitted and need + reserved + margin > pool.available:
            sequence.skipped += 1
            if sequence.skipped > policy.max_skips:
                return
            continue
        admitted.append(sequence)
        yield sequence
        reserved += _growth(sequence, pool, expectation)


def _unwanted_company(sequence: Sequence, admitted: Seq[Sequence]) -> bool:
    """Whether one of them has to run alone for now; the choices of one job are no company."""
    others = [s for s in admitted if s.key != sequence.key]
    return bool(others) and (sequence.suspect or any(each.suspect for each in others))


def victim(running: Iterable[Sequence], policy: Policy) -> Sequence | None:
    """Whom to preempt: lowest lane, then least computed; never the oldest.

    The oldest always goes on, and fits alone, so the engine as a whole always does.
    """
    sequences = sorted(running, key=lambda s: s.arrival)[1:]
    return min(
        sequences,
        key=lambda s: (
            s.preemptions >= policy.max_preemptions,
            -s.job.lane,
            s.computed,
            -s.arrival,
        ),
        default=None,
    )


def _growth(sequence: Sequence, pool: BlockPool, expectation: Expectation) -> int:
    """Blocks that a sequence will probably still take."""
    tokens = len(sequence.ids) + expectation.left(sequence)
    return max(0, pool.blocks_for(tokens) - len(sequence.blocks))


def _group(tokens: int) -> int:
    """Expected lengths within a factor of two belong together."""
    return tokens.bit_length()
