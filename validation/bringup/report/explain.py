"""`bringup explain RUN`: what went wrong, from the first cause to what only follows from it, and the commands to run
next.

Everything said comes from the verdicts, the signatures and the guides of the gates; nothing is guessed.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from bringup import registry
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile, subjects
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import QUIET, Kind, Outcome, Sign, Verdict, Verdicts, as_json, grouped
from bringup.kernel.results import PROFILE
from bringup.report import layers
from bringup.report.render import render
from bringup.report.text import counted, plain, quoted_path, shown_path
from bringup.report.view import View, reasons

_SHOWN = 6


def screens(worst_first: Sequence[Judged]) -> str:
    """Explain each run that has something to explain; name all others in one line."""
    bad = [run for run in worst_first if run.verdicts.outcome is not Outcome.PASS]
    explained = [screen(run, worst_first).rstrip("\n") for run in bad]
    if bad and not any(_known_signs(run) for run in bad):
        explained.append("no line in the logs matches a known fault (docs/gates/log-signs.md)")
    if any(_is_slow(verdict) for run in bad for verdict in run.verdicts.verdicts):
        explained += [f"{each.title}: {each.says}" for each in layers.waterfalls(worst_first)]
    if passed := [run for run in worst_first if run.verdicts.outcome is Outcome.PASS]:
        verdicts = [verdict for run in passed for verdict in run.verdicts.verdicts]
        names = ", ".join(dict.fromkeys(run.run.phase for run in passed))
        is_all = all(verdict.outcome is Outcome.PASS for verdict in verdicts)
        words = f"all {len(verdicts)} checks passed" if is_all else counted(verdicts)
        explained.append(f"PASS       {names}: {words}")
    return "\n\n".join(explained)


def _is_slow(verdict: Verdict) -> bool:
    """Say whether it is a bandwidth between GPUs that is too low."""
    of_links = verdict.gate.startswith(("nccl.", "fabric.", "sweep.inside.", "train.scaling"))
    return of_links and verdict.rule == "at_least" and verdict.outcome in (Outcome.FAIL, Outcome.WARN)


def _known_signs(judged: Judged) -> list[tuple[Sign, str, str]]:
    signs = grouped((entry[0].signature, entry) for entry in View(judged).signs)
    return [entries[0] for signature, entries in signs.items() if signature in registry.called(registry.SIGNATURES)]


def screen(judged: Judged, beside: Sequence[Judged] = ()) -> str:
    """Explain one run. beside: runs that are explained with it; a phase that ran there is not run again."""
    causes = causes_of(judged.verdicts)
    view = View(judged)
    done = {PHASES[run.run.phase].script: run for run in beside if set(run.run.nodes) <= set(judged.run.nodes)}
    done.pop(PHASES[judged.run.phase].script, None)

    def commands(group: Sequence[Verdict]) -> list[str]:
        asked = next_commands(group, judged)
        ran = {command: run for command in asked for script, run in done.items() if script in command.split()}
        return [f"bringup explain {quoted_path(ran[each].folder)}" if each in ran else each for each in asked]

    return render(
        "explain.txt.j2",
        view=view,
        is_open=judged.seal is None,
        causes=causes,
        groups=list(grouped((cause_of(verdict), verdict) for verdict in causes.first).values()),
        signs=_known_signs(judged),
        gates=_gates,
        following=reasons(causes.following),
        next_commands=commands,
        most=_SHOWN,
    )


def cause_of(verdict: Verdict) -> Hashable:
    """Give verdicts of one cause the same key: what failed, by its guide; what is incomplete, by what it names."""
    if verdict.outcome is Outcome.INCOMPLETE and verdict.kind is not Kind.JUDGED:
        return verdict.kind, verdict.cause
    gate = GATES.get(verdict.gate)
    return verdict.gate if gate is None else gate.guide


def as_data(run: Judged) -> dict[str, object]:
    """Return the same for programs: the first causes, what follows from them, and the signs in the logs."""
    causes = causes_of(run.verdicts)
    return {
        "folder": shown_path(run.folder),
        "phase": run.run.phase,
        "outcome": str(run.verdicts.outcome),
        "first_causes": [
            {"gate": gate, "verdicts": list(map(as_json, group)), "next": next_commands(group, run)}
            for gate, group in grouped((verdict.gate, verdict) for verdict in causes.first).items()
        ],
        "following": [[verdict.gate, verdict.subject] for verdict in causes.following],
        "undeclared": [[verdict.gate, verdict.subject] for verdict in causes.undeclared],
        "signs": list(map(as_json, run.verdicts.signs)),
        "notes": run.verdicts.notes,
    }


class Causes(NamedTuple):
    """The verdicts of a run that are not a pass."""

    first: list[Verdict]  # what failed, or with no fail what is incomplete for a reason of its own; then warnings
    following: list[Verdict]  # what only follows: it was blocked, or its evidence did not arrive
    undeclared: list[Verdict]  # whose expectation is not declared here


# of what is incomplete: kinds that have a reason of their own before those that follow from something
_OWN = ({Kind.UNKNOWN, Kind.JUDGED}, {Kind.ABSENT}, {Kind.BLOCKED}, {Kind.UNDECLARED})


def causes_of(verdicts: Verdicts) -> Causes:
    bad = [verdict for verdict in verdicts.verdicts if verdict.outcome not in QUIET]
    first = [verdict for verdict in bad if verdict.outcome is Outcome.FAIL]
    open_ends = [verdict for verdict in bad if verdict.outcome is Outcome.INCOMPLETE]
    for kinds in _OWN:
        first = first or [verdict for verdict in open_ends if verdict.kind in kinds]
    taken = {id(verdict) for verdict in first}
    left = [verdict for verdict in open_ends if id(verdict) not in taken]
    return Causes(
        first=first + [verdict for verdict in bad if verdict.outcome is Outcome.WARN],
        following=[verdict for verdict in left if verdict.kind is not Kind.UNDECLARED],
        undeclared=[v for v in verdicts.verdicts if v.kind is Kind.UNDECLARED and id(v) not in taken],
    )


def next_commands(group: Sequence[Verdict], judged: Judged) -> list[str]:
    """Return the commands that the gate's guide says to run next, with this run's folder, nodes, GPUs, job and profile;
    the first node that the verdicts are about."""
    run, gate = judged.run, GATES.get(group[0].gate) or judged.own.get(group[0].gate)
    if gate is None:
        return []
    known = {
        "nodes": hostlist.shortened(run.nodes),
        "node_count": str(len(run.nodes)),
        "gpus": str(run.gpus_per_node),
        "run": shown_path(judged.folder),
        "profile": _profile(judged),
        "script": PHASES[run.phase].script,
    }
    if run.slurm_job_id is not None:
        known["job"] = run.slurm_job_id
    nodes = [node for verdict in group for node in subjects.nodes_of(verdict.subject) if node in run.nodes]
    if nodes:
        known["node"] = nodes[0]
    return [plain(command) for command in gate.guide.commands(known) if _takes(command, len(run.nodes))]


def _takes(command: str, nodes: int) -> bool:
    """Say whether the phase whose script the command starts on all nodes of the run takes so many."""
    if f"--nodes={nodes} " not in command:
        return True
    asked = next((phase for phase in PHASES.values() if phase.script in command.split()), None)
    return asked is None or asked.min_nodes <= nodes <= (asked.max_nodes or nodes)


def _profile(judged: Judged) -> str:
    """Return the profile as --profile takes it: the name of one that comes with bringup, else the run's own copy."""
    run = judged.run
    is_there = (profile.PROFILES / f"{run.profile}.yaml").is_file()
    is_whole = is_there and not profile.load(run.profile, strict=False).is_open
    return run.profile if is_whole else shown_path(judged.folder / PROFILE)


def _gates(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.gate for verdict in verdicts)
    return ", ".join(f"{gate} × {count}" if count > 1 else gate for gate, count in counts.items())
