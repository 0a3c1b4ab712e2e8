"""Who computes how many tokens in this step. Pure.

There is one budget of tokens. Decoding sequences come first, with one token each; then prompt
chunks, so that a long prompt never stops a stream; then drafts, which only use what is left over.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from workers.sequence import Sequence


@dataclass(slots=True)
class Work:
    """One sequence's part of a step: compute its next `count` tokens, drafts included.

    `draws` is how many of the last of them draw a token: none inside a prompt, else one and one for
    each draft.
    """

    sequence: Sequence
    count: int
    draws: int


def plan(
    running: Seq[Sequence], budget: int, block_size: int, *, sharing: bool = True
) -> list[Work]:
    """Split `budget` tokens. `running` has everything admitted, oldest first.

    With `sharing` two sequences with the same next block do not both compute it: the younger one
    waits a step and finds it in the prefix cache.
    """
    work = [Work(s, 1, 1) for s in running if s.decoding][:budget]
    left = budget - len(work)
    prompts = _prompts(running)
    soon: set[bytes] = set()  # digests of the blocks that this step completes
    oldest: Work | None = None
    for sequence in prompts:
        if left <= 0:
            break
        if sharing and _comes_anyway(sequence, soon, block_size):
            continue
        # the oldest is sure of half, so that nothing starves it, and leaves half to short prompts
        count = min(sequence.uncomputed, left if oldest or len(prompts) == 1 else (left + 1) // 2)
        if sharing:
            first, end = sequence.computed // block_size, sequence.computed + count
            soon.update(sequence.digest(i, block_size) for i in range(first, end // block_size))
        work.append(Work(sequence, count, int(count == sequence.uncomputed)))
        oldest = oldest or work[-1]
        left -= count
    if oldest and left > 0:
        more = min(left, oldest.sequence.uncomputed - oldest.count)
        oldest.count += more
        oldest.draws = int(oldest.count == oldest.sequence.uncomputed)
        left -= more
    _add_drafts(work, left)
    return work


def _prompts(running: Seq[Sequence]) -> list[Sequence]:
    """Prompts in the order they are served: the oldest, then by lane and shortness.

    So a short prompt behind a long one is computed in the first step after it came.
    """
    prompts = [s for s in running if s.uncomputed > 1]
    others = sorted(prompts[1:], key=lambda s: (s.job.lane, s.uncomputed, s.arrival))
    return prompts[:1] + others


def _comes_anyway(sequence: Sequence, soon: set[bytes], block_size: int) -> bool:
    """Whether another sequence computes this one's next block in this step."""
    block, inside = divmod(sequence.computed, block_size)
    if inside or not soon or (block + 1) * block_size >= len(sequence.ids):
        return False
    return sequence.digest(block, block_size) in soon


def _add_drafts(work: list[Work], left: int) -> None:
    """Spend what is left on drafts; those that find no room are let go."""
    for each in work:
        drafts = each.sequence.drafts
        if drafts:
            size = min(len(drafts), left)
            del drafts[size:]
            each.count += size
            each.draws += size
            left -= size
