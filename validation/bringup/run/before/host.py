"""What this host says without Slurm: limits of the shell, the Python environment, the folder of the checkout, tools."""

import grp
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.facts import facts as probe_facts
from bringup.kernel.results import REPOSITORY
from bringup.run import programs


class Tool(NamedTuple):
    program: str
    brings: str
    gates: str  # the beginning of the names of gates that need it
    instead: str = ""  # what is used without it


TOOLS = (
    Tool("dcgmi", "DCGM", "sweep.dcgm."),
    Tool("ib_write_bw", "perftest", "fabric."),
    Tool("fio", "fio", "", "plain reads and writes"),
    Tool("all_reduce_perf", "nccl-tests", "", "torch's own collectives"),
)
UNLIMITED = resource.RLIM_INFINITY
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(?:'([\d.]+)'|None)", re.MULTILINE)
_VERSION = re.compile(r"^__version__ = '(\S+)'", re.MULTILINE)
_EXPORTS = Path("/etc/exports")
_ANSWER_S = 60
_MAY_READ_THE_JOURNAL = {"systemd-journal", "adm", "wheel"}  # journalctl(1)


class Torch(NamedTuple):
    version: str  # 2.13.0+cu130
    cuda: str | None  # 13.0; None: a build for CPUs


@dataclass(frozen=True)
class Folder:
    """The checkout. None: not known, and `why` says so."""

    path: Path
    kind: str | None  # of the filesystem: nfs4, lustre, ext4
    is_exported: bool  # by this host itself, as /etc/exports says
    writes: str  # "works", or why not
    space_gib: float | None
    of_space: str  # whose limit that is: the filesystem's, or a quota's; or why it is not known


@dataclass(frozen=True)
class Host:
    arch: str
    python: str  # 3.11.7
    venv: Path  # the environment that scripts use
    interpreter: Path | None  # of that environment, links followed; None: there is none
    torch: Torch | None
    nofile: tuple[int, int]  # soft, hard
    memlock: tuple[int, int]
    folder: Folder
    tools: Sequence[str]  # programs of TOOLS, and apptainer, that are on the PATH
    kernel_log_is_closed: bool
    has_pyxis: bool | None  # whether srun knows --container-image; None: srun gives no answer


def read() -> Host:
    venv, srun = environment(), programs.done(["srun", "--help"], _ANSWER_S)
    python = venv / "bin/python"
    named, asked = os.environ.get("NCCL_TESTS_BIN", ""), [*(tool.program for tool in TOOLS), "apptainer"]
    return Host(
        arch=platform.machine(),
        python=platform.python_version(),
        venv=venv,
        interpreter=python.resolve() if python.exists() else None,
        torch=torch_of(venv),
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK),
        folder=folder(REPOSITORY),
        tools=[tool for tool in asked if shutil.which(tool) or (named and (Path(named) / tool).is_file())],
        kernel_log_is_closed=_kernel_log_is_closed(),
        has_pyxis=None if srun is None or srun.returncode else "--container-image" in srun.stdout,
    )


def _kernel_log_is_closed() -> bool:
    """Whether neither the log itself nor the journal can be read by this account."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        names = {group.gr_name for group in grp.getgrall() if group.gr_gid in os.getgroups()}
        return not names & _MAY_READ_THE_JOURNAL
    return False


def environment() -> Path:
    """Return the folder of the Python environment that scripts use, as they find it."""
    script = REPOSITORY / "infrastructure-validation/scripts/venv.sh"
    answer = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return REPOSITORY / answer.stdout.strip()


def torch_of(venv: Path) -> Torch | None:
    """Read torch's own version.py: to import torch takes seconds, and a driver. None: it is not installed."""
    for file in sorted(venv.glob("lib/python3*/site-packages/torch/version.py")):
        text = file.read_text(encoding="utf-8")
        version, cuda = _VERSION.search(text), _CUDA.search(text)
        if version is not None:
            return Torch(version[1], None if cuda is None else cuda[1])
    return None


def folder(path: Path) -> Folder:
    """Ask about a folder by the probe that asks the nodes."""
    probe = REPOSITORY / "infrastructure-validation/probes/folders.py"
    done = programs.done([sys.executable, str(probe), str(path)], _ANSWER_S)
    facts = [] if done is None else probe_facts.parse(done.stdout, probe.name).observations
    seen = {fact.quantity.removeprefix("inventory.folder.results."): (fact.value, fact.why or "") for fact in facts}
    silent = None, f"{path} gave no answer"
    kind, (space, of_space) = seen.get("mount", silent)[0], seen.get("space", silent)
    return Folder(
        path=path,
        kind=str(kind).split(" ")[0] if kind else None,
        is_exported=_is_exported(path),
        writes=str(seen.get("writes", silent)[0] or silent[1]),
        space_gib=space if isinstance(space, float) else None,
        of_space=of_space,
    )


def _is_exported(path: Path) -> bool:
    try:
        text = _EXPORTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    exported = [line.split()[0].strip('"') for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    return any(path.is_relative_to(place) for place in exported if place.startswith("/"))
