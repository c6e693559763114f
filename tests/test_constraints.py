"""Two installations are the same: every package has a version in training/constraints.txt, also those nobody names."""

import re
from importlib.metadata import distributions
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[1] / "training/constraints.txt"
NOT_INSTALLED_BY_US = {"bringup", "pip", "wheel", "setuptools"}  # the project itself, and what `python -m venv` brings


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_installed_package_has_its_version_in_the_constraints():
    pinned = dict(
        (normal(line.split("==")[0]), line.split("==")[1])
        for line in CONSTRAINTS.read_text().splitlines()
        if not line.startswith("#")
    )
    assert len(pinned) > 80
    wrong = {
        name: f"installed {package.version}, pinned {pinned.get(name, 'nowhere')}"
        for package in distributions()
        if (name := normal(package.metadata["Name"])) not in NOT_INSTALLED_BY_US
        and package.version.partition("+")[0] != pinned.get(name)
    }
    assert wrong == {}
