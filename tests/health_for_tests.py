"""The health check as a site installs it, with checks that say what a test wants."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bringup.health.records import Asked, Baseline, Group
from bringup.kernel.records import Action
from programs import module_at, program, ran

SLURM = Path(__file__).resolve().parents[1] / "infrastructure-validation/slurm"
NODE = "n1"


def an_entry(gate: str, check: str, limit: int, action: Action) -> Asked:
    return Asked(gate=gate, check=check, quantity=gate, rule="equals", limit=limit, unit="count", action=action)


GPUS = an_entry("discovery.gpu.count", "gpus", 8, Action.REBOOT)
LOG = an_entry("discovery.kernel_log.xid", "driver-log", 0, Action.RESET)


def a_baseline(*asked: Asked, nodes: tuple[str, ...] = ("n0", NODE)) -> Baseline:
    group = Group(run="run", opened_at="2026-11-23T02:00:00Z", nodes=list(nodes), mounts=[], asked=list(asked))
    return Baseline(groups=[group], driver_events={})


def module(name: str) -> ModuleType:
    """A module of the health check, under a name of the test's own."""
    return module_at(SLURM / f"{name}.py", f"health_{name}")


def fact(quantity: str, value: Any, subject: str = NODE, why: str | None = None) -> str:
    about = {"probe": "p", "at": NODE, "subject": subject, "quantity": quantity}
    return json.dumps(about | {"value": value, "unit": "count", "why": why})


END = json.dumps({"probe": "p", "at": NODE, "end": 1, "run": "", "utc": "2026-11-23T02:00:00Z"})


@dataclass
class Installed:
    folder: Path
    state: Path

    def check(self, name: str, body: str, header: str = "") -> None:
        program(self.folder / "checks.d" / name, f"{header}\n{body}")

    def says(self, name: str, *facts: str) -> None:
        self.check(name, "\n".join(f"echo '{line}'" for line in (*facts, END)))

    def gpus(self, count: int | str | None) -> None:
        self.says("10-gpus", fact("discovery.gpu.count", count, why=None if count is not None else "no answer"))

    def log(self) -> str:
        path = self.state / f"{NODE}.log"
        return path.read_text() if path.exists() else ""

    def run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return ran([str(self.folder / "health-check"), *options], env={"SLURMD_NODENAME": NODE, **environment})

    def code(self, *options: str) -> int:
        return self.run("--exit-code", *options).returncode

    def ended(self, code: int, *words: str) -> str:
        """Return what it prints; it ends with this code, and says these words."""
        done = self.run("--exit-code")
        assert done.returncode == code, done.stdout
        assert [each for each in words if each not in done.stdout] == [], done.stdout
        return done.stdout

    def answers(self) -> list[dict[str, Any]]:
        return json.loads(self.run("--json").stdout)["answers"]


def _written(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return write


def _asked(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        baseline = json.loads((folder / "baseline.json").read_text())
        change(baseline)
        (folder / "baseline.json").write_text(json.dumps(baseline))

    return write


def _with_python(body: str | None) -> Callable[[Path], None]:
    """Another python3 on the PATH; None: none at all."""

    def write(folder: Path) -> None:
        tools = folder / "other tools"
        tools.mkdir()
        for name in ("dirname", "readlink", "logger"):
            (tools / name).symlink_to(f"/usr/bin/{name}")
        if body is not None:
            program(tools / "python3", body)
        check = folder / "health-check"
        check.write_text(re.sub("export PATH=[^ ]*", f'export PATH="{tools}"', check.read_text()))

    return write


CHECK = "checks.d/10-gpus"  # the one that is asked for; of the others nothing is
BREAKS: dict[str, Callable[[Path], object]] = {
    "a folder in checks.d": lambda folder: (folder / "checks.d/60-site").mkdir(),
    "a dangling link in checks.d": lambda folder: (folder / "checks.d/60-site").symlink_to("/nowhere"),
    "a FIFO in checks.d": lambda folder: os.mkfifo(folder / "checks.d/60-site"),
    "no checks.d": lambda folder: shutil.rmtree(folder / "checks.d"),
    "settings that are no object": _written("settings.json", "[]"),
    "settings of the wrong kind": _written("settings.json", '{"tools_folder": 5, "state_folder": []}'),
    "settings that end early": _written("settings.json", '{"state_fol'),
    "no settings": lambda folder: (folder / "settings.json").unlink(),
    "a baseline that is no object": _written("baseline.json", "[]"),
    "a baseline that ends early": _written("baseline.json", '{"groups": ['),
    "no baseline": lambda folder: (folder / "baseline.json").unlink(),
    "a baseline without what is asked": _asked(lambda baseline: baseline["groups"][0].pop("asked")),
    "a baseline without events of the driver": _asked(lambda baseline: baseline.pop("driver_events")),
    "an entry without its rule": _asked(lambda baseline: baseline["groups"][0]["asked"][0].pop("rule")),
    "a limit that is none": _asked(lambda baseline: baseline["groups"][0]["asked"][0].update(limit=None)),
    "a gate that is a number": _asked(lambda baseline: baseline["groups"][0]["asked"][0].update(gate=5)),
    "an entry that is a number": _asked(lambda baseline: baseline["groups"][0]["asked"].append(7)),
    "a node that is in no group": _asked(lambda baseline: baseline["groups"][0].update(nodes=["n7"])),
    "a module that is missing": lambda folder: (folder / "state.py").unlink(),
    "a module of half an upgrade": _written("checks.py", "from state import what_is_not_there\n"),
    "a module that is no Python": _written("textfile.py", "def\n"),
    "a module that ends the program": _written("textfile.py", "import sys\nsys.exit(1)\n"),
    "health.py is missing": lambda folder: (folder / "health.py").unlink(),
    "no python3": _with_python(None),
    "a python3 that ends with 1": _with_python("exit 1"),
    "a python3 that ends with 2": _with_python("exit 2"),
    "a python3 that is killed": _with_python("kill -KILL $$"),
    "probes that are missing": lambda folder: shutil.rmtree(folder / "probes"),
    "a probe that is missing": lambda folder: (folder / "probes/own_files.py").unlink(),
    "a check that raises": _written("checks.d/50-rdma", "#!/usr/bin/env python3\nraise ValueError('of ours')\n"),
    "a check whose module is missing": _written("checks.d/50-rdma", "#!/usr/bin/env python3\nimport not_there\n"),
    "a check that has not enough memory": _written("checks.d/50-rdma", "#!/usr/bin/env python3\nraise MemoryError\n"),
    "a check that is killed": _written("checks.d/50-rdma", "#!/bin/bash\nkill -KILL $$\n"),
    "a check that is no program": _written("checks.d/50-rdma", "\x7fELF, but not quite\n"),
    "the check that is asked for raises": _written(CHECK, "#!/usr/bin/env python3\nraise ValueError('of ours')\n"),
    "the check that is asked for ends with 1": _written(CHECK, "#!/bin/bash\necho sick\nexit 1\n"),
    "the check that is asked for says nothing": _written(CHECK, "#!/bin/bash\n"),
    "the check that is asked for says half a fact": _written(CHECK, '#!/bin/bash\necho \'{"probe": "p"\'\n'),
    "the check that is asked for does not finish": _written(
        CHECK, f"#!/bin/bash\necho '{fact('discovery.gpu.count', 7)}'\n"
    ),
}


def run_install(folder: Path, *options: str | Path, tools: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The documented line. tools: a folder that the PATH begins with."""
    path = os.environ["PATH"] if tools is None else f"{tools}:{os.environ['PATH']}"
    return ran([sys.executable, str(SLURM / "install"), str(folder), *map(str, options)], env={"PATH": path})


def install(folder: Path, baseline: Baseline, *options: str | Path, tools: Path | None = None) -> Installed:
    """Without the project's own checks. It is moved to a path with a space: slurm.conf carries none, a site may."""
    made = Installed(folder / "opt health", folder / "a state")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "a baseline.json"
    file.write_text(baseline.model_dump_json())
    done = run_install(folder / "opt", "--baseline", file, "--state", made.state, *options, tools=tools)
    assert done.returncode == 0, done.stderr
    (folder / "opt").rename(made.folder)
    for path in (made.folder / "checks.d").iterdir():
        path.unlink()
    return made
