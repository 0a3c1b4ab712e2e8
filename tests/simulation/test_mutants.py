"""The mutants themselves: every one still fits the code that it breaks. `make mutants` runs them all."""

import pytest

from tests.simulation.mutants import ROOT, catch, mutate
from tests.simulation.rules import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_fits_the_code(mutant: Mutant) -> None:
    broken = mutate((ROOT / mutant.file).read_text(), mutant)
    compile(broken, mutant.file, "exec")


@pytest.mark.timeout(900)
def test_a_broken_rule_is_noticed() -> None:
    (mutant,) = (each for each in MUTANTS if each.name == "the dead are never replaced")
    assert catch(mutant, seeds=20).seed is not None
