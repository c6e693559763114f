"""The health check as a site installs it, with checks that say what a test wants, and a Slurm that is two scripts."""

from __future__ import annotations

import importlib.util
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

from bringup.records import Action, Asked, Baseline, Group
from bringup.report import reason
from bringup.run import brake

SLURM = Path(__file__).resolve().parents[1] / "infrastructure-validation/slurm"
NODE = "n1"
GPUS = Asked(
    gate="discovery.gpu.count",
    check="gpus",
    quantity="discovery.gpu.count",
    rule="equals",
    limit=8,
    unit="count",
    action=Action.REBOOT,
)
LOG = Asked(
    gate="discovery.kernel_log.xid",
    check="log",
    quantity="discovery.kernel_log.xid",
    rule="equals",
    limit=0,
    unit="count",
    action=Action.RESET,
)


def a_baseline(*asked: Asked, nodes: tuple[str, ...] = ("n0", NODE)) -> Baseline:
    return Baseline(
        groups=[Group(run="run", opened_at="2026-11-23T02:00:00Z", nodes=list(nodes), mounts=[], asked=list(asked))],
        driver_events={},
        **reason.for_the_nodes(),
    )


def module(name: str) -> ModuleType:
    """A module of the health check, under a name of the test's own."""
    spec = importlib.util.spec_from_file_location(f"health_{name}", SLURM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("brake", brake)  # there it lies beside them
    spec.loader.exec_module(made)
    return made


def fact(quantity: str, value: Any, subject: str = NODE, why: str | None = None) -> str:
    return json.dumps(
        {
            "probe": "p",
            "at": NODE,
            "subject": subject,
            "quantity": quantity,
            "value": value,
            "unit": "count",
            "why": why,
        }
    )


END = json.dumps({"probe": "p", "at": NODE, "end": 1, "run": "", "utc": "2026-11-23T02:00:00Z"})


@dataclass
class Installed:
    folder: Path
    state: Path
    slurm: Path

    def check(self, name: str, body: str, occasions: str = "idle prolog epilog", header: str = "") -> None:
        path = self.folder / "checks.d" / name
        path.write_text(f"#!/bin/bash\n# occasions: {occasions}\n{header}\n{body}\n")
        path.chmod(0o755)

    def says(self, name: str, *facts: str) -> None:
        self.check(name, "\n".join(f"echo '{line}'" for line in (*facts, END)))

    def gpus(self, count: int | None) -> None:
        self.says("10-gpus", fact("discovery.gpu.count", count, why=None if count is not None else "no answer"))

    def node_is(self, state: str, given: str = "none", node: str = NODE, since: str = "1700000000") -> None:
        (self.slurm / "nodes" / node).write_text(f"{state}\x1f{since}\x1f{given}")

    def calls(self) -> list[str]:
        log = self.slurm / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def log(self) -> str:
        path = self.state / f"{NODE}.log"
        return path.read_text() if path.exists() else ""

    def run(self, hook: str = "health-check", *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / hook), *options],
            env={"SLURMD_NODENAME": NODE, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


SINFO = """\
for file in "$here"/nodes/*; do
  [[ " $* " != *" --nodes="* || " $* " == *" --nodes=${file##*/} "* ]] || continue
  printf '%s\\x1fmain\\x1f%s\\n' "${file##*/}" "$(<"$file")"
done
"""
SCONTROL = """\
echo "$*" >>"$here/calls"
for word in "$@"; do
  case $word in
    NodeName=*) file=$here/nodes/${word#*=} ;;
    State=*) new=${word#*=} ;;
    Reason=*) reason=${word#*=} ;;
  esac
done
IFS=$'\\x1f' read -r state since given <"$file" || :
[[ ${new-} != DRAIN || ! -e $here/rival ]] || cp "$here/rival" "$here/nodes/n0"
case ${new-} in DRAIN) state=drained ;; UNDRAIN) state=idle since=Unknown reason=none ;; esac
[ "${new-}" = UNDRAIN ] || since=$(date +%s)
printf '%s\\x1f%s\\x1f%s' "$state" "$since" "${reason-$given}" >"$here/new.$$"
mv "$here/new.$$" "$file"  # whole, also where it is killed
"""


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
    """Another python3 on the hooks' PATH; None: none at all."""

    def write(folder: Path) -> None:
        tools = folder / "other tools"
        tools.mkdir()
        for name in ("dirname", "readlink", "logger"):
            (tools / name).symlink_to(f"/usr/bin/{name}")
        if body is not None:
            (tools / "python3").write_text(f"#!/bin/bash\n{body}\n")
            (tools / "python3").chmod(0o755)
        for name in ("health-check", "prolog", "epilog"):
            hook = folder / name
            hook.write_text(re.sub("export PATH=[^ ]*", f'export PATH="{tools}"', hook.read_text()))

    return write


BREAKS: dict[str, Callable[[Path], object]] = {
    "a folder in checks.d": lambda folder: (folder / "checks.d/60-site").mkdir(),
    "a dangling link in checks.d": lambda folder: (folder / "checks.d/60-site").symlink_to("/nowhere"),
    "a FIFO in checks.d": lambda folder: os.mkfifo(folder / "checks.d/60-site"),
    "no checks.d": lambda folder: shutil.rmtree(folder / "checks.d"),
    "settings that are no object": _written("settings.json", "[]"),
    "settings of the wrong kind": _written("settings.json", '{"mode": 5, "state_folder": []}'),
    "settings that end early": _written("settings.json", '{"mode": "dra'),
    "no settings": lambda folder: (folder / "settings.json").unlink(),
    "a baseline that is no object": _written("baseline.json", "[]"),
    "a baseline that ends early": _written("baseline.json", '{"groups": ['),
    "no baseline": lambda folder: (folder / "baseline.json").unlink(),
    "a baseline without what is asked": _asked(lambda baseline: baseline["groups"][0].pop("asked")),
    "an entry without its rule": _asked(lambda baseline: baseline["groups"][0]["asked"][0].pop("rule")),
    "a limit that is none": _asked(lambda baseline: baseline["groups"][0]["asked"][0].update(limit=None)),
    "a gate that is a number": _asked(lambda baseline: baseline["groups"][0]["asked"][0].update(gate=5)),
    "an owner that is a number": _asked(lambda baseline: baseline.update(owner=5)),
    "an entry that is a number": _asked(lambda baseline: baseline["groups"][0]["asked"].append(7)),
    "a baseline without its words": _asked(lambda baseline: baseline.pop("reason")),
    "a module that is missing": lambda folder: (folder / "kept.py").unlink(),
    "a module of half an upgrade": _written("told.py", "from brake import what_is_not_there\n"),
    "a module that is no Python": _written("brake.py", "def\n"),
    "hook.py is missing": lambda folder: (folder / "hook.py").unlink(),
    "hook.sh is missing": lambda folder: (folder / "hook.sh").unlink(),
    "no python3": _with_python(None),
    "a python3 that ends with 1": _with_python("exit 1"),
    "a python3 that ends with 2": _with_python("exit 2"),
    "a python3 that is killed": _with_python("kill -KILL $$"),
}


def a_slurm(folder: Path) -> Path:
    """Two scripts that know nodes by a file each, and note what they are ordered. While there is "away": none."""
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    for program, answer in (("sinfo", SINFO), ("scontrol", SCONTROL)):
        path = folder / program
        path.write_text(f'#!/bin/bash\nhere="{folder}"\n[ ! -e "$here/away" ] || exit 1\n{answer}\n')
        path.chmod(0o755)
    return folder


def run_install(folder: Path, *options: str | Path, slurm: Path) -> subprocess.CompletedProcess[str]:
    """The documented line."""
    return subprocess.run(
        [sys.executable, str(SLURM / "install"), str(folder), *map(str, options)],
        env={"PATH": f"{slurm}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def install(folder: Path, baseline: Baseline, *options: str) -> Installed:
    """Without the project's own checks. It is moved to a path with a space: slurm.conf carries none, the hooks do."""
    made = Installed(folder / "opt health", folder / "a state", a_slurm(folder / "a slurm"))
    file = folder / "a baseline.json"
    file.write_text(baseline.model_dump_json())
    done = run_install(folder / "opt", "--baseline", file, "--state", made.state, *options, slurm=made.slurm)
    assert done.returncode == 0, done.stderr
    (folder / "opt").rename(made.folder)
    for path in (made.folder / "checks.d").iterdir():
        path.unlink()
    for node in baseline.groups[0].nodes:
        made.node_is("idle", node=node, since="Unknown")
    made.node_is("idle", since="Unknown")
    rule = made.folder / "brake.py"
    rule.write_text(rule.read_text().replace("SETTLE_S = 1.1", "SETTLE_S = 0.01"))
    return made
