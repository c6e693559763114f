"""Each mistake of mutants.yaml that the names of the CUDA build show is noticed; of the others it is known by what."""

import ast

import cuda_mutants
import pytest
from cuda_mutants import RUNS, STATIC, Mutant, table, unnoticed_by_names
from loops import for_each
from tiers import in_test_all
from torch_surface import Surface

SURFACE = Surface()


@for_each("mutant", table(), ids=lambda mutant: mutant.mistake)
def test_a_mistake_is_in_code_that_is_there_and_is_noticed_by_something_or_is_out_of_reach(mutant: Mutant) -> None:
    ast.parse(mutant.text())
    assert (mutant.noticed_by is None) == (mutant.out_of_reach is not None) == (mutant.says is None)
    assert mutant.noticed_by in {None, STATIC, *(f"run {name}" for name in RUNS)}


@for_each("mutant", [each for each in table() if each.noticed_by == STATIC], ids=lambda mutant: mutant.mistake)
def test_the_names_of_the_cuda_build_show_a_mistake(mutant: Mutant) -> None:
    assert unnoticed_by_names(mutant, SURFACE) is None


@for_each("mutant", [each for each in table() if each.noticed_by != STATIC], ids=lambda mutant: mutant.mistake)
def test_what_only_a_run_shows_has_no_wrong_name(mutant: Mutant) -> None:
    assert unnoticed_by_names(mutant, SURFACE) is not None


@in_test_all
@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_devices_notices_its_mistakes(name: str) -> None:
    assert [miss for miss in cuda_mutants.tried(name) if miss] == []


def test_a_mistake_whose_code_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected once, observed 0 times"):
        Mutant("x", "training/src/recipe/meter.py", "torch.cuda.gone()", "").text()
