"""Where the Python environment is: one place for scripts, Makefile and bringup doctor; and what runs without torch."""

import importlib.util
import os
import platform
import re
import subprocess
import sysconfig
from importlib.machinery import ModuleSpec
from importlib.metadata import distributions
from pathlib import Path

import pytest
from bringup.kernel.errors import RunError
from bringup.kernel.plan.phases import PHASES
from bringup.run import open as opening
from bringup.run import site_file as sites
from bringup.run.before.host import environment
from bringup.run.open import refuse_without_torch
from bringup.run.site import AtSite
from loops import for_each
from programs import ROOT, program, ran

SCRIPT = ROOT / "infrastructure-validation/scripts/venv.sh"
HERE = platform.machine()
OTHER = "aarch64" if HERE == "x86_64" else "x86_64"
SITE = "{schema_version: 1, name: lab, container: {runtime: pyxis, image: a.sqsh}}"


def venv(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("BRINGUP_", "PYTHON"))}
    return ran(["bash", str(SCRIPT), *arguments], env=inherited | environment, cwd=ROOT)


def made(folder: Path, architecture: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "architecture").write_text(f"{architecture}\n")
    return str(folder)


def test_the_environment_is_the_users_or_the_sites_or_that_of_the_checkout(tmp_path):
    assert venv().stdout == ".venv\n"
    site = tmp_path / "lab.yaml"
    for line in (
        "venv: /shared/some where",
        'venv:   "/shared/some where"  # of all nodes',
        "venv: '/shared/some where'",
    ):
        site.write_text(f"schema_version: 1\nname: lab\n{line}\n")
        assert sites.load(site).venv == "/shared/some where"
        assert venv(BRINGUP_SITE=str(site)).stdout == "/shared/some where\n", line
    assert venv(BRINGUP_SITE=str(site), BRINGUP_VENV="/own").stdout == "/own\n"
    assert venv(BRINGUP_SITE="example").stdout == f"{sites.load(sites.find('example')).venv}\n"
    assert venv(BRINGUP_SITE="/no/such.yaml").stdout == ".venv\n"  # whoever reads the file says that it is not there


def test_each_architecture_has_an_environment_of_its_own(tmp_path):
    first = made(tmp_path / "a", HERE)
    assert venv(BRINGUP_VENV=first).stdout == f"{first}\n"
    foreign = made(tmp_path / "b", OTHER)
    assert venv(BRINGUP_VENV=foreign).stdout == f"{foreign}-{HERE}\n"
    made(tmp_path / f"a-{OTHER}", OTHER)  # what a login host of the other kind handed on
    assert venv(BRINGUP_VENV=f"{first}-{OTHER}").stdout == f"{first}\n"
    made(tmp_path / f"b-{HERE}", HERE)
    assert venv(BRINGUP_VENV=f"{foreign}-{HERE}").stdout == f"{foreign}-{HERE}\n"


def test_a_python_that_is_new_enough_is_found_and_none_gets_one_line_of_advice(tmp_path):
    for name, code in (("python3", 1), ("python3.11", 1), ("python3.12", 0), ("python3.13", 0)):
        program(tmp_path / name, f"exit {code}")
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert venv("--python", PATH=path).stdout == "python3.12\n"
    for name in ("python3.12", "python3.13", "python3.14", "python3.10"):
        asked = '*"(3, 10)"*' if name == "python3.10" else "none"
        program(tmp_path / name, f"case $2 in {asked}) ;; *) exit 1 ;; esac")
    assert venv("--python", PATH=path).stdout == "python3.10\n"  # enough without torch
    refused = venv("--python", PATH=path, PYTHON=str(tmp_path / "python3"))
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "python3 is not one; without root, beside this folder: conda create" in refused.stderr


@for_each(("a b", 0), ("it's", 0), ("tést", 1), ('a"b', 1), ("$HOME", 1), ("a`b", 1), ("a\\b", 1))
def test_a_path_that_breaks_what_pip_writes_is_refused_in_one_line(tmp_path, name, code):
    (tmp_path / name).mkdir(exist_ok=True)
    done = ran(["bash", str(SCRIPT), "--python"], cwd=tmp_path / name, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert (done.returncode, done.stderr.count("\n")) == (code, code)
    assert ("move it" in done.stderr) is bool(code)


def test_a_caller_that_asks_for_posix_gets_a_cluster_all_the_same():
    """Bash then refused the name of a function, and the command ended with 2."""
    command = ROOT / "infrastructure-validation/local-cluster/cluster"
    done = ran([str(command), "help"], env={**os.environ, "POSIXLY_CORRECT": "1"})
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_asks_the_script(monkeypatch):
    monkeypatch.setenv("BRINGUP_VENV", "/shared/venv")
    assert environment() == Path("/shared/venv")
    monkeypatch.delenv("BRINGUP_VENV")
    monkeypatch.delenv("BRINGUP_SITE", raising=False)
    assert environment().parent == ROOT


def without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_spec(wanted: str, package: str | None = None) -> ModuleSpec | None:
        return None if wanted == name else find(wanted, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_without_torch_a_phase_that_needs_it_is_refused_in_one_line_before_it_is_opened(monkeypatch):
    without("torch", monkeypatch)
    monkeypatch.setattr(opening, "_DRIVER", Path("/nothing"))
    for stem, phase in PHASES.items():
        if stem in ("discovery", "smoke", "nccl_pairwise"):
            refuse_without_torch(phase, None)
        else:
            with pytest.raises(RunError, match=r"torch is not installed in .+: make venv$"):
                refuse_without_torch(phase, None)
        refuse_without_torch(phase, AtSite(sites.parse(SITE, "lab"), Path("lab.yaml")))  # the image has it
    monkeypatch.setenv("BRINGUP_PAIR_ENGINE", "collectives")
    assert opening.lacks_torch(PHASES["nccl_pairwise"], None), "pairs over TCP need none, NCCL does"
    monkeypatch.delenv("BRINGUP_PAIR_ENGINE")
    monkeypatch.setattr(opening, "_DRIVER", Path("/proc/version"))
    assert opening.lacks_torch(PHASES["nccl_pairwise"], None)


def test_another_build_of_torch_replaces_the_one_that_is_there(tmp_path):
    for name in ("installed-light", "installed"):
        (tmp_path / name).touch()

    def steps(index: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("BRINGUP_", "MAKE"))}
        given = {"BRINGUP_VENV": str(tmp_path), "TORCH_INDEX": index}
        make = ["make", "--dry-run", "--old-file", f"{tmp_path}/installed-light", "venv"]
        return ran(make, env=inherited | given, cwd=ROOT, check=True).stdout

    assert "pip install" not in steps("")
    assert "--no-deps --force-reinstall --index-url 'https://cu126' torch" in steps("https://cu126")
    (tmp_path / "torch-index").write_text("https://cu126\n")
    assert "pip install" not in steps("https://cu126") and "'https://cu132' torch" in steps("https://cu132")


NOT_INSTALLED_BY_US = {"bringup", "pip", "wheel", "setuptools"}  # the project itself, and what `python -m venv` brings


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_installed_package_has_its_version_in_the_constraints():
    pinned = dict(
        (normal(line.split("==")[0]), line.split("==")[1])
        for line in (ROOT / "training/constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert len(pinned) > 80
    wrong = {
        name: f"installed {package.version}, pinned {pinned.get(name, 'nowhere')}"
        for package in distributions(path=[sysconfig.get_path("purelib")])  # not what setuptools carries inside
        if (name := normal(package.metadata["Name"])) not in NOT_INSTALLED_BY_US
        and package.version.partition("+")[0] != pinned.get(name)
    }
    assert wrong == {}
