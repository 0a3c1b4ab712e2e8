"""Guesses that cost nothing in exactness: the next tokens, looked up in what was said before.

Prompt lookup decoding (Saxena, 2023): where the last few tokens occurred earlier, what followed them
is a draft. The same step that computes the next token verifies it: a draft counts only if it is the
very token that is drawn at its position, so the answer is the same with and without.
"""

from collections.abc import Sequence

NGRAM = 3  # shorter matches are right too seldom to pay
LONGEST = 8  # tokens guessed at once
_PAYS = 0.25  # least part of drafts that must be right: below it the wider step costs more
_REST = 64  # tokens without drafts after they stopped paying


class PromptLookup:
    """The n-grams of one sequence, and how well its drafts did."""

    __slots__ = ("_index", "_indexed", "_rate", "_resting")

    def __init__(self) -> None:
        self._index: dict[tuple[int, ...], int] = {}  # n-gram: where it was followed last
        self._indexed = 0
        self._rate = 0.5  # of drafts that were right, lately
        self._resting = 0

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow `ids`."""
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
        size = min(most, max(1, round(LONGEST * self._rate)))
        return list(ids[at : at + size])

    def learn(self, drafted: int, accepted: int) -> None:
        """Draft more where drafts are right, and rest where they are not."""
        self._rate += (accepted / drafted - self._rate) / 4
        if self._rate < _PAYS:
            self._rate, self._resting = 0.5, _REST
