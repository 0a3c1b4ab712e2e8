"""The rules, each with a way to break it."""

from tests.simulation.mutant import Mutant as Mutant
from tests.simulation.rules_of_truth import TRUTH
from tests.simulation.rules_of_work import WORK

MUTANTS: tuple[Mutant, ...] = TRUTH + WORK
