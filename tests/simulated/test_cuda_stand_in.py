"""The stand-in for CUDA does what torch documents (cuda_checks.py says what), and is built once."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
import state as states
from cuda_stand_in import names, node
from loops import case_for_each, for_each
from programs import PROBES, ROOT, program
from tiers import in_test_all

STAND_IN = ROOT / "infrastructure-validation/local-cluster/simulated/cuda"
BUILD = STAND_IN / "cuda_stand_in/build.py"
CHECKS = Path(__file__).with_name("cuda_checks.py")

NAMES = re.findall(r"^def (\w+)\(\) -> None:$", CHECKS.read_text(), re.MULTILINE)
TOGETHER = [name for name in NAMES if name.startswith("ranks_")]

INSTALL = f"import sys; sys.path.append({str(STAND_IN)!r}); import cuda_stand_in; cuda_stand_in.install({{!r}})"


def healthy(gpus: int) -> str:
    return states.healthy("h100+cuda", "n0", gpus) + "devices=all\n"


def built(place: Path, path: str, **more: str) -> subprocess.Popen[str]:
    """A build that has begun, with these programs and a cache of its own."""
    environment = os.environ | {"PATH": path, "XDG_CACHE_HOME": str(place / "cache")} | more
    return subprocess.Popen([sys.executable, BUILD], env=environment, stdout=PIPE, stderr=PIPE, text=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], str]]:
    """run(check, ranks): what went wrong."""
    folder = tmp_path_factory.mktemp("with a space")
    library = subprocess.run([sys.executable, BUILD], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "state.conf").write_text(healthy(2))
    (folder / "sitecustomize.py").write_text(INSTALL.format(library))
    own = {"BRINGUP_SIMULATED_STATE": str(folder / "state.conf"), "PYTHONPATH": f"{folder}:{PROBES}"}
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | own
    with subprocess.Popen([sys.executable, CHECKS], env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:

        def ask(check: str, ranks: int) -> str:
            print(check, ranks, file=process.stdin, flush=True)
            answer = process.stdout.readline()
            return json.loads(answer) if answer else "the program ended"

        yield ask
        process.stdin.close()


@in_test_all
@for_each(*(name for name in NAMES if name not in (*TOGETHER, "main")))
def test_on_one_gpu(run, check):
    assert run(check, 1) == ""


@in_test_all
@for_each(*TOGETHER)
def test_with_two_ranks(run, check):
    assert run(check, 2) == ""


def test_the_names_are_those_of_the_torch_that_is_pinned():
    surface = json.loads(names.SURFACE.read_text())
    version = importlib.metadata.version("torch").partition("+")[0]
    assert surface["torch"] == version, "surface.py makes surface.json anew"
    assert len(surface["names"]["torch._C"]) > 100


def test_every_device_says_what_the_cuda_build_names():
    made = names._DeviceProperties(node.Gpu(0, node.uuid.UUID(int=1), "H100", 0x1B, 2**30, (9, 0), 132))
    for name in ("name", "uuid", "total_memory", "major", "minor", "multi_processor_count"):
        assert getattr(made, name) is not None


@case_for_each(
    (None, [0, 1, 2]),
    ("1,0", [1, 0]),
    ("", []),
    ("-1", []),
    ("1,7,0", [1]),  # what no GPU has hides those behind it
    ("0,0", [0]),
    ("GPU-uuid-of-1", [1]),
)
def test_visible_devices_are_chosen_as_cuda_does(monkeypatch, tmp_path, wanted, indices):
    (tmp_path / "state.conf").write_text(healthy(3))
    monkeypatch.setattr(node, "STATE_FILE", tmp_path / "state.conf")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = node.visible_gpus()
    wanted = wanted and wanted.replace("GPU-uuid-of-1", f"GPU-{gpus[1].uuid}"[:20])
    assert [gpu.index for gpu in node.chosen(gpus, wanted)] == indices


def test_a_lost_gpu_and_a_cuda_that_does_not_start_are_not_seen(monkeypatch, tmp_path):
    monkeypatch.setattr(node, "STATE_FILE", tmp_path / "state.conf")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for change, seen in (("gpu1.lost=1", [0, 2]), ("init=error:18", []), ("cuda.init=error:803", [])):
        (tmp_path / "state.conf").write_text(states.changed(healthy(3), [change]))
        assert [gpu.index for gpu in node.visible_gpus()] == seen, change


def test_lines_that_ran_are_recorded_at_once_and_those_of_a_rank_that_ends_hard_too(tmp_path):
    script = f"{INSTALL.format('unused')}\nimport compute, os; compute.size_for(2**30); os._exit(1)"
    environment = os.environ | {"BRINGUP_LINES": str(tmp_path), "PYTHONPATH": str(PROBES)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    (file,) = tmp_path.iterdir()
    source = (PROBES / "compute.py").read_text().splitlines()
    ran = {int(line.rpartition(":")[2]) for line in file.read_text().splitlines() if "/compute.py:" in line}
    assert any("return max(STEP" in source[number - 1] for number in ran)
    assert not any("def name(" in source[number - 2] for number in ran if number > 1)
    assert "facts.py" not in file.read_text()  # it does not speak of CUDA


# --- it is built once

COMPILER = """
echo compiled >>"$COUNT"
sleep 0.5
while [ $# -gt 1 ]; do [ "$1" != -o ] || : >"$2"; shift; done
"""


@pytest.fixture
def build(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Starts a build with a compiler that counts its calls, and an empty cache."""
    program(tmp_path / "bin/g++", COMPILER, "/bin/sh")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return lambda: built(tmp_path, path, COUNT=str(tmp_path / "count"))


def test_two_who_build_at_once_compile_once(build, tmp_path):
    first, second = (each.communicate()[0] for each in [build(), build()])
    assert first == second and Path(first.strip()).is_file()
    assert build().communicate()[0] == first
    assert (tmp_path / "count").read_text() == "compiled\n"


def test_what_the_compiler_says_is_one_line_and_so_is_that_there_is_none(build, tmp_path):
    program(tmp_path / "bin/g++", "echo 'module.cpp:1: error: no such thing' >&2; exit 1")
    for begun, says in (
        (build(), "g++ cannot make the stand-in of CUDA: module.cpp:1: error: no such thing"),
        (built(tmp_path, str(tmp_path)), "not installed: g++, for the stand-in of CUDA; run 'make setup'"),
    ):
        assert (*begun.communicate(), begun.returncode) == ("", f"cluster: {says}\n", 1)
