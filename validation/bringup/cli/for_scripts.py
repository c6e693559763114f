"""Verbs that the phase scripts call: which nodes, which numbers of nodes, which pairs; open and close a run.

They print lines for the shell.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from bringup.kernel import results
from bringup.kernel.characters import many
from bringup.kernel.errors import UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.plan import profile, rounds, subjects, variants
from bringup.kernel.records import Outcome
from bringup.kernel.run_folder import RunFolder
from bringup.run import nodes as choice
from bringup.run import site as at_site
from bringup.run import waiting
from bringup.verb import complain, phase_called

if TYPE_CHECKING:
    from bringup.kernel.judge import Judged

MOST_NAMED = 8  # nodes of a message


def _adaptive(nodes: list[str]) -> tuple[int | None, bool]:
    """Return (rounds that the user asked for, whether only the first one is known in advance)."""
    number = subjects.pair_rounds(nodes, os.environ.get("BRINGUP_PAIR_ROUNDS", ""))
    return number, rounds.is_adaptive(nodes, number)


def _planned_pairs(nodes: list[str], reachable: set[str]) -> tuple[list[list[rounds.Pair]], str]:
    """Return (rounds, what is not exercised). Pairs with a node that is not reachable now are left out."""
    number, is_adaptive = _adaptive(nodes)
    planned = rounds.in_advance(nodes, number)
    possible_now = [[pair for pair in pairs if reachable.issuperset(pair)] for pairs in planned]
    absent = f"not there: {', '.join(sorted(set(nodes) - reachable))}"
    if is_adaptive:
        remark = "round 1 of neighbours; each further one is chosen by what was measured"
        idle = _unpaired([node for node in nodes if node in reachable], possible_now[0])
        remark += f"; idle in the first round, paired in the next one: {', '.join(idle)}" if idle else ""
        return possible_now, remark if reachable.issuperset(nodes) else f"{remark}; {absent}"
    exercised, possible = sum(map(len, possible_now)), len(nodes) * (len(nodes) - 1) // 2
    why = "BRINGUP_PAIR_ROUNDS=all measures every pair" if reachable.issuperset(nodes) else absent
    counted = f"{many(len(planned), 'round')}, {exercised} of {possible} pairs"
    return possible_now, f"{counted}; not exercised: {possible - exercised} ({why})"


def _next_pairs(judged: Judged, reachable: set[str]) -> tuple[list[list[rounds.Pair]], str | None]:
    """Return (the next round, or nothing; what is said of it). Nothing, too, where all rounds were known in advance.

    reachable: nodes that are there now; none: all of the run.
    """
    from bringup.domains import localise, pairs
    from bringup.domains.next_round import next_round

    if not _adaptive(judged.run.nodes)[1]:
        return [], None
    present = [node for node in judged.run.nodes if node in reachable or not reachable]
    measured = pairs.measured_rounds(judged.observations)
    chosen = next_round(present, measured)
    phrases = localise.words(localise.culprits(present, measured), present)
    if not chosen:
        return [], "; ".join(["no further round", *phrases])
    idle = _unpaired(present, chosen)
    remarks = [f"{len(idle)} idle: {', '.join(idle[:MOST_NAMED])}"] if idle else []
    return [chosen], "; ".join([f"after round {len(measured)}", *phrases, *remarks])


def _unpaired(nodes: list[str], pairs: list[rounds.Pair]) -> list[str]:
    return [node for node in nodes if not any(node in pair for pair in pairs)]


def do_pairs(arguments: argparse.Namespace) -> int:
    """Print a round per line. To standard error: what is not exercised."""
    nodes, here = (hostlist.expand(listed) if listed else [] for listed in (arguments.nodes, arguments.here))
    reachable, remark = set(here or nodes), None
    if arguments.again is not None or arguments.next is not None:
        from bringup.domains import pairs
        from bringup.kernel import judge

        judged = judge.judge_folder(arguments.again or arguments.next)
        if arguments.again is None:
            chosen, remark = _next_pairs(judged, set(here))
        else:
            chosen = rounds.in_rounds(pairs.suspects(judged.observations))
    elif not nodes:
        raise UsageError("pairs: of which nodes? --nodes n0,n1, or --again RUN, or --next RUN")
    elif arguments.files:
        print(",".join(map(str, rounds.circle_rounds(nodes))))
        return 0
    elif arguments.ring:
        chosen = rounds.in_rounds([pair for pair in rounds.ring(nodes) if reachable.issuperset(pair)])
    else:
        chosen, remark = _planned_pairs(nodes, reachable)
    print("".join(f"{rounds.as_line(pairs_of_round)}\n" for pairs_of_round in chosen), end="")
    if remark is not None:
        print(remark, file=sys.stderr)
    return 0


def do_nodes(arguments: argparse.Namespace) -> int:
    phase = None if arguments.phase is None else phase_called(arguments.phase)
    at = at_site.entered(arguments.phase)
    if at is not None and phase is not None:
        os.environ.update(at_site.for_submission(at, phase.stem, os.environ))  # with its time limit
    print("\n".join(choice.node_assignments(arguments.nodes, arguments.nodelist, complain, arguments.sharing, phase)))
    return 0


def _in_words(scale: subjects.Scale, nodes: list[str]) -> str:
    """Ending of its files' names, name, number of nodes, ranks per node, nodes (n0,n1)."""
    ranks, listed = scale.ranks // scale.nodes, hostlist.shortened(nodes[: scale.nodes])
    return f"{subjects.file_suffix(scale)} {scale.name} {scale.nodes} {ranks} {listed}"


def do_scales(arguments: argparse.Namespace) -> int:
    nodes, gpus = hostlist.expand(arguments.nodes), arguments.gpus_per_node
    steps = [subjects.full_scale(len(nodes), gpus)] if arguments.whole else subjects.scales(len(nodes), gpus)
    print("\n".join(_in_words(scale, nodes) for scale in steps))
    return 0


def do_workload(arguments: argparse.Namespace) -> int:
    from bringup.run import auto_profile

    allocated = os.environ.get("SLURM_JOB_NODELIST")
    nodes = hostlist.expand(allocated) if allocated else []
    workload = auto_profile.profile(profile.load(arguments.profile, strict=False), nodes).workload
    print(workload.arguments if workload is not None else "")
    return 0


def do_variants(arguments: argparse.Namespace) -> int:
    nodes = hostlist.expand(arguments.nodes)
    for scale in subjects.scales(len(nodes), arguments.gpus_per_node):
        for variant in variants.VARIANTS:
            if scale.ranks > 1 and scale.nodes <= variant.most_nodes:
                settings = [f"{name}={value}" for name, value in {**variants.LOG, **variant.settings}.items()]
                print(variant.name, _in_words(scale, nodes), *settings)
    return 0


def do_ended(arguments: argparse.Namespace) -> int:
    """Exit code 0 also when a job did not end in time: then there is no evidence, and its gate says so."""
    waiting.keep_ended_jobs(arguments.run, [waiting.Awaited(*job) for job in arguments.jobs])
    return 0


def do_open(arguments: argparse.Namespace) -> int:
    from bringup.run import open as opening

    phase = phase_called(arguments.phase)
    if (site := at_site.from_environment()) is not None:
        at_site.refuse_missing(site.site, phase)
    opening.refuse_without_torch(phase, site)
    folder = opening.open_run(
        phase,
        nodes=hostlist.expand(arguments.nodes),
        profile=profile.load(arguments.profile),
        argv=[phase.script, *arguments.argv],
        allocated=hostlist.expand(arguments.allocated) if arguments.allocated else None,
        site=site,
        **{name: getattr(arguments, name) for name in ("gpus_per_node", "ranks_per_node", "results", "whole_nodes")},
    )
    planned = " ".join(RunFolder(folder).run.planned)
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
