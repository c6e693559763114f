"""Verbs that the phase scripts call: which nodes, which numbers of nodes, which pairs; open and close a run.

They print lines for the shell.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bringup import results
from bringup.cli.command_line import complain, natural, phase_called
from bringup.errors import UsageError
from bringup.evidence import hostlist
from bringup.plan import profile as profiles
from bringup.plan import rounds, subjects, variants
from bringup.records import Outcome
from bringup.run import nodes as choice
from bringup.run import waiting

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs

MOST_NAMED = 8  # nodes of a message


def scales(nodes: list[str], gpus_per_node: int, only_all: bool) -> list[str]:
    """A scale per line: ending of its files' names, name, number of nodes, ranks per node, nodes (n0,n1).

    whole: that of all nodes alone.
    """
    steps = [subjects.full_scale(len(nodes), gpus_per_node)] if only_all else subjects.scales(len(nodes), gpus_per_node)
    return [
        f"{subjects.file_suffix(scale)} {scale.name} {scale.nodes} {scale.ranks // scale.nodes} "
        + ",".join(nodes[: scale.nodes])
        for scale in steps
    ]


def pairs_again(run: Path) -> list[str]:
    """Rounds of the pairs of this run that should be measured once more."""
    from bringup import judge
    from bringup.derive import pairs

    suspects = pairs.suspects(judge.judge_folder(run).observations)
    return [rounds.as_line(met) for met in rounds.in_rounds(suspects)]


def pair_rounds(nodes: list[str], reachable: set[str]) -> tuple[list[str], str]:
    """(a round per line, what is not exercised). here: nodes that are there now; pairs with others are left out."""
    from bringup.run import open as opening

    number = subjects.pair_rounds(nodes, opening.asked_pair_rounds())
    planned = rounds.in_advance(nodes, number)
    played = [[pair for pair in met if reachable.issuperset(pair)] for met in planned]
    absent = f"not there: {', '.join(sorted(set(nodes) - reachable))}"
    if rounds.is_adaptive(nodes, number):
        remark = "round 1 of neighbours; each further one is chosen by what was measured"
        met = {node for pair in played[0] for node in pair}
        rests = [node for node in nodes if node in reachable and node not in met]
        remark += f"; in the first round {', '.join(rests)} rests, and is met in the next one" if rests else ""
        return [rounds.as_line(met) for met in played], remark if reachable.issuperset(nodes) else f"{remark}; {absent}"
    exercised, possible = sum(map(len, played)), len(nodes) * (len(nodes) - 1) // 2
    why = "BRINGUP_PAIR_ROUNDS=all measures every pair" if reachable.issuperset(nodes) else absent
    counted = f"{len(planned)} round(s), {exercised} of {possible} pairs"
    return [rounds.as_line(met) for met in played], f"{counted}; not exercised: {possible - exercised} ({why})"


def pairs_next(run: Path, reachable: set[str]) -> tuple[list[str], str | None]:
    """(the next round, or nothing; what is said of it). Nothing, too, where all rounds were known in advance.

    here: nodes that are there now; none: all of the run.
    """
    from bringup import judge
    from bringup.derive import localise, pairs
    from bringup.derive.next_round import next_round
    from bringup.run import open as opening

    judged = judge.judge_folder(run)
    nodes = judged.run.nodes
    if not rounds.is_adaptive(nodes, subjects.pair_rounds(nodes, opening.asked_pair_rounds())):
        return [], None
    present = [node for node in nodes if node in reachable or not reachable]
    played = pairs.played(judged.observations)
    met = next_round(present, played)
    phrases = localise.words(localise.culprits(present, played), present)
    if not met:
        return [], "; ".join(["no further round", *phrases])
    meeting = {node for pair in met for node in pair}
    rests = [node for node in present if node not in meeting]
    resting = [f"{len(rests)} rest(s): {', '.join(rests[:MOST_NAMED])}"] if rests else []
    return [rounds.as_line(met)], "; ".join([f"after round {len(played)}", *phrases, *resting])


# --- the verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser("nodes", help="(phase scripts) which nodes were requested, as assignments for the shell")
    verb.add_argument("--nodes", type=int)
    verb.add_argument("--nodelist")
    verb.add_argument("--sharing", action="store_true", help="also: WHOLE_NODES=yes where no two jobs share a node")
    verb.add_argument("--phase", help="as the site file has it for this one; its partition has to take its job")
    verb.set_defaults(verb=_nodes)

    verb = verbs.add_parser(
        "scales", help="(phase scripts) at which numbers of nodes collectives are run: a scale per line"
    )
    verb.add_argument("--nodes", required=True)
    verb.add_argument("--gpus-per-node", type=natural, required=True)
    verb.add_argument("--whole", action="store_true", help="only that of all nodes")
    verb.set_defaults(verb=_scales)

    verb = verbs.add_parser(
        "workload", help="(phase scripts) what the profile trains, as options; nothing: the default"
    )
    verb.add_argument("--profile", default=profiles.from_environment())
    verb.set_defaults(verb=_workload)

    verb = verbs.add_parser(
        "variants", help="(phase scripts) which ways NCCL is told to go: variant, scale as `scales` says it, variables"
    )
    verb.add_argument("--nodes", required=True)
    verb.add_argument("--gpus-per-node", type=natural, required=True)
    verb.set_defaults(verb=_variants)

    verb = verbs.add_parser("ended", help="(phase scripts) wait for jobs to end, and keep what Slurm says about them")
    verb.add_argument("run", type=Path)
    verb.add_argument("jobs", nargs="*", type=_awaited, metavar="FILE=JOBID[=SECONDS]", help="default: 90 seconds")
    verb.set_defaults(verb=_ended)

    verb = verbs.add_parser("pairs", help="(phase scripts) which pairs of nodes to measure: a round per line")
    verb.add_argument("--nodes", default="")
    verb.add_argument("--here", help="nodes that are there now; pairs with others are left out")
    verb.add_argument(
        "--files", action="store_true", help="instead: the rounds of the file coherence, as coherence.py reads them"
    )
    verb.add_argument("--ring", action="store_true", help="instead: every node with the one after it")
    verb.add_argument("--again", type=Path, help="instead: the pairs of this run that should be measured once more")
    verb.add_argument(
        "--next",
        type=Path,
        metavar="RUN",
        help="instead: the round that follows from what this run has measured so far",
    )
    verb.set_defaults(verb=_pairs)

    verb = verbs.add_parser("open", help="(phase scripts) create a run folder with its plan; as assignments")
    verb.add_argument("phase")
    verb.add_argument("--nodes", required=True, help="node list: n0,n1 or n[0-1]")
    verb.add_argument(
        "--allocated",
        default=os.environ.get("SLURM_JOB_NODELIST"),
        help="those of them that the steps run on (default: the job's, all without a job)",
    )
    verb.add_argument("--gpus-per-node", type=natural, required=True)
    verb.add_argument("--ranks-per-node", type=natural, help="default: one per GPU")
    verb.add_argument("--whole-nodes", action="store_true", help="the partition lets no two jobs share a node")
    verb.add_argument("--profile", default=profiles.from_environment())
    verb.add_argument("--results", type=Path, help="folder of the runs (default: the phase's own)")
    verb.add_argument(
        "--argv", nargs=argparse.REMAINDER, default=[], help="last: the script's own arguments, to be recorded"
    )
    verb.set_defaults(verb=_open)

    verb = verbs.add_parser("close", help="(phase scripts) close a run, judge it, write report.md")
    verb.add_argument("run", type=Path)
    verb.add_argument("--exit-code", type=int, required=True)
    verb.add_argument("--only", action="store_true", help="close it; somebody else judges it")
    verb.set_defaults(verb=_close)


def _awaited(text: str) -> waiting.Awaited:
    """An empty job id: it was refused, and nothing is waited for."""
    match = re.fullmatch(r"([\w.-]+)=([\d_]*)(?:=(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE=JOBID[=SECONDS]")
    return waiting.Awaited(match[1], match[2], float(match[3] or 90))


def _nodes(arguments: argparse.Namespace) -> int:
    from bringup.run import site as at_site

    at, phase = at_site.from_environment(), None if arguments.phase is None else phase_called(arguments.phase)
    at_site.enter(at, arguments.phase)
    if at is not None and phase is not None:
        os.environ.update(at_site.for_submission(at, phase.stem, os.environ))  # with its time limit
    assignments = choice.node_assignments(arguments.nodes, arguments.nodelist, complain, arguments.sharing, phase)
    print("\n".join(assignments))
    return 0


def _scales(arguments: argparse.Namespace) -> int:
    print("\n".join(scales(hostlist.expand(arguments.nodes), arguments.gpus_per_node, arguments.whole)))
    return 0


def _workload(arguments: argparse.Namespace) -> int:
    workload = profiles.load(arguments.profile).workload
    print(workload.arguments if workload is not None else "")
    return 0


def _variants(arguments: argparse.Namespace) -> int:
    nodes = hostlist.expand(arguments.nodes)
    for scale in subjects.scales(len(nodes), arguments.gpus_per_node):
        files, listed = subjects.file_suffix(scale), ",".join(nodes[: scale.nodes])
        for variant in variants.VARIANTS:
            if scale.ranks > 1 and scale.nodes <= variant.most_nodes:
                settings = [f"{name}={value}" for name, value in {**variants.LOG, **variant.settings}.items()]
                step = f"{variant.name} {files} {scale.name} {scale.nodes} {scale.ranks // scale.nodes} {listed}"
                print(step, *settings)
    return 0


def _ended(arguments: argparse.Namespace) -> int:
    """Exit code 0 also when a job did not end in time: then there is no evidence, and its gate says so."""
    waiting.keep_ended_jobs(arguments.run, arguments.jobs)
    return 0


def _pairs(arguments: argparse.Namespace) -> int:
    """A round per line. To standard error: what is not exercised."""
    if arguments.again is not None:
        lines, remark = pairs_again(arguments.again), None
    elif arguments.next is not None:
        lines, remark = pairs_next(arguments.next, set(hostlist.expand(arguments.here)) if arguments.here else set())
    elif not arguments.nodes:
        raise UsageError("pairs: of which nodes? --nodes n0,n1, or --again RUN, or --next RUN")
    else:
        nodes = hostlist.expand(arguments.nodes)
        reachable = set(hostlist.expand(arguments.here)) if arguments.here else set(nodes)
        lines, remark = pair_rounds(nodes, reachable)
        if arguments.ring:
            met = [pair for pair in rounds.ring(nodes) if reachable.issuperset(pair)]
            lines, remark = [rounds.as_line(pairs_of_round) for pairs_of_round in rounds.in_rounds(met)], None
        if arguments.files:
            lines, remark = [",".join(str(number) for number in rounds.circle_rounds(nodes))], None
    print("".join(f"{line}\n" for line in lines), end="")
    if remark is not None:
        print(remark, file=sys.stderr)
    return 0


def _open(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.run import open as opening
    from bringup.run import site as at_site

    phase = phase_called(arguments.phase)
    site = at_site.from_environment()
    if site is not None:
        at_site.refuse_missing(site.site, phase)
    folder = opening.open_run(
        phase,
        nodes=hostlist.expand(arguments.nodes),
        gpus_per_node=arguments.gpus_per_node,
        ranks_per_node=arguments.gpus_per_node if arguments.ranks_per_node is None else arguments.ranks_per_node,
        profile=catalogue.load_profile(arguments.profile),
        argv=[phase.script, *arguments.argv],
        results=arguments.results,
        allocated=hostlist.expand(arguments.allocated) if arguments.allocated else None,
        whole_nodes=arguments.whole_nodes,
        site=site,
    )
    planned = " ".join(results.load(folder).planned)
    assignments = [f"RUN_DIR={shlex.quote(str(folder))}", f"PLANNED={shlex.quote(planned)}"]
    print("\n".join([*assignments, *at_site.assignments(site, phase, folder)]))
    return 0


def _close(arguments: argparse.Namespace) -> int:
    from bringup.run import open as opening
    from bringup.run import signature

    opening.close_run(arguments.run, arguments.exit_code)
    signature.sign(arguments.run / results.CLOSED, complain)
    if arguments.only:
        print(f"{arguments.run}: closed; `bringup run` judges it")
        return 0 if arguments.exit_code == 0 else Outcome.INCOMPLETE.exit_code
    from bringup.report import write

    return write.judge_and_show(arguments.run, None).exit_code
