"""Preflight scored on known culprits: nodes that are sick before the start, or fall sick under the user's command.

    python validation/benchmarks/preflight_cases.py FILE [CASE…] >docs/results/preflight.md

FILE: a line of JSON for each case, added when it ends. The page shows all of them, so that a run can be continued.

Each case is a job of a local cluster: of three nodes, by salloc, whose command (plain_program.py) needs two; or, where
its name ends in -of-5, of five, by sbatch, whose command (plain_torch.py under torchrun) needs four. The faults are
those of the drill catalogue, made by its commands. An innocent is a command that fails by itself: no node may be
exchanged.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import cases
from bringup.drill.catalogue import DRILLS, Command, Shape
from bringup.drill.environment import CLUSTER, LocalCluster
from bringup.kernel import results as runs
from bringup.kernel.errors import DrillError
from bringup.kernel.records import read_record, time_of
from bringup.preflight.records import Preflight
from bringup.report import text

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PLAIN, SIMULATED = Shape(3, 2), Shape(3, 2, simulate="h100")
COMPUTING = Shape(3, 2, simulate="h100+cuda")
# with the variables of a task: as a user's script has it
TORCHRUN = [
    "bash",
    "-c",
    'exec "$0" -m torch.distributed.run --nnodes "$SLURM_NNODES" --nproc-per-node 1 --node-rank "$SLURM_PROCID" '
    '--master-addr "$MASTER_ADDR" --master-port 29411 "$@"',
    sys.executable,
    str(HERE / "plain_torch.py"),
]
STEPS, FAULT_AT_STEP = 40, 7
STALL_S = 25
START_LIMIT_S, CASE_LIMIT_S = 500, 900  # this machine has other work
# torch starts six times on the two cores of this machine, so that a sweep takes 50 s: only some cases have it
QUICK, SWEEP = ("discovery", "nccl_pairwise"), ("discovery", "node_sweep")
SICK = "n1"  # in the commands of the catalogue

When = Literal["before", "during", "innocent"]


@dataclass(frozen=True)
class Case:
    name: str
    fault: str
    when: When
    make: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    shape: Shape = PLAIN
    kills: bool = False  # the fault ends the program there, as a GPU's driver would
    everywhere: bool = False  # the same on all nodes
    options: tuple[str, ...] = ()  # of the program
    limits: tuple[str, ...] = ()  # of its srun
    environment: dict[str, str] = field(default_factory=dict)
    at_step: int = FAULT_AT_STEP
    phases: tuple[str, ...] = QUICK


@dataclass(frozen=True)
class Score:
    case: str
    name: str  # of the preflight
    is_right: bool
    accused: str
    exchanged: str
    code: int
    lost: int | None  # steps that were done twice
    check_s: float
    words: str
    # seconds from the fault: until the command was ended or had ended, until the checks said who, until a step was done
    # that had not been done before. null: not of this case, or it did not come
    noticed_s: float | None = None
    named_s: float | None = None
    goes_on_s: float | None = None
    load: float | None = None  # of the machine, in the last minute of the case


DRILL = {drill.id: drill for drill in DRILLS}


def _of(drill: str, fault: str, *, during: bool = True, before: bool = True, kills: bool = True, **more) -> list[Case]:
    declared = DRILL[drill]
    made = {"make": declared.inject, "undo": declared.undo, **more}
    cases = [Case(f"{drill}-before", fault, "before", **made)] if before else []
    return cases + ([Case(f"{drill}-during", fault, "during", kills=kills, **made)] if during else [])


TMP_FULL = DRILL["tmp-full"]
OOM_LINE = "3,9,62000000,-;Memory cgroup out of memory: Killed process 4711 (python3) total-vm:8400000kB"
CASES = [
    *_of("gpu-missing", "a GPU is gone, and its device file"),
    *_of("gpu-lost", "a GPU fell off the bus, its device file is there", shape=SIMULATED),
    *_of("xid-79", "the driver logged Xid 79"),
    Case("node-off-before", "the node is off", "before", (("off", SICK),), (("boot", SICK),)),
    Case("node-off-during", "the node is off", "during", (("off", SICK),), (("boot", SICK),)),
    *_of("cpu-throttled", "the node has 3 % of a core", during=False, phases=SWEEP),
    *_of("cpu-throttled", "the node has 3 % of a core", before=False, kills=False),
    *_of("gpu-ecc", "a GPU counted uncorrected memory errors", shape=SIMULATED),
    *_of("rdma-port-down", "an RDMA port is down", shape=SIMULATED),
    *_of("shm-small", "/dev/shm holds 64 MiB"),
    *_of("tmp-full", "/tmp is full", kills=False),
    *_of("gpu-multiplies-wrongly", "a GPU gives one wrong element in each product", shape=COMPUTING, phases=SWEEP),
    *_of("path-not-shared", "the results folder is not shared"),
    *_of("slow-link", "the node sends at 100 Mbit/s", kills=False),
    Case(
        "network-cut-during",
        "the node runs, and its network is away",
        "during",
        (("on", SICK, "ip", "link", "set", "eth0", "down"),),
        (("on", SICK, "ip", "link", "set", "eth0", "up"),),
    ),
    Case("script-fails", "the program ends with 1", "innocent", options=("--exit",)),
    Case("program-hangs", "the program hangs in rank 0", "innocent", options=("--hang",)),
    Case("rank-killed", "a user killed a rank", "innocent", kills=True),
    Case(
        "out-of-memory",
        "the program takes more memory than its step has",
        "innocent",
        options=("--memory",),
        limits=("--mem=600M",),
        at_step=1,
        make=(("on", SICK, "bash", "-c", f"echo '{OOM_LINE}' >>/dev/kmsg"),),
    ),
    Case("disk-full", "/tmp is full on all nodes", "innocent", TMP_FULL.inject, TMP_FULL.undo, everywhere=True),
]
CASES += [
    dataclasses.replace(case, name=f"{case.name}-of-5", shape=dataclasses.replace(case.shape, nodes=5))
    for case in CASES
    if case.when == "during" or case.name in ("script-fails", "rank-killed")
]


def aimed(commands: Sequence[Command], node: str) -> tuple[Command, ...]:
    return tuple(tuple(node if word == SICK else word for word in command) for command in commands)


def perform(case: Case, cluster: LocalCluster) -> Score:
    """Raises DrillError."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-", dir=_shared(cluster)))
    job = _started(case, cluster, folder)
    target, made, fault_at = SICK, (), None
    try:
        _wait(lambda: (folder / "there").exists(), job, "the job runs")
        if case.when == "before":
            made = case.make
            cluster.make(made)
        (folder / "go").touch()
        if case.when != "before" and (case.make or case.kills):
            _wait(lambda: [step for step, _ in _steps(folder)][-1:] >= [case.at_step], job, f"step {case.at_step}")
            target = (folder / "nodes").read_text().strip().split(",")[1]
            nodes = cluster.shape.names if case.everywhere else [target]
            made = tuple(command for node in nodes for command in aimed(case.make, node))
            fault_at = time.time()
            cluster.make(made)
            if case.kills:
                cluster.make((("on", target, "bash", "-c", 'kill -9 "$(</tmp/plain-program.pid)"'),))
        output, _ = job.communicate(timeout=CASE_LIMIT_S)
        log = folder / "job.log"
        output += log.read_text(errors="replace") if log.exists() else ""
    except subprocess.TimeoutExpired as error:
        raise DrillError(f"{case.name}: no end within {CASE_LIMIT_S} s") from error
    finally:
        if job.poll() is None:
            job.kill()
            job.communicate()
        cluster.verb("sh", "scancel", "--quiet", "--me")
        _undo(case, cluster, target if made else SICK)
    print(output, file=sys.stderr)
    return _scored(case, target, folder, job.returncode, fault_at)


def _started(case: Case, cluster: LocalCluster, folder: Path) -> subprocess.Popen[str]:
    nodes = case.shape.nodes
    program = ["srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *case.limits]
    program += TORCHRUN if nodes > 3 else [sys.executable, str(HERE / "plain_program.py")]
    program += [str(folder), str(STEPS), *case.options]
    stall_s = STALL_S if nodes == 3 else 2 * STALL_S  # torch starts twice on each node
    options = f"--nodes {nodes - 1} --stall-after {stall_s} --phases {' '.join(case.phases)}"
    script = (
        'touch "$0/there"; until [ -e "$0/go" ]; do sleep 0.1; done; '
        f'"$1" -m bringup preflight {options} -- bash -c '
        """'echo $BRINGUP_NODES >"$0/nodes"; exec "$@"' "$0" "${@:2}\""""
    )
    job = [f"--nodes={nodes}", "--exclusive", "--mem=0", "--no-kill"]
    started = ["bash", "-c", script, str(folder), sys.executable, *program]
    if nodes == 3:
        command = [str(CLUSTER), "sh", "salloc", "--quiet", *job, *started]
    else:
        # sbatch --wait looks again after 2, 8, 32 and 128 s
        wrapped = f"--wrap={shlex.join(started)}; echo $? >{folder}/code"
        submitted = shlex.join(["sbatch", *job, "--no-requeue", f"--output={folder}/job.log", wrapped])
        waited = f"{submitted}; until [ -s {folder}/code ]; do sleep 0.5; done; exit $(<{folder}/code)"
        command = [str(CLUSTER), "sh", "bash", "-c", waited]
    environment = dict(cluster_environment(cluster)) | case.environment | {"BRINGUP_RUN_NAME": folder.name}
    return subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def cluster_environment(cluster: LocalCluster) -> dict[str, str]:
    return {**os.environ, "BRINGUP_CLUSTER": str(cluster.state)}


def _shared(cluster: LocalCluster) -> Path:
    folder = cluster.state / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def _wait(condition: Callable[[], bool], job: subprocess.Popen[str], what: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if job.poll() is not None:
            output = job.communicate()[0]
            raise DrillError(f"not seen: {what}; the job ended with {job.returncode}: {output[-400:]}")
        if time.monotonic() > deadline:
            raise DrillError(f"not seen within {START_LIMIT_S} s: {what}")
        time.sleep(0.05)


def _steps(folder: Path) -> list[tuple[int, float]]:
    """(step, when it was done, seconds since 1970), in the order of time."""
    steps = folder / "steps"
    lines = [line.split() for line in steps.read_text().splitlines()] if steps.exists() else []
    return [(int(step), float(at)) for step, at in lines]


def _undo(case: Case, cluster: LocalCluster, target: str) -> None:
    nodes = cluster.shape.names if case.everywhere else [target]
    for node in nodes:
        for command in aimed(case.undo, node):
            try:
                cluster.make((command,))
            except DrillError:
                cluster.is_spoiled = True


def _scored(case: Case, target: str, folder: Path, code: int, fault_at: float | None) -> Score:
    place = runs.REPOSITORY / runs.PREFLIGHTS / folder.name
    record = read_record(place / runs.PREFLIGHT, Preflight)
    before = [entry.node for entry in record.before.accused] if record.before is not None else []
    exchanged = [node for attempt in record.attempts for node in attempt.exchanged]
    looks = [record.before, *(attempt.look for attempt in record.attempts)]
    whys = [f"{entry.node}: {entry.why}" for look in looks if look is not None for entry in look.accused]
    expected = {"before": ([SICK], [], 0), "during": ([], [target], 0), "innocent": ([], [], None)}[case.when]
    is_right = (before, exchanged) == expected[:2] and (code == 0) is (expected[2] == 0)
    done = _steps(folder)
    steps = [step for step, _ in done]
    ended_at = named_at = new_at = None
    if fault_at is not None:
        first = record.attempts[0]
        ended_at = time_of(first.started_at).timestamp() + first.seconds
        named_at = ended_at + first.look.seconds if first.look is not None and first.exchanged else None
        # an end is known to a second only: steps before it may look later
        again_at = time_of(record.attempts[1].started_at).timestamp() if len(record.attempts) > 1 else None
        before_it = max((step for step, at in done if again_at is None or at < again_at), default=0)
        new_at = next((at for step, at in done if step > before_it), None)

    def since(moment: float | None) -> float | None:
        return None if moment is None or fault_at is None else round(max(0.0, moment - fault_at), 1)

    return Score(
        case=case.name,
        name=folder.name,
        is_right=is_right,
        accused=", ".join(before),
        exchanged=", ".join(exchanged),
        code=code,
        lost=None if fault_at is None else len(steps) - len(set(steps)),
        check_s=record.before.seconds if record.before is not None else 0,
        words="; ".join(whys) or record.conclusion,
        noticed_s=since(ended_at),
        named_s=since(named_at),
        goes_on_s=since(new_at),
        load=round(os.getloadavg()[0]),
    )


def forget(folder_name: str) -> None:
    """What a case left among the results."""
    for tree in (runs.REPOSITORY / "validation/results").glob("*"):
        for path in tree.glob(f"{folder_name}*"):
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    results, names = Path(sys.argv[1]), sys.argv[2:]
    known = cases.read(results, Score)
    chosen = [case for case in CASES if case.name in names or (not names and case.name not in known)]
    cases.perform_some(chosen, results, perform)
    print(page(cases.read(results, Score)))


HEADER = ("case", "fault", "left out", "exchanged", "command", "steps lost", "", "checks before, s", "load", "because")
GATE = re.compile(r"(?:: |; )([a-z_]+\.[a-z_.]+[a-z_]):")  # n1: discovery.shm: /dev/shm holds 0.062 GiB; …
HOW = {
    5: (
        "Five nodes, of which a torchrun program needs four",
        "A batch script (`sbatch`) with one spare. The program (`validation/benchmarks/plain_torch.py`) knows "
        "nothing of",
        "bringup: it reduces over gloo, and saves a checkpoint every 5 steps.",
    ),
    3: (
        "Three nodes, of which a program needs two",
        "Under `salloc`. The program (`validation/benchmarks/plain_program.py`) knows nothing of bringup either: "
        "sockets in",
        "lockstep, and a checkpoint every 5 steps.",
    ),
}


def page(scores: Mapping[str, Score]) -> str:
    performed = [(case, scores[case.name]) for case in CASES if case.name in scores]
    sick = [score for case, score in performed if case.when != "innocent"]
    innocent = [score for case, score in performed if case.when == "innocent"]
    of_five = [score for case, score in performed if case.when != "innocent" and case.shape.nodes == 5]
    wrong = [score for case, score in performed if _is_wrong_exchange(case, score)]
    checks = sorted(score.check_s for _, score in performed)
    names = {name.removesuffix("-of-5") for name in scores}
    missing = [case.name for case in CASES if case.name.removesuffix("-of-5") not in names]
    lines = [
        "# Preflight on known culprits",
        "",
        "Made by `python validation/benchmarks/preflight_cases.py FILE` on the local cluster. A fault that ends a "
        "program by",
        "the GPU's driver also kills the rank there. Load: of the machine, which has 2 cores and other work, in the",
        "last minute of the case; not kept of earlier ones.",
        "",
        f"- Sick before the start, or under the command: {sum(score.is_right for score in sick)} of {len(sick)} "
        "culprits were left out or exchanged, and the command succeeded.",
        f"- Of {len(of_five)} kinds of sick nodes among five, {sum(score.is_right for score in of_five)} were "
        "exchanged under a torchrun program, and the four others stayed.",
        f"- Innocents: in {sum(score.is_right for score in innocent)} of {len(innocent)} no node was exchanged.",
        f"- A healthy node was left out or exchanged in {len(wrong)} of {len(performed)} cases.",
        "- A miss is a culprit that stayed: the command went on with it, only slower, and nothing asked for a look.",
        f"- The checks before the start took {checks[0]:.0f} to {checks[-1]:.0f} s." if checks else "",
        *([f"- Not performed on any nodes: {', '.join(missing)}."] if missing else []),
    ]
    for nodes, how in HOW.items():
        rows = [_row(case, score) for case, score in performed if case.shape.nodes == nodes]
        lines += ["", f"## {how[0]}", "", *how[1:], "", *text.table(HEADER, rows)]
    return "\n".join(lines)


def _row(case: Case, score: Score) -> tuple[str, ...]:
    return (
        case.name,
        case.fault,
        score.accused,
        score.exchanged,
        str(score.code),
        "" if score.lost is None else str(score.lost),
        "right" if score.is_right else "wrong exchange" if _is_wrong_exchange(case, score) else "miss",
        f"{score.check_s:.0f}" + (", with the sweep" if case.phases == SWEEP else ""),
        "" if score.load is None else f"{score.load:.0f}",
        ", ".join(dict.fromkeys(GATE.findall(score.words))) or textwrap.shorten(score.words, 60, placeholder=" …"),
    )


def _is_wrong_exchange(case: Case, score: Score) -> bool:
    """A healthy node was left out or exchanged. The culprit of a case before the start is n1."""
    if case.when == "innocent":
        return bool(score.accused or score.exchanged)
    if case.when == "before":
        return bool(set(score.accused.split(", ")) - {SICK, ""} or score.exchanged)
    return bool(score.accused) or (bool(score.exchanged) and not score.is_right)


if __name__ == "__main__":
    main()
