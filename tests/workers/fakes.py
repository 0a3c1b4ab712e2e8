"""A model of a few lines over a byte vocabulary, so that the engine is tested by the thousand.

Its "keys and values" are a digest of all tokens before, kept in blocks as a real model's are: a
token drawn over a wrong, stale or missing block is another token, and the test sees it.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from workers.job import Emission, Failure, Job, TokenLogprob
from workers.planner import Work
from workers.runner import Draws
from workers.sequence import Sequence as EngineSequence

EOS = 256
ALPHABET = "ab é世".encode() + b"ab"


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def ms(self) -> int:
        return self.now


def fold(state: int, token: int) -> int:
    return crc32(token.to_bytes(4, "little"), state) or 1


def next_token(state: int, last: int, seed: int, position: int) -> int:
    """Mostly a function of the last token, so that text repeats and drafts are often right."""
    mixed = crc32(f"{state} {seed} {position}".encode())
    if mixed % 37 == 0:
        return EOS
    return ALPHABET[(last if mixed % 4 else mixed) % len(ALPHABET)]


@dataclass
class HashRunner:
    """Implements `workers.runner.Runner` without tensors."""

    blocks: int
    block_size: int
    context: int = 10_000
    vocab_size: int = 257
    revision: str = "fake"
    device_type: str = "cpu-fake"
    eos_ids: frozenset[int] = frozenset({EOS})
    draft_cost: float = 0.05
    swaps: bool = False
    fault: Exception | None = None  # raised by the next run
    nan: str | None = None  # request whose rows are not finite
    rows: list[int] = field(default_factory=list)  # sequences of each step
    tokens: list[int] = field(default_factory=list)  # tokens of each step
    swapped: int = 0

    def __post_init__(self) -> None:
        self.kv = [0] * (self.blocks * self.block_size)

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if token_id == EOS else bytes([token_id])

    def run(self, work: Sequence[Work]) -> Draws:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.rows.append(len(work))
        self.tokens.append(sum(each.count for each in work))
        for each in work:
            self._write(each)
        draws = Draws([], [])
        for each in work:
            self._draw(each, draws)
        return draws

    def swap_out(self, blocks: Sequence[int], tokens: int) -> object | None:
        if not self.swaps:
            return None
        assert len(blocks) == -(-tokens // self.block_size)
        self.swapped += 1
        return [self.kv[self._slot(blocks, i)] for i in range(tokens)]

    def swap_in(self, swapped: object, blocks: Sequence[int]) -> None:
        assert isinstance(swapped, list)
        assert len(blocks) == -(-len(swapped) // self.block_size)
        self.swapped -= 1
        for i, state in enumerate(swapped):
            self.kv[self._slot(blocks, i)] = state

    def drop(self, swapped: object) -> None:
        self.swapped -= 1

    def _slot(self, blocks: Sequence[int], position: int) -> int:
        return blocks[position // self.block_size] * self.block_size + position % self.block_size

    def _write(self, each: Work) -> None:
        sequence = each.sequence
        ids = [*sequence.ids, *sequence.drafts]
        for i in range(sequence.computed, sequence.computed + each.count):
            before = self.kv[self._slot(sequence.blocks, i - 1)] if i else 0
            self.kv[self._slot(sequence.blocks, i)] = fold(before, ids[i])

    def _draw(self, each: Work, draws: Draws) -> None:
        sequence, sampling = each.sequence, each.sequence.job.sampling
        ids = [*sequence.ids, *sequence.drafts]
        end = sequence.computed + each.count
        for length in range(end - each.draws + 1, end + 1):
            context = [self.kv[self._slot(sequence.blocks, i)] for i in range(length)]
            state = crc32(array("I", context).tobytes())  # attention: over all that is there
            k = length - sequence.prompt
            seed = sampling.seed * 8 + sequence.choice if sampling.temperature else 0
            token = next_token(state, ids[length - 1], seed, k)
            if token == EOS and k < sampling.min_tokens:
                token = ALPHABET[0]
            if sampling.logprobs:
                draws.logprobs[len(draws.ids)] = TokenLogprob(id=token, logprob=-state / 2**32)
            draws.ids.append(token)
            draws.finite.append(sequence.job.request_id != self.nan)


def reference(job: Job, choice: int = 0) -> list[int]:
    """What the model says, computed one token after another without any engine."""
    runner = HashRunner(blocks=1, block_size=len(job.prompt_ids) + job.max_tokens + 1)
    sequence = EngineSequence(job, choice, 0, 0, runner.revision)
    sequence.blocks = [0]
    while sequence.finish is None:
        draws = runner.run([Work(sequence, sequence.uncomputed, 1)])
        token = draws.ids[0]
        sequence.computed = len(sequence.ids)
        sequence.append(token, runner.token_bytes(token), eos=token == EOS)
    return sequence.ids[sequence.prompt :]


@dataclass
class Said:
    """Everything that an engine said of one choice."""

    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    cached_tokens: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def collect(
    events: Sequence[Emission | Failure], said: dict[tuple[str, int], Said]
) -> list[Failure]:
    """Put emissions together as a reader of the log does; returns the failures."""
    failures = []
    for event in events:
        if isinstance(event, Failure):
            failures.append(event)
            continue
        each = said.setdefault((event.request_id, event.choice), Said())
        assert each.finish is None, "said something after the end"
        assert event.k == len(each.ids), "a hole or a repeat"
        assert len(event.ids) == len(event.pieces)
        each.ids += event.ids
        each.pieces += event.pieces
        each.logprobs += event.logprobs
        each.finish = event.finish
        each.cached_tokens += event.cached_tokens
    return failures
