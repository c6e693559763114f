"""The phases with the system's own Python, which is what `make venv` takes on a fresh machine: patch releases of one
Python differ in what they write (3.11.2 pickles the member of an Enum in another way than 3.11.7)."""

import subprocess
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel.records import Outcome
from harness import CHECKOUT, Cluster
from playbook import playbook

pytestmark = pytest.mark.cluster
SYSTEM = Path("/usr/bin/python3")
OWN = CHECKOUT / ".venv"
VERSION = "import sys; print(sys.version.split()[0])"
PHASES = ("nccl_scaling", "run_1gpu", "run_fsdp_1node")  # collectives, and both forms of a checkpoint


def answer_of(python: Path, program: str) -> str:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def environment(cluster: Cluster) -> Path:
    """Packages of .venv under the system's interpreter."""
    if not SYSTEM.exists():
        pytest.skip(f"{SYSTEM} is missing")
    system, own = answer_of(SYSTEM, VERSION), answer_of(OWN / "bin/python", VERSION)
    if system == own:
        pytest.skip(f".venv has the Python {own} of the system: all tests run with it")
    if system.split(".")[:2] != own.split(".")[:2]:
        pytest.skip(f"the packages of .venv are built for Python {own}, and {SYSTEM} is {system}")
    made = cluster.shared / "environment"
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", made], check=True)
    packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
    link = Path(answer_of(made / "bin/python", packages)) / "packages.pth"
    folder = answer_of(OWN / "bin/python", packages)
    link.write_text(f"import site; site.addsitedir({folder!r})\n")  # its .pth files count, too
    launcher = made / "bin/torchrun"
    launcher.write_text((OWN / "bin/torchrun").read_text().replace(str(OWN), str(made)))
    launcher.chmod(0o755)
    return made


@pytest.mark.timeout(620)
def test_phases_with_torch_pass_with_the_systems_python(cluster: Cluster, environment: Path):
    with playbook(cluster) as book:
        done = book.run(*PHASES, "--nodelist", "n0", env={"BRINGUP_VENV": str(environment)}, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        for phase in PHASES:
            judged = judge.judge_folder(book.folder(phase))
            assert {each.outcome for each in judged.verdicts.verdicts} == {Outcome.PASS}
