"""Faults inside the ranks of a training are loaded from outside, by drills alone."""

import os
import sys
from pathlib import Path

import pytest
from bringup.drill import perform
from bringup.plan import catalogue as gates
from bringup.plan.phases import PHASES
from programs import ran

ROOT = Path(__file__).resolve().parents[2]
INJECTED = ROOT / "training/injected"
sys.path.append(str(INJECTED))

TRAINING = [drill for drill in gates.DECLARED.values() if PHASES[drill.phase].is_training]


def test_every_drill_that_asks_a_training_for_a_fault_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    asked = [drill for drill in TRAINING if "BRINGUP_DRILL" in drill.environment]
    assert len(asked) > 20
    for drill in asked:
        assert perform._injected(drill) == {"PYTHONPATH": f"{INJECTED}:/of/the/user"}


def test_other_drills_load_nothing() -> None:
    for drill in gates.DECLARED.values():
        if not PHASES[drill.phase].is_training or "BRINGUP_DRILL" not in drill.environment:
            assert perform._injected(drill) == {}


def test_every_fault_of_a_drill_is_one_that_can_be_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    import rank_faults
    from sitecustomize import OF_THE_SAMPLER

    monkeypatch.setattr(rank_faults, "WORLD", 4)
    for drill in TRAINING:
        value = drill.placed(("n0", "n1"), 2).environment.get("BRINGUP_DRILL")
        if value is not None and not value.startswith(OF_THE_SAMPLER):
            monkeypatch.setenv("BRINGUP_DRILL", value)
            assert value.startswith(rank_faults.from_environment(12, Path()).kind)


def test_what_is_changed_is_there_in_the_training_package() -> None:
    import rank_faults

    for module in rank_faults.CHANGES:
        assert (ROOT / "training/src" / f"{module.replace('.', '/')}.py").is_file(), module


LOADED = "import sys; print('rank_faults' in sys.modules, [f for f in sys.meta_path if 'Faults' in str(f)] != [])"


@pytest.mark.parametrize(("drill", "hooked"), [("", False), ("kill-rank:0@1", True)])
def test_without_the_variable_the_folder_changes_nothing(drill: str, hooked: bool) -> None:
    done = ran(
        [sys.executable, "-c", LOADED],
        check=True,
        env=os.environ | {"PYTHONPATH": str(INJECTED), "BRINGUP_DRILL": drill},
    )
    assert done.stdout == f"False {hooked}\n"
