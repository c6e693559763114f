"""Verbs that the phase scripts call: which nodes, which numbers of nodes, which pairs; open and close a run.

They print lines for the shell.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from bringup import results
from bringup.characters import many
from bringup.cli.arguments import complain, phase_called
from bringup.errors import UsageError
from bringup.evidence import hostlist
from bringup.plan import profile as profiles
from bringup.plan import rounds, subjects, variants
from bringup.records import Outcome
from bringup.run import nodes as choice
from bringup.run import waiting

MOST_NAMED = 8  # nodes of a message


def scales(nodes: list[str], gpus_per_node: int, only_all: bool) -> list[str]:
    """Return a scale per line: ending of its files' names, name, number of nodes, ranks per node, nodes (n0,n1).

    only_all: that of all nodes alone.
    """
    steps = [subjects.full_scale(len(nodes), gpus_per_node)] if only_all else subjects.scales(len(nodes), gpus_per_node)
    return [
        f"{subjects.file_suffix(scale)} {scale.name} {scale.nodes} {scale.ranks // scale.nodes} "
        + ",".join(nodes[: scale.nodes])
        for scale in steps
    ]


def pairs_again(run: Path) -> list[str]:
    """Return rounds of the pairs of this run that should be measured again."""
    from bringup import judge
    from bringup.derive import pairs

    suspects = pairs.suspects(judge.judge_folder(run).observations)
    return [rounds.as_line(pairs_of_round) for pairs_of_round in rounds.in_rounds(suspects)]


def pair_rounds(nodes: list[str], reachable: set[str]) -> tuple[list[str], str]:
    """Return (a round per line, what is not exercised). Pairs with a node that is not reachable now are left out."""
    from bringup.run import open as opening

    number = subjects.pair_rounds(nodes, opening.asked_pair_rounds())
    planned = rounds.in_advance(nodes, number)
    possible_now = [[pair for pair in pairs if reachable.issuperset(pair)] for pairs in planned]
    lines = [rounds.as_line(pairs) for pairs in possible_now]
    absent = f"not there: {', '.join(sorted(set(nodes) - reachable))}"
    if rounds.is_adaptive(nodes, number):
        remark = "round 1 of neighbours; each further one is chosen by what was measured"
        paired = {node for pair in possible_now[0] for node in pair}
        idle = [node for node in nodes if node in reachable and node not in paired]
        remark += f"; idle in the first round, paired in the next one: {', '.join(idle)}" if idle else ""
        return lines, remark if reachable.issuperset(nodes) else f"{remark}; {absent}"
    exercised, possible = sum(map(len, possible_now)), len(nodes) * (len(nodes) - 1) // 2
    why = "BRINGUP_PAIR_ROUNDS=all measures every pair" if reachable.issuperset(nodes) else absent
    counted = f"{many(len(planned), 'round')}, {exercised} of {possible} pairs"
    return lines, f"{counted}; not exercised: {possible - exercised} ({why})"


def pairs_next(run: Path, reachable: set[str]) -> tuple[list[str], str | None]:
    """Return (the next round, or nothing; what is said of it). Nothing, too, where all rounds were known in advance.

    reachable: nodes that are there now; none: all of the run.
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
    measured = pairs.measured_rounds(judged.observations)
    chosen = next_round(present, measured)
    phrases = localise.words(localise.culprits(present, measured), present)
    if not chosen:
        return [], "; ".join(["no further round", *phrases])
    paired = {node for pair in chosen for node in pair}
    idle = [node for node in present if node not in paired]
    remarks = [f"{len(idle)} idle: {', '.join(idle[:MOST_NAMED])}"] if idle else []
    return [rounds.as_line(chosen)], "; ".join([f"after round {len(measured)}", *phrases, *remarks])


# --- the verbs


def do_nodes(arguments: argparse.Namespace) -> int:
    from bringup.run import site as at_site

    phase = None if arguments.phase is None else phase_called(arguments.phase)
    at = at_site.entered(arguments.phase)
    if at is not None and phase is not None:
        os.environ.update(at_site.for_submission(at, phase.stem, os.environ))  # with its time limit
    assignments = choice.node_assignments(arguments.nodes, arguments.nodelist, complain, arguments.sharing, phase)
    print("\n".join(assignments))
    return 0


def do_scales(arguments: argparse.Namespace) -> int:
    print("\n".join(scales(hostlist.expand(arguments.nodes), arguments.gpus_per_node, arguments.whole)))
    return 0


def do_workload(arguments: argparse.Namespace) -> int:
    from bringup.run import discovered

    allocated = os.environ.get("SLURM_JOB_NODELIST")
    nodes = hostlist.expand(allocated) if allocated else []
    workload = discovered.profile(profiles.load(arguments.profile), nodes).workload
    print(workload.arguments if workload is not None else "")
    return 0


def do_variants(arguments: argparse.Namespace) -> int:
    nodes = hostlist.expand(arguments.nodes)
    for scale in subjects.scales(len(nodes), arguments.gpus_per_node):
        files, listed = subjects.file_suffix(scale), ",".join(nodes[: scale.nodes])
        for variant in variants.VARIANTS:
            if scale.ranks > 1 and scale.nodes <= variant.most_nodes:
                settings = [f"{name}={value}" for name, value in {**variants.LOG, **variant.settings}.items()]
                step = f"{variant.name} {files} {scale.name} {scale.nodes} {scale.ranks // scale.nodes} {listed}"
                print(step, *settings)
    return 0


def do_ended(arguments: argparse.Namespace) -> int:
    """Exit code 0 also when a job did not end in time: then there is no evidence, and its gate says so."""
    waiting.keep_ended_jobs(arguments.run, arguments.jobs)
    return 0


def do_pairs(arguments: argparse.Namespace) -> int:
    """Print a round per line. To standard error: what is not exercised."""
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
            ring = [pair for pair in rounds.ring(nodes) if reachable.issuperset(pair)]
            lines, remark = [rounds.as_line(pairs_of_round) for pairs_of_round in rounds.in_rounds(ring)], None
        if arguments.files:
            lines, remark = [",".join(str(number) for number in rounds.circle_rounds(nodes))], None
    print("".join(f"{line}\n" for line in lines), end="")
    if remark is not None:
        print(remark, file=sys.stderr)
    return 0


def do_open(arguments: argparse.Namespace) -> int:
    from bringup.plan import catalogue
    from bringup.run import open as opening
    from bringup.run import site as at_site

    phase = phase_called(arguments.phase)
    site = at_site.from_environment()
    if site is not None:
        at_site.refuse_missing(site.site, phase)
    opening.refuse_without_torch(phase, site)
    folder = opening.open_run(
        phase,
        nodes=hostlist.expand(arguments.nodes),
        gpus_per_node=arguments.gpus_per_node,
        ranks_per_node=arguments.ranks_per_node,
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


def do_close(arguments: argparse.Namespace) -> int:
    from bringup.run import open as opening
    from bringup.run import signature

    opening.close_run(arguments.run, arguments.exit_code)
    signature.sign(arguments.run / results.CLOSED, complain)
    if arguments.only:
        print(f"{arguments.run}: closed; `bringup run` judges it")
        return 0 if arguments.exit_code == 0 else Outcome.INCOMPLETE.exit_code
    from bringup.report import write

    return write.judge_and_show(arguments.run, None).exit_code
