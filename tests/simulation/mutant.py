"""A rule, and a way to break it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    old: str  # exactly once in the file
    new: str
    why: str  # what the rule is for
    first: int = 0  # the seed to begin with: not every one meets every fault
    test: str = ""  # that must fail in place of a seed: other rules make the fault harmless
