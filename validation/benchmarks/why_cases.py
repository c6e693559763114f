"""`bringup why` scored on jobs whose cause is known.

    python validation/benchmarks/why_cases.py FILE [CASE…] >docs/results/why.md

FILE: a line of JSON for each case, added when it ends. The page shows all of them, so that a run can be continued.

The jobs are an ordinary user's, on two nodes of a local cluster, two ranks each. So is who asks: the owner, or
another user.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cases
from bringup.drill.catalogue import Command, Shape
from bringup.drill.environment import LocalCluster
from bringup.kernel.errors import DrillError
from bringup.report import text

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
OWNER, OTHER = 65534, 1  # user numbers
BUSY = ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING")
LIMIT_S = 200
TWO_NODES = Shape(2, 2)
EACH = "each"  # node has the fault, and the first one is named


@dataclass(frozen=True)
class Case:
    name: str
    cause: str
    kinds: tuple[str, ...]  # of the first cause, any of them
    node: str = ""
    rank: int | None = None
    script: str = "srun --label --kill-on-bad-exit=1 $PY $PROGRAM $KIND"
    kind: str = ""  # what the program does
    options: tuple[str, ...] = ()
    before: tuple[Command, ...] = ()
    during: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    words: str = ""  # in the answer
    ask: tuple[str, ...] = ()
    asks: int = OWNER
    is_running: bool = False  # ask while it runs
    shape: Shape = TWO_NODES


CASES = [
    Case("raised", "a rank raises ValueError", ("python",), "n1", 2, kind="raise", words="load_batch"),
    Case(
        "raised-no-label",
        "the same, where srun labels no line",
        ("python",),
        "n1",
        2,
        kind="raise",
        script="srun --kill-on-bad-exit=1 $PY $PROGRAM $KIND",
    ),
    Case("raised-torchrun", "a rank raises under torchrun", ("python",), "n1", 2, script="$TORCHRUN"),
    Case(
        "memory",
        "a rank takes more memory than granted",
        ("slurm.out-of-memory",),
        "n1",
        2,
        kind="memory",
        options=("--mem=400M",),
    ),
    Case("time-limit", "the time limit", ("slurm.time-limit",), kind="work", options=("--time=1",)),
    Case(
        "node-down",
        "a node is powered off",
        ("slurm.node-failure",),
        "n1",
        kind="work",
        options=("--no-requeue",),
        during=(("off", "n1"),),
        undo=(("boot", "n1"),),
    ),
    Case(
        "watchdog",
        "a rank joins no collective",
        ("collective",),
        "n1",
        2,
        kind="watchdog",
        words="ALLREDUCE of 16777216",
    ),
    Case("cancelled", "its user cancels it", ("cancelled",), kind="work", during=(("sh", "scancel", "$JOB"),)),
    Case(
        "disk-full",
        "the disk of a node is full",
        ("host.no-space",),
        "n1",
        2,
        kind="disk",
        before=(("on", "n1", "mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", "/mnt"),),
        undo=(("on", "n1", "umount", "/mnt"),),
    ),
    Case(
        "import",
        "a node lacks a package",
        ("data.import",),
        "n1",
        kind="import",
        before=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "$PACKAGES"),),
        undo=(("on", "n1", "umount", "$PACKAGES"),),
    ),
    Case("segfault", "a rank crashes", ("crash",), "n1", 2, kind="segfault"),
    Case("port", "a port is in use", ("torch.port-in-use",), "n0", 1, kind="port"),
    Case("permission", "a rank may not read a file", ("host.permission",), "n1", 2, kind="permission"),
    Case("exit-code", "a rank ends with 7 and prints nothing", ("exit-code",), "n1", 2, kind="quiet"),
    Case(
        "no-program",
        "the program is not there",
        ("host.not-executable",),
        EACH,
        script="srun --label /opt/not-there/train",
    ),
    Case(
        "script", "a line of the script fails", ("host.not-executable",), script="set -e; module-of-the-site load cuda"
    ),
    Case(
        "xid",
        "the driver of a GPU logs Xid 79, and a rank fails",
        ("gpu.xid",),
        "n1",
        kind="cuda",
        options=("--exclusive",),  # else it may be another job's GPU
        script="sleep 3; srun --label --kill-on-bad-exit=1 $PY $PROGRAM $KIND",
        words="Xid 79",
        ask=("--on-nodes",),
    ),
    Case(
        "stalled",
        "it runs, and a rank waits for ever",
        ("stalled",),
        "n1",
        2,
        kind="stalled",
        is_running=True,
        words="wait_for_data",
        ask=("--on-nodes", "--stall-after", "15"),
    ),
    Case("healthy", "it runs and is healthy", ("none",), kind="work", is_running=True, ask=("--stall-after", "15")),
    Case("well", "it ended well", ("none",), kind="well"),
    Case(
        "not-readable",
        "a rank raises, and another user asks, who may not read the log",
        ("python",),
        "n1",
        2,
        kind="raise",
        options=("--export=ALL",),
        asks=OTHER,
    ),
]


@dataclass(frozen=True)
class Score:
    case: str
    score: str  # right, wrong, not seen
    kind: str
    place: str
    words: str
    not_seen: int  # lines


def perform(case: Case, cluster: LocalCluster) -> Score:
    """Raises DrillError."""
    folder = cluster.state / "shared"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    cluster.state.chmod(0o711)
    (folder / "packages").mkdir(exist_ok=True)
    (folder / "packages/tables_of_the_user.py").touch()
    places = {"$PACKAGES": str(folder / "packages"), "$JOB": ""}
    log = folder / f"{case.name}.log"
    program = HERE / ("why_torch.py" if "TORCHRUN" in case.script else "why_program.py")
    torchrun = (
        f"srun --label --ntasks-per-node=1 --ntasks=2 {sys.executable} -m torch.distributed.run --nnodes=2 "
        f"--nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=n0:29433 {program}"
    )
    script = (
        f"export PYTHONPATH={folder}/packages PROGRAM={program} KIND={case.kind} PY={sys.executable}\n"
        + case.script.replace("$TORCHRUN", torchrun)
    )
    umask = "umask 077; " if case.asks != OWNER else ""
    (folder / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
    try:
        cluster.make(_with(case.before, places))
        options = " ".join(("--parsable", "--nodes=2", "--ntasks-per-node=2", f"--output={log}", *case.options))
        job = _as(cluster, OWNER, f"{umask}cd {folder} && sbatch {options} {folder}/job.sh").strip()
        places["$JOB"] = job
        _wait(cluster, job, log, ends=False)
        if case.name == "xid":
            cluster.make((("on", "n1", "bash", "-c", f"echo '{_xid()}' >>/dev/kmsg"),))
        cluster.make(_with(case.during, places))
        if case.is_running:
            time.sleep(30)
        else:
            _wait(cluster, job, log, ends=True)
        answer = _as(
            cluster, case.asks, f"cd {CHECKOUT} && {sys.executable} -m bringup why {job} --json {' '.join(case.ask)}"
        )
    finally:
        cluster.verb("sh", "scancel", "--quiet", "--user=nobody")
        for command in _with(case.undo, places):
            cluster.make((command,))
    return _scored(case, json.loads(answer))


def _xid() -> str:
    microseconds = int(float(Path("/proc/uptime").read_text().split()[0]) * 1e6) + 1_000_000
    return f"3,900,{microseconds},-;NVRM: Xid (PCI:0000:c1:00): 79, pid=4711, name=python3, GPU has fallen off the bus."


def _with(commands: tuple[Command, ...], places: Mapping[str, str]) -> tuple[Command, ...]:
    return tuple(tuple(places.get(word, word) for word in command) for command in commands)


def _as(cluster: LocalCluster, user: int, script: str) -> str:
    """An ordinary user's command on the login host."""
    user_of = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    path = f"export PATH={Path(sys.executable).parent}:$PATH HOME=/tmp"
    done = cluster.verb("sh", *user_of, "bash", "-c", f"{path}; {script}")
    if done.returncode != 0:
        raise DrillError(f"{script}: {done.stderr[-400:]}")
    return done.stdout


def _wait(cluster: LocalCluster, job: str, log: Path, *, ends: bool) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        state = cluster.verb("sh", "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()
        begun = state not in ("PENDING", "CONFIGURING") and log.exists()
        if state not in BUSY if ends else begun:
            return
        time.sleep(0.5)
    raise DrillError(f"job {job}: not seen within {LIMIT_S} s: {'its end' if ends else 'its begin'}")


def _scored(case: Case, answer: dict) -> Score:
    cause = answer["cause"]
    is_kind = cause["kind"] in case.kinds
    numbers = [cause[kind] for kind in ("rank", "task") if cause[kind] is not None]  # they are the same here
    is_place = case.node in (EACH, cause["node"]) and (case.rank is None or numbers == [case.rank])
    is_there = case.words in json.dumps(answer)
    knows = cause["kind"] not in ("none", "exit-code")
    score = "right" if is_kind and is_place and is_there else "wrong" if knows else "not seen"
    who = next((f"{kind} {cause[kind]}" for kind in ("rank", "task") if cause[kind] is not None), "")
    place = " on ".join(part for part in (who, cause["node"]) if part)
    return Score(case.name, score, cause["kind"], place, cause["words"], len(answer["not_seen"]))


def main() -> None:
    results, names = Path(sys.argv[1]), sys.argv[2:]
    known = cases.read(results, Score)
    chosen = [case for case in CASES if case.name in names or (not names and case.name not in known)]
    cases.perform_some(chosen, results, perform)
    print(page(cases.read(results, Score)))


def _without_folder(words: str) -> str:
    return re.sub(r"/tmp/bringup-\w+-\w+/state/", "", words)


def page(scores: Mapping[str, Score]) -> str:
    performed = [(case, scores[case.name]) for case in CASES if case.name in scores]
    counts = {word: sum(score.score == word for _, score in performed) for word in ("right", "wrong", "not seen")}
    missing = [case.name for case in CASES if case.name not in scores]
    rows = [
        (
            case.name,
            case.cause,
            score.score,
            score.place,
            _without_folder(score.words)[:160],
            "other" if case.asks == OTHER else "owner",
        )
        for case, score in performed
    ]
    lines = [
        "# Jobs with known causes",
        "",
        "Made by `python validation/benchmarks/why_cases.py FILE`. Each case is a job of an ordinary user on two "
        "nodes of the",
        "local cluster, with two ranks each, which bringup did not start. An ordinary user asks `bringup why JOB`.",
        "",
        f"- Right (cause, node, and rank or task): {counts['right']} of {len(performed)}.",
        f"- Wrong: {counts['wrong']}. Not seen, and the answer says so: {counts['not seen']}.",
        *([f"- Not performed: {', '.join(missing)}."] if missing else []),
        "",
        *text.table(("case", "cause", "", "named", "first cause in the answer", "asked by"), rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
