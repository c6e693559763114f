"""Requests of `bringup run` to Slurm. Every answer may be missing, because the controller can be away for a minute."""

import contextlib
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from bringup.kernel.errors import ControllerAway, SlurmError
from bringup.kernel.facts import hostlist
from bringup.kernel.facts.parser_result import lines
from bringup.kernel.records import SlurmCluster
from bringup.kernel.results import REPOSITORY
from bringup.readers import slurm as answers
from bringup.readers.node_states import Node

SEPARATOR = "\x1f"  # free text may hold every printable delimiter
ENDED = frozenset(
    ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"]
)
_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)", re.MULTILINE)
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
# SlurmctldHost[1] is a second controller; its address may follow in brackets
_CONTROLLER = re.compile(r"^(?:SlurmctldHost(?:\[\d+\])?|ControlMachine)\s*=\s*([^\s(]+)", re.MULTILINE)
_NO_CLUSTER = re.compile(r"Could not establish a configuration source")
_AWAY = re.compile(r"Unable to contact slurm controller|Unable to establish controller machine")
NO_NODE = (
    "shows no node now: Slurm hides nodes of a cloud that are off, unless slurm.conf has PrivateData=cloud; "
    "a job wakes them: srun --nodes=N true"
)
LOGIN_HOST = "run this on a login host of the cluster (`make cluster` starts a local one)"
_NODE_NAME = re.compile(r"^NodeName=(\S+) ", re.MULTILINE)
_FORGOTTEN = "Invalid job id specified"
_ABOUT_GPUS = re.compile(r"\b(gpus?|gres|tres|job_?submit|QOSMinGRES)\b", re.IGNORECASE)
_STATE = re.compile(r"\bJobState=(\S+)")
_AGAIN_S = 2.0
_ASIDE = ("JobHeld", "Dependency")
T = TypeVar("T")


class Pace:
    """Intervals between looks at the queue: short at first, longer later, because slurmctld serves all users.

    They are 5 s after 20 s and 30 s after 2 minutes: an hour takes 130 looks.
    """

    FIRST_S, GROWTH = 0.5, 1.25

    def __init__(self, longest_s: float = 30) -> None:
        self._longest_s = longest_s
        self.again()

    def again(self) -> None:
        """Start again with short intervals, because a change is expected soon."""
        self._next_s = self.FIRST_S

    def seconds(self) -> float:
        """Return seconds until the next look."""
        now, self._next_s = self._next_s, min(self._next_s * self.GROWTH, self._longest_s)
        return now


class Job(NamedTuple):
    state: str
    reason: str
    nodes: str = ""  # the node list it was submitted with; empty: any nodes


def ask(
    *command: str, timeout_s: float = 60, environment: dict[str, str] | None = None, folder: Path | None = None
) -> str:
    """Run a Slurm command and return its output. Raises SlurmError with its message, and what it had printed.

    Without an environment of its own it has this program's, and prints times as they are parsed here.
    """
    if environment is None:
        environment = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",  # a reason, a name: whatever a terminal of any encoding typed
            timeout=timeout_s,
            check=False,
            env=environment,
            cwd=folder,
        )
    except FileNotFoundError as error:
        why = f"{command[0]} is not on the PATH"
        raise SlurmError(f"{why}: {LOGIN_HOST}") from error
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        raise SlurmError(f"{command[0]} gave no answer in {timeout_s:.0f} s", printed) from error
    if result.returncode != 0:
        words = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        if _NO_CLUSTER.search(words):
            raise SlurmError(f"{command[0]} finds no Slurm cluster from this host: {LOGIN_HOST}, or set SLURM_CONF")
        raise (ControllerAway if _AWAY.search(words) else SlurmError)(f"{command[0]}: {words}", result.stdout)
    return result.stdout


def cluster() -> SlurmCluster:
    """Read the cluster that the commands ask. Raises SlurmError."""
    text = ask("scontrol", "show", "config")
    name = _CLUSTER.search(text)
    return SlurmCluster(None if name is None else name[1], ",".join(_CONTROLLER.findall(text)) or None)


def tasks_follow_topology() -> bool:
    """Say whether a step's tasks are numbered along switches or blocks, and not along the node list: where Slurm has a
    topology, from 26.05 on, unless the site turned it off. topology.yaml reads as topology/flat. Raises SlurmError."""
    version = _VERSION.search(text := ask("scontrol", "show", "config"))
    if version is None or (int(version[1]), int(version[2])) < (26, 5) or "CR_NO_DIST_TOPO_BLOCK" in text:
        return False
    is_flat = re.search(r"^TopologyPlugin\s*=\s*topology/(?!default|flat|none)", text, re.MULTILINE) is None
    return not is_flat or re.search(r"^  (?!flat)\w+:$", ask("scontrol", "show", "topoconf"), re.MULTILINE) is not None


def this_cluster() -> SlurmCluster:
    """Read the same; without names where no Slurm answers."""
    with contextlib.suppress(SlurmError):
        return cluster()
    return SlurmCluster(None, None)


def patience_s() -> float:
    """Return seconds to wait for an absent controller or for busy nodes: BRINGUP_WAIT_S, 120 by default."""
    setting = os.environ.get("BRINGUP_WAIT_S", "")
    return float(setting) if setting.isdecimal() else 120.0


def patiently(question: Callable[[], T], tell: Callable[[str], None]) -> T:
    """Ask `question` again while the controller is away. Raises SlurmError if it stays away."""
    deadline = time.monotonic() + patience_s()
    while True:
        try:
            return question()
        except ControllerAway as error:
            if time.monotonic() > deadline:
                raise
            tell(f"no answer from slurmctld ({error}); waiting up to {patience_s():.0f} s for it")
            time.sleep(_AGAIN_S)


def chosen_partition() -> str | None:
    """Return the partition that Slurm's commands read from the environment; None: the default one."""
    return os.environ.get("SBATCH_PARTITION") or os.environ.get("SLURM_PARTITION")


def partition_nodes(partition: str | None) -> list[str]:
    """Name all nodes of a partition (None: the default one), in Slurm's order. Raises SlurmError."""
    names, known = list[str](), dict[str, bool]()
    for line in ask("sinfo", "--all", "--noheader", "--format", f"%P{SEPARATOR}%N").splitlines():
        name, _, nodes = line.partition(SEPARATOR)
        known[name.rstrip("*")] = _is_chosen(name, partition)
        if nodes and _is_chosen(name, partition):
            names += [node for node in hostlist.expand(nodes) if node not in names]
    if not names and (chosen := [name for name in known if known[name]]):
        raise SlurmError(f"partition {', '.join(chosen)} {NO_NODE}")
    if not names and partition:
        raise SlurmError(f"no partition {partition!r} with nodes; there are {', '.join(sorted(known)) or 'none'}")
    if not names:
        raise SlurmError("no default partition; name one in a site file (BRINGUP_SITE), or export SBATCH_PARTITION=…")
    return names


def _is_chosen(shown: str, partition: str | None) -> bool:
    """shown: sinfo's name; the default one has a *. partition: one name, or several with commas between them."""
    return shown.endswith("*") if partition is None else shown.rstrip("*") in partition.split(",")


def show_job(job_id: str, *, on_one_line: bool = False) -> str:
    if on_one_line:
        return ask("scontrol", "--oneliner", "show", "job", job_id)
    return ask("scontrol", "show", "job", job_id)


def show_partitions() -> str:
    return ask("scontrol", "--all", "--oneliner", "show", "partition")  # hidden ones, too


def show_nodes(names: Sequence[str] = (), times: str = "standard") -> str:
    """Show `scontrol show node` of these nodes; without names, of all. times: as SLURM_TIME_FORMAT has it."""
    of = [",".join(names)] if names else []
    return ask("scontrol", "--oneliner", "show", "node", *of, environment={**os.environ, "SLURM_TIME_FORMAT": times})


def nodes(names: Sequence[str] = ()) -> dict[str, Node]:
    """Return these nodes; without names, all of them. Raises SlurmError."""
    return nodes_in(show_nodes(names))


def nodes_in(text: str) -> dict[str, Node]:
    """Read `scontrol --oneliner show node`: those whose state it says."""
    is_reserved = any(f"{command}_RESERVATION" in os.environ for command in ("SBATCH", "SLURM"))
    own = _NODE_NAME.findall(text) if is_reserved else ()
    return dict(known for line in lines(text) if (known := answers.node_in(line, own)) is not None)


def why_pending(job_id: str, waiting: Job) -> str:
    """Say in plain words why a job waits."""
    concerned: dict[str, Node] = {}
    from bringup.readers.known import pending  # a table that few need

    if pending.is_about_nodes(waiting.reason):
        with contextlib.suppress(SlurmError):  # the controller may not answer: then without the nodes' states
            concerned = nodes(pending.named_nodes(waiting.reason) or ([waiting.nodes] if waiting.nodes else []))
    words = pending.explain(waiting.reason, concerned)
    return f"job {job_id} pending" + (f": {words}" if words else "")


def submit(script: str, nodes: list[str], environment: dict[str, str], options: Sequence[str] = ()) -> str:
    """Submit `script`, a path from the repository root; return its job id. Raises SlurmError with sbatch's words."""
    (REPOSITORY / "slurm-logs").mkdir(exist_ok=True)  # Slurm before 23.02 does not make it
    where = (f"--nodes={len(nodes)}", f"--nodelist={hostlist.shortened(nodes)}")
    # --export overrides the site's SBATCH_EXPORT: the script needs the run's name and nodes. --output: a node may see
    # the checkout itself read-only
    own = ("--parsable", "--export=ALL", "--output=slurm-logs/%x-%j.log")
    try:
        answer = ask("sbatch", *own, *where, *options, script, environment=environment, folder=REPOSITORY)
    except ControllerAway:
        raise
    except SlurmError as error:
        # scripts use --exclusive, and a submit plugin may demand GPUs
        if not _ABOUT_GPUS.search(str(error)) or {"SBATCH_GPUS_PER_NODE", "SBATCH_GRES"} & environment.keys():
            raise
        hint = "if this site wants a GPU request with every job: say it in the site file (gpu_request), BRINGUP_SITE"
        raise SlurmError(f"{error}; {hint}") from error
    return answer.strip().split(";")[0]


def _queue(columns: str, *asked: str, between: str = SEPARATOR) -> list[list[str]]:
    """Ask squeue; return rows of these columns, none of a job that Slurm no longer knows. Raises SlurmError."""
    try:
        text = ask("squeue", "--noheader", *asked, "--format", between.join(columns.split()))
    except SlurmError as error:
        if _FORGOTTEN not in str(error):
            raise
        return []
    rows = [line.split(between) for line in text.splitlines()]
    return [row for row in rows if len(row) == len(columns.split())]


def job(job_id: str) -> Job | None:
    """Return a job; None when Slurm no longer knows it. Raises SlurmError without a controller."""
    rows = _queue("%T %r %n", "--states=all", f"--jobs={job_id}")
    return Job(*rows[0]) if rows else None


def running_on(nodes: Sequence[str]) -> list[list[str]]:
    """List (job, its user, its nodes) of the jobs that hold these nodes. Raises SlurmError."""
    return _queue("%i %u %N", f"--nodelist={hostlist.shortened(nodes)}", "--states=RUNNING,SUSPENDED,COMPLETING")


def queued(prefix: str) -> list[tuple[str, str]]:
    """List (job, its user) of the pending and running jobs whose name begins with `prefix`, but for those that wait
    until their user or another job lets them go. Raises SlurmError."""
    rows = _queue("%i %u %r %j", between=_unguessed())
    return [(job, user) for job, user, why, name in rows if name.startswith(prefix) and not why.startswith(_ASIDE)]


def states(job_ids: Sequence[str]) -> dict[str, str]:
    """Return states of jobs, in one request, without those that Slurm no longer knows. Raises SlurmError."""
    rows = _queue("%i %T", "--array", "--states=all", f"--jobs={','.join(job_ids)}")
    return {job_id.strip(): state.strip() for job_id, state in rows}


def is_own(job_id: str, name: str) -> bool:
    """Say whether Slurm still knows this user's job by this name, because a new cluster reuses job numbers."""
    with contextlib.suppress(SlurmError):
        return _queue("%j", "--states=all", "--me", f"--jobs={job_id}") == [[name]]
    return False


def accounted(job_id: str, columns: Sequence[str], *options: str, timeout_s: float = 60) -> str:
    """Ask `sacct` for one job, with a header. Raises SlurmError."""
    asked = ("--parsable2", f"--jobs={job_id}", f"--format={','.join(columns)}")
    return ask("sacct", *options, *asked, timeout_s=timeout_s)


def _unguessed() -> str:
    """Return what stands between columns, so that a line feed in a job's name makes no row: no user can know it."""
    return secrets.token_hex(8)


def ended_job(job_id: str) -> str | None:
    """Return Slurm's record of an ended job: slurmctld's line, or the accounting's after slurmctld has forgotten the
    job (MinJobAge, 5 minutes by default). Empty: there is no accounting. None: the job has not ended, or the accounting
    does not know its end yet.
    """
    try:
        line = show_job(job_id, on_one_line=True)
        state = _STATE.search(line)
        return line if state is not None and state[1] in ENDED else None
    except SlurmError as error:
        if _FORGOTTEN not in str(error):
            raise
    try:
        table = accounted(job_id, ["JobID", *answers.ACCOUNTED.values()], "--allocations")
    except SlurmError:
        return ""
    rows = table.splitlines()
    return table if len(rows) == 2 and rows[1].split("|")[1].split(" ")[0] in ENDED else None


def cancel(id: str, *options: str) -> None:
    """Cancel a job, or a step. Raises SlurmError."""
    ask("scancel", *options, id)


def steps(job_id: str) -> set[str]:
    """List the numbered steps of a job that run now, as 17.0. Raises SlurmError."""
    listed = {row[0].strip() for row in _queue("%i", "--steps", f"--jobs={job_id}")}
    return {step for step in listed if step.startswith(f"{job_id}.") and step.partition(".")[2].isdecimal()}


def on_nodes(names: Sequence[str], options: Sequence[str], *command: str, timeout_s: float) -> str:
    """Run a command on each node, in a step of two minutes. options: of srun. Raises SlurmError, with its output."""
    own = ("--quiet", "--label", "--kill-on-bad-exit=0", *options, f"--nodelist={','.join(names)}")
    each = (f"--nodes={len(names)}", f"--ntasks={len(names)}", "--time=2")
    return ask("srun", *own, *each, *command, timeout_s=timeout_s)
