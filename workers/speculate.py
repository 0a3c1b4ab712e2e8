"""Guesses that cost nothing in exactness: the next tokens, looked up in what was said before.

Prompt lookup decoding (Saxena, 2023): where the last few tokens occurred earlier, what followed them
is a draft. The same step that computes the next token verifies it: a draft counts only if it is the
very token that is drawn at its position, so the answer is the same with and without.
"""

from collections.abc import Sequence
from math import log

NGRAM = 3  # shorter matches are right too seldom to pay
LONGEST = 8  # tokens guessed at once
_HOPE = 0.8  # share of right drafts that a sequence is trusted with at first, and after a rest
_REST = 64  # tokens without drafts after they stopped paying


def least_right(cost: float, sequences: int) -> float:
    """The chance of being right from which on a draft pays.

    `cost` is what one more token adds to a step of one, as a share of that step; where many decode
    together a step is longer, a right draft saves a smaller part of it, and fewer drafts pay.
    """
    return sequences * cost / (1 + (sequences - 1) * cost)


class PromptLookup:
    """The n-grams of one sequence, and how well its drafts did."""

    __slots__ = ("_index", "_indexed", "_resting", "_right")

    def __init__(self) -> None:
        self._index: dict[tuple[int, ...], int] = {}  # n-gram: where it was followed last
        self._indexed = 0
        self._right = _HOPE  # chance that a draft is right, if those before it were
        self._resting = 0

    def propose(self, ids: Sequence[int], most: int, least: float) -> list[int]:
        """Up to `most` tokens that may follow `ids`, each right with a chance of `least` or more."""
        end = len(ids)
        for i in range(self._indexed, end - NGRAM):
            self._index[tuple(ids[i : i + NGRAM])] = i + NGRAM
        self._indexed = max(self._indexed, end - NGRAM)
        if self._resting:
            self._resting -= 1
            return []
        at = self._index.get(tuple(ids[end - NGRAM :]))
        if at is None:
            return []
        size = self._pays(least)
        if not size:
            self._right, self._resting = _HOPE, _REST
        return list(ids[at : at + min(most, size)])

    def learn(self, drafted: int, accepted: int) -> None:
        """Remember how many of the drafts were right."""
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._right += (right - self._right) / 8  # about the last eight guesses

    def _pays(self, least: float) -> int:
        """How many drafts in a row are all right often enough."""
        if self._right < least:
            return 0
        if self._right >= 1.0 or least <= 0.0:
            return LONGEST
        return min(LONGEST, int(log(least) / log(self._right)))
