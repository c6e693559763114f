"""Each mistake of mutants.yaml that the names of the CUDA build show is noticed; of the others it is known by what."""

from __future__ import annotations

import ast
import os
import sys

import cuda_mutants
import pytest
from cuda_mutants import RUNS, STATIC, Mutant, Run, table, unnoticed_by_names, unnoticed_by_run
from loops import for_each
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


COMPILES = Run(0, (sys.executable, "-c", "compile(open('training/src/recipe/meter.py').read(), 'meter.py', 'exec')"))
METER = "training/src/recipe/meter.py"


@pytest.fixture
def without_a_warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_mutants, "with_gpus", lambda gpus: (sys.executable, dict(os.environ)))


@pytest.mark.usefixtures("without_a_warm_python")
@pytest.mark.parametrize(
    ("old", "new", "says", "miss"),
    [
        ("def forget_peaks() -> None:", "def forget_peaks( -> None:", "SyntaxError", None),
        ("def forget_peaks() -> None:", "def forget_peaks( -> None:", "NameError", "x: fails without 'NameError'"),
        ("def forget_peaks() -> None:", "def keep_peaks() -> None:", "SyntaxError", "x: passes"),
    ],
)
def test_a_run_has_to_fail_and_to_say_why(old: str, new: str, says: str, miss: str | None) -> None:
    answer = unnoticed_by_run(Mutant("x", METER, old, new, "run compile", says), COMPILES)
    assert (answer is None) == (miss is None)
    assert (answer or "").startswith(miss or "")
    assert unnoticed_by_run(None, COMPILES) is None  # the mistake was taken back


@pytest.mark.usefixtures("without_a_warm_python")
def test_a_run_that_fails_without_a_mistake_or_leaves_less_than_it_has_to_shows_nothing() -> None:
    assert "fails without a mistake" in str(unnoticed_by_run(None, Run(0, (sys.executable, "-c", "exit(3)"))))
    nothing = Run(0, (sys.executable, "-c", "print('stopped')"), leaves="metrics.json")
    assert "fails without a mistake:\nstopped" in str(unnoticed_by_run(None, nothing))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_devices_notices_its_mistakes(name: str) -> None:
    assert [miss for miss in cuda_mutants.tried(name) if miss] == []


def test_a_mistake_whose_code_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected once, observed 0 times"):
        Mutant("x", "training/src/recipe/meter.py", "torch.cuda.gone()", "").text()


def test_the_command_tells_what_it_did_not_notice(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    right = Mutant(
        "right",
        "training/src/recipe/meter.py",
        "reset_peak_memory_stats",
        "reset_peak",
        STATIC,
        "no torch.cuda.reset_peak",
    )
    missed = Mutant("missed", "training/src/recipe/meter.py", "def forget_peaks", "def keep_peaks", STATIC, "peaks")
    monkeypatch.setattr(cuda_mutants, "table", lambda _: [right])
    assert cuda_mutants.main([]) == 0
    monkeypatch.setattr(cuda_mutants, "table", lambda _: [right, missed])
    assert cuda_mutants.main([]) == 1
    assert "missed: nothing wrong\n2 tried, 1 not noticed" in capsys.readouterr().out
