"""The phases that drained nodes, run on them again while nobody else can: Slurm starts no job on a drained node, so the
nodes are resumed inside a reservation of this user.

The reservation has no end. Whatever ends this program, a node that has not passed is drained, or stays reserved.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup import results
from bringup.daily.drained import Out
from bringup.errors import BringupError, CannotStart, SlurmError
from bringup.judge import Judged
from bringup.plan import own as site_checks
from bringup.plan import subjects
from bringup.records import Outcome
from bringup.report import collection, drain
from bringup.run import open as opening
from bringup.run import playbook, slurm

RESERVATION = "bringup-resume"
ANSWERS_S = 90  # that slurmctld may take to hear of a node
_VARIABLES = tuple(f"{command}_RESERVATION" for command in ("SBATCH", "SALLOC", "SLURM"))


@dataclass(frozen=True)
class Answer:
    node: str
    passes: bool
    why: str
    new_reason: str | None = None  # to drain it with; None: the one that it had


def ask(out: Sequence[Out], with_nodes: Sequence[str], request: playbook.Request) -> list[Answer]:
    """One per node, in order. Nodes that passed are in service then, the others are drained. Raises SlurmError,
    CannotStart: nothing was changed, or what was is said."""
    nodes = [entry.node for entry in out]
    phases = sorted({stem for entry in out for stem in entry.phases})
    answers = [Answer(node, False, "it was not asked to the end") for node in nodes]
    with _reserved([*nodes, *with_nodes]):
        try:
            for node in nodes:
                slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
            _wait_for(nodes)
            answers = _run(out, phases, [*nodes, *with_nodes], request)
        finally:
            reasons = {entry.node: entry.given for entry in out}
            for answer in answers:
                if not answer.passes:
                    _drain(answer.node, answer.new_reason or reasons[answer.node])
    return answers


def _wait_for(nodes: Sequence[str]) -> None:
    """A node that was resumed counts as not responding until slurmctld has contact with it. One that stays so is
    judged as it is."""
    pace, deadline = slurm.Pace(longest_s=5), time.monotonic() + ANSWERS_S
    while time.monotonic() < deadline and not all(node.is_usable for node in slurm.nodes(nodes).values()):
        time.sleep(pace.seconds())


def _run(out: Sequence[Out], phases: Sequence[str], nodes: Sequence[str], request: playbook.Request) -> list[Answer]:
    name = opening.default_name()
    own = {"BRINGUP_RUN_NAME": name, **dict.fromkeys(_VARIABLES, RESERVATION)}
    before = {variable: os.environ.get(variable) for variable in own}
    os.environ.update(own)
    try:
        playbook.run(playbook.Request(**{**vars(request), "nodelist": ",".join(nodes), "phases": list(phases)}))
        runs = collection.gather([results.REPOSITORY / results.PLAYBOOKS / name])
    except BringupError as error:
        return [Answer(entry.node, False, f"it could not be asked: {error}") for entry in out]
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value
    return [answered(entry, runs.judged) for entry in out]


def answered(out: Out, judged: Sequence[Judged]) -> Answer:
    """It passes when each gate that it was drained for was judged there and passed, and no other speaks against it."""
    proposal = next((candidate for candidate in drain.proposals(judged) if candidate.node == out.node), None)
    if proposal is not None and proposal.command is not None:
        return Answer(out.node, False, proposal.why, proposal.command[-1].removeprefix("Reason="))
    for gate in out.gates:
        outcomes = {
            verdict.outcome
            for run in judged
            for verdict in run.verdicts.verdicts
            if verdict.gate == gate and out.node in subjects.nodes_of(verdict.subject)
        }
        if not outcomes:
            why = f"{gate} was not asked: it compares nodes, or needs several; name healthy ones: --with NODE,NODE"
            if gate.startswith(site_checks.PREFIX):
                why = f"{gate} was not asked: the site file names no such check (BRINGUP_SITE, checks)"
            return Answer(out.node, False, why)
        if not outcomes <= {Outcome.PASS, Outcome.WARN}:
            return Answer(out.node, False, f"{gate} did not pass again")
    return Answer(out.node, True, f"passes again: {', '.join(out.gates)}")


@contextlib.contextmanager
def _reserved(nodes: Sequence[str]) -> Iterator[None]:
    if RESERVATION in slurm.ask("scontrol", "--oneliner", "show", "reservation"):
        raise CannotStart(
            f"there is a reservation {RESERVATION} already: another resume-nodes runs, or one was killed; then drain "
            f"what has not passed, and scontrol delete ReservationName={RESERVATION}"
        )
    slurm.ask(
        *("scontrol", "create", "reservation", f"ReservationName={RESERVATION}", f"Nodes={','.join(nodes)}"),
        *(f"Users={getpass.getuser()}", "StartTime=now", "Duration=UNLIMITED", "Flags=IGNORE_JOBS"),
    )
    try:
        yield
    except SlurmError as error:
        raise SlurmError(
            f"{error}; {', '.join(nodes)} stay reserved ({RESERVATION}): drain what has not passed, then delete it"
        ) from error
    except BaseException:
        slurm.ask("scontrol", "delete", f"ReservationName={RESERVATION}")
        raise
    slurm.ask("scontrol", "delete", f"ReservationName={RESERVATION}")


def _drain(node: str, reason: str) -> None:
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
