"""Whether the driver of a node can run the torch that is installed: asked in discovery, before a GPU is used."""

from pathlib import Path

import pytest
import software
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.records import Outcome, SiteUsed, Verdict
from factory import a_run
from loops import for_each
from runs_for_tests import about, add_derived
from showing import shows_failing

GATE = "discovery.torch.driver"


def verdict(
    torch: str | None, cuda: str | None, driver: str | None, model: str = "NVIDIA H100", site: SiteUsed | None = None
) -> Verdict:
    """torch: the CUDA that it was built for; cuda, driver: as NVML says them."""
    parsed = Parsed()
    for quantity, subject, value in (
        ("inventory.torch", "n0", torch),
        ("discovery.gpu.cuda", "n0", cuda),
        ("discovery.gpu.driver", "n0", driver),
        ("discovery.gpu.model", "n0/GPU-a", model),
    ):
        parsed.saw(quantity, subject, value, "text", "raw/inventory.jsonl:1", "2.13.0+cu130")
    run = a_run("discovery", ("n0",)).model_copy(update={"site": site})
    return about(GATE, add_derived(parsed, run), run, "generic")["n0"]


@shows_failing(GATE)
def test_a_driver_that_is_too_old_fails_with_the_line_that_installs_another_build_and_stops_nothing() -> None:
    old = verdict("13.0", "12.2", "535.183.01")
    assert old.outcome is Outcome.FAIL
    assert "for CUDA 13.0; driver 535.183.01 has CUDA 12.2: TORCH_INDEX=https://" in old.observed
    assert "make venv (torch for CUDA 12.6)" in old.observed
    assert not judge.stops(old)
    assert "no build of torch 2.13 runs with 470.82.01" in verdict("13.0", "11.4", "470.82.01").observed
    assert "no code for NVIDIA B200" in verdict("13.0", "12.8", "570.86.15", "NVIDIA B200").observed


@for_each(
    ("torch", "cuda", "driver"),
    [
        ("12.6", "12.2", "535.183.01"),
        ("13.2", "13.0", "580.65.06"),  # a later build of the same major version
        ("13.0", "13.0", "535.183.01"),  # with cuda-compat
        ("13.0", None, "580.65.06"),
    ],
)
def test_a_driver_that_has_this_cuda_passes(torch: str, cuda: str | None, driver: str) -> None:
    assert verdict(torch, cuda, driver).outcome is Outcome.PASS


@for_each(("torch", "words"), [("CPU", "a build for CPU"), ("absent", "not installed")])
def test_a_torch_that_uses_no_gpu_passes_and_says_so(torch: str, words: str) -> None:
    quiet = verdict(torch, None, None)
    assert (quiet.outcome, quiet.observed) == (Outcome.PASS, words)


def test_a_container_brings_its_own_torch() -> None:
    site = SiteUsed(name="lab", says={"container": {"image": "/images/torch.sqsh"}})
    assert verdict("13.0", "12.2", "535.183.01", site=site).observed == "in a container"


def test_a_driver_that_says_nothing_is_not_known() -> None:
    silent = verdict("13.0", None, None)
    assert silent.outcome is Outcome.INCOMPLETE
    assert "the driver did not say which CUDA it has" in (silent.cause or "")
    assert not judge.stops(silent)


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n", ("2.13.0+cu130", "13.0")),
        ("__version__ = '2.5.1+cu118'\ncuda = '11.8'\nhip = None\n", ("2.5.1+cu118", "11.8")),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", ("2.13.0+cpu", "CPU")),
        (None, ("absent", "absent")),
    ],
)
def test_the_probe_reads_it_from_torchs_own_file(tmp_path: Path, text: str | None, build: tuple[str, str]) -> None:
    if text is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/version.py").write_text(text)
    assert software.torch_build(["", "/nowhere", str(tmp_path)]) == build
