"""`bringup watch --idle`: nodes that nobody uses are swept, a few at once, and the work of others goes first.

A job is submitted to one idle node at a time, the longest unverified first. It asks for nothing that others wait for:
it gives way when a job of anybody waits for resources, and is withdrawn when its node was taken before it began. Where
the site file names a partition or a QOS for it (key `idle`), Slurm's own preemption does the same, faster.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from bringup import results
from bringup.errors import BringupError, SlurmError
from bringup.evidence import hostlist
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.plan.site import IDLE
from bringup.records import Outcome, Verdicts, read_record
from bringup.report import drain, write
from bringup.report.text import MARK, counted, plain
from bringup.run import brake, signature, slurm, take_out
from bringup.run import site as at_site

PHASE = PHASES["node_sweep"]
NAME = "bringup-idle"  # of the jobs
PREFIX = "idle-"  # of the runs
NOT_BEGUN_S = 30  # a job that waits so long has lost its node to somebody
OPTIONS = (f"--job-name={NAME}", "--nice=100000", "--no-requeue")
SAME_GATE, SAME_GATE_S = 3, 86400  # a gate that fails on so many nodes within a day drains no further one
_STAMP = "%Y%m%d-%H%M%S"
_WAITS_FOR = ("Resources", "Priority")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    most: int  # jobs at once
    every_s: float  # a node is swept again after so long
    once: bool  # end when every idle node that is due was swept
    nodelist: list[str]  # these alone; empty: all of the partition
    profile_name: str
    site: at_site.AtSite | None
    apply: bool  # drain what fails
    look_s: float = 10.0
    most_drained: str = brake.MOST


@dataclass
class Sweep:
    node: str
    job: str
    folder: Path
    submitted: float


def watch(request: Request, tell: Tell) -> int:
    """Exit code: 1 a node failed, 2 the jobs of some gave no answer, 0 otherwise."""
    running: list[Sweep] = []
    tried: set[str] = set()  # with --once each node is taken once
    worst = 0
    try:
        while True:
            worst = max(worst, _look(request, running, tried, tell), key=[0, 2, 1].index)
            if request.once and not running and not _due(request, running, tried):
                return worst
            time.sleep(request.look_s)
    finally:
        for sweep in running:
            _end(sweep, "the watch ends", tell)


def _look(request: Request, running: list[Sweep], tried: set[str], tell: Tell) -> int:
    """What ended is judged; what others wait for is given back; what is idle and due is started. The controller may
    be away for a while."""
    try:
        return _looked(request, running, tried, tell)
    except SlurmError as error:
        tell(f"no answer from Slurm, asked again in {request.look_s:g} s: {plain(str(error))}")
        return 0


def _looked(request: Request, running: list[Sweep], tried: set[str], tell: Tell) -> int:
    worst = 0
    states = slurm.states([sweep.job for sweep in running]) if running else {}
    waiting = who_waits(_queue())
    for sweep in list(running):
        state = states.get(sweep.job, "COMPLETED")
        if state in slurm.ENDED:
            running.remove(sweep)
            worst = max(worst, _judged(sweep, state, request, tell), key=[0, 2, 1].index)
        elif waiting or (state == "PENDING" and time.monotonic() - sweep.submitted > NOT_BEGUN_S):
            running.remove(sweep)
            _end(sweep, f"it gives way to {waiting}" if waiting else "its node is no longer idle", tell)
    for node in [] if waiting else _due(request, running, tried)[: request.most - len(running)]:
        tried.add(node)
        running.append(_submitted(node, request))
        tell(f"{node}: sweep begins, job {running[-1].job}")
    return worst


def _queue() -> str:
    shown = slurm.SEPARATOR.join(("%i", "%u", "%j", "%T", "%r"))
    return slurm.ask("squeue", "--noheader", "--states=PENDING", "--format", shown)


def who_waits(queue: str) -> str | None:
    """A pending job of anybody that wants resources, as `job 17 of anna`. Not those that wait for a time, a job or a
    person, and not our own."""
    for line in queue.splitlines():
        job, user, name, _, reason = [*line.split(slurm.SEPARATOR), "", "", "", "", ""][:5]
        if name != NAME and reason in _WAITS_FOR:
            return f"job {job} of {user}"
    return None


def _due(request: Request, running: Sequence[Sweep], tried: set[str]) -> list[str]:
    """Idle nodes, the longest unverified first."""
    busy = {sweep.node for sweep in running} | (tried if request.once else set())
    swept_at = last_swept(results.REPOSITORY / PHASE.results)
    too_early = time.time() - request.every_s
    nodes = [node for node in _idle(request) if node not in busy and swept_at.get(node, 0) <= too_early]
    return sorted(nodes, key=lambda node: (swept_at.get(node, 0), nodes.index(node)))


def _idle(request: Request) -> list[str]:
    partition = None if request.site is None else request.site.site.submitted("partition", IDLE)
    options = [f"--partition={partition}"] if partition else []
    shown = f"%N{slurm.SEPARATOR}%T"
    answer = slurm.ask("sinfo", "--noheader", "--Node", *options, "--format", shown)
    # exactly idle: not idle* (no answer), not reserved, not planned for somebody
    names = [
        line.partition(slurm.SEPARATOR)[0] for line in answer.splitlines() if line.endswith(f"{slurm.SEPARATOR}idle")
    ]
    nodes = list(dict.fromkeys(node for name in names for node in hostlist.expand(name)))
    return [node for node in nodes if not request.nodelist or node in request.nodelist]


def last_swept(folder: Path) -> dict[str, float]:
    """Node -> when its last sweep that finished was opened, from the folders of the runs."""
    swept_at: dict[str, float] = {}
    for path, node, when in _sweeps(folder):
        if (path / results.CLOSED).exists():
            swept_at[node] = max(when, swept_at.get(node, 0))
    return swept_at


def _sweeps(folder: Path) -> Iterator[tuple[Path, str, float]]:
    """(folder, node, when it was opened) of each run of this watch and of earlier ones."""
    for path in folder.glob(f"{PREFIX}*"):
        stamp, _, node = path.name.removeprefix(PREFIX).partition("_")
        try:
            yield path, node, datetime.strptime(stamp, _STAMP).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue


def _submitted(node: str, request: Request) -> Sweep:
    name = f"{PREFIX}{datetime.now(timezone.utc).strftime(_STAMP)}_{node}"
    environment = os.environ | {
        "BRINGUP_RUN_NAME": name,
        "BRINGUP_PROFILE": request.profile_name,
        "BRINGUP_JUDGE_LATER": "1",
    }
    environment = at_site.for_submission(request.site, IDLE, environment)
    (results.REPOSITORY / PHASE.results).mkdir(parents=True, exist_ok=True)
    more = () if request.site is None else request.site.site.sbatch
    job = slurm.submit(PHASE.script, [node], environment, (*OPTIONS, *more))
    return Sweep(node, job, results.folder_of(PHASE, name), time.monotonic())


def _judged(sweep: Sweep, state: str, request: Request, tell: Tell) -> int:
    if state == "PREEMPTED" or not results.is_there(sweep.folder, results.CLOSED):
        tell(f"{sweep.node}: no answer: its job {sweep.job} is {state.lower()}")
        return 0 if state == "PREEMPTED" else 2
    try:
        judged = write.judge_and_save(sweep.folder)
    except BringupError as error:
        tell(f"{sweep.node}: no answer: {plain(str(error))}")
        return 2
    outcome = judged.verdicts.outcome
    tell(f"{sweep.node}: {MARK[outcome]}: {counted(judged.verdicts.verdicts)}; {results.REPORT} in {sweep.folder}")
    if outcome is Outcome.FAIL:
        _say_or_drain(judged, request, tell)
    return outcome.exit_code


def _say_or_drain(judged: Judged, request: Request, tell: Tell) -> None:
    proposals = drain.proposals([judged])
    for proposal in proposals:
        tell(proposal.line)
    if not request.apply or not any(proposal.command for proposal in proposals):
        return
    lately = failed_lately(results.REPOSITORY / PHASE.results, time.time())
    on = {
        verdict.gate: lately.get(verdict.gate, set()) | set(judged.run.nodes)
        for verdict in judged.verdicts.verdicts
        if verdict.outcome is Outcome.FAIL
    }
    if all(len(nodes) >= SAME_GATE for nodes in on.values()):
        for gate, nodes in on.items():
            tell(
                f"not drained: {', '.join(judged.run.nodes)}: {gate} failed on {len(nodes)} nodes within a day "
                f"({', '.join(sorted(nodes))}): a fault of the cluster or of the expectation"
            )
        return
    take_out.apply([judged], take_out.Rule(request.most_drained, signers=signature.signers(None)), tell)


def failed_lately(folder: Path, now: float) -> dict[str, set[str]]:
    """Gate -> nodes on which it failed in a sweep of the last day."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for path, node, when in _sweeps(folder):
        if now - when > SAME_GATE_S or not results.is_there(path, results.VERDICTS):
            continue
        try:
            verdicts = read_record(path / results.VERDICTS, Verdicts).verdicts
        except BringupError:
            continue
        for verdict in verdicts:
            if verdict.outcome is Outcome.FAIL:
                nodes[verdict.gate].add(node)
    return nodes


def _end(sweep: Sweep, why: str, tell: Tell) -> None:
    """Only a job that Slurm knows as ours, under its name."""
    if slurm.is_own(sweep.job, NAME):
        slurm.cancel(sweep.job)
    tell(f"{sweep.node}: job {sweep.job} is ended: {why}")
