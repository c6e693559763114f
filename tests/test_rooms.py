"""Walls: a room that is taken out leaves the rest as it was."""

import shutil
import sys

import pytest
from programs import ROOT, ran

PACKAGE = "validation/bringup"
REST = """
import importlib, pkgutil, sys
import bringup
from pathlib import Path
from bringup.kernel import judge
from bringup.report import collection

for module in pkgutil.walk_packages(bringup.__path__, "bringup."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
gathered = collection.gather([Path(sys.argv[1])])
print(gathered.judged[0].verdicts.outcome.name, len(gathered.judged[0].verdicts.verdicts), len(gathered.answers))
"""


@pytest.mark.parametrize("room", ["accept", "soak", "compare", "drill", "why", "preflight", "health"])
def test_without_a_room_and_its_name_in_the_list_all_others_are_imported_and_judge_as_before(tmp_path, room):
    ran(["tar", "-xJf", ROOT / "tests/golden/recordings/h100-healthy.tar.xz", "-C", tmp_path], check=True)
    recorded = next(tmp_path.glob("**/discovery/*/run.json")).parent
    without = shutil.ignore_patterns("results", "__pycache__")
    for folder in ("validation", "infrastructure-validation/scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=without)
    environment = {"PYTHONPATH": str(tmp_path / "validation")}
    before = ran([sys.executable, "-c", REST, recorded], env=environment, check=True).stdout
    shutil.rmtree(tmp_path / PACKAGE / room)
    listed = tmp_path / PACKAGE / "registry.py"
    text = listed.read_text()
    assert f'    "bringup.{room}",\n' in text
    listed.write_text(text.replace(f'    "bringup.{room}",\n', ""))
    assert ran([sys.executable, "-c", REST, recorded], env=environment, check=True).stdout == before
    shown = ran([sys.executable, "-m", "bringup", "--help"], env=environment, check=True).stdout
    assert f"\n  {room} " not in shown
    assert "\n  judge " in shown
