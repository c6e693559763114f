"""Verbs that the phase scripts call: which nodes, which pairs, open a run, close it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bringup import hostlist, judge, pipeline, plan, runs, slurm, tournament
from bringup.gates.discovery import USABLE_STATES
from bringup.parsers import pairwise
from bringup.phases import PHASES
from bringup.profile import from_environment
from bringup.verbs.verb import Verbs, judge_and_show, load_profile, natural


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("nodes", help="(phase scripts) which nodes were asked for")
    one.add_argument("--nodes", type=int)
    one.add_argument("--nodelist")
    one.add_argument("--usable", action="store_true", help="only those that Slurm would use now")
    one.add_argument("--gpus", action="store_true", help="GPUs per node that Slurm has configured, instead of names")
    one.set_defaults(verb=_nodes)

    one = verbs.add_parser("pairs", help="(phase scripts) which pairs of nodes to measure: a round per line")
    one.add_argument("--nodes", default="")
    one.add_argument("--here", help="nodes that are there now; pairs with others are left out")
    one.add_argument(
        "--files", action="store_true", help="instead: the rounds of the file coherence, as coherence.py reads them"
    )
    one.add_argument("--again", type=Path, help="instead: the pairs of this run that should be measured once more")
    one.set_defaults(verb=_pairs)

    one = verbs.add_parser("open", help="(phase scripts) create a run folder with its plan; prints its path")
    one.add_argument("phase")
    one.add_argument("--nodes", required=True, help="node list: n0,n1 or n[0-1]")
    one.add_argument("--gpus-per-node", type=natural, required=True)
    one.add_argument("--ranks-per-node", type=natural, help="default: one per GPU")
    one.add_argument("--profile", default=from_environment())
    one.add_argument("--results", type=Path, help="folder of the runs (default: the phase's own)")
    one.add_argument(
        "--argv", nargs=argparse.REMAINDER, default=[], help="last: the script's own arguments, to be recorded"
    )
    one.set_defaults(verb=_open)

    one = verbs.add_parser("close", help="(phase scripts) close a run, judge it, write report.md")
    one.add_argument("run", type=Path)
    one.add_argument("--exit-code", type=int, required=True)
    one.set_defaults(verb=_close)


def _nodes(arguments: argparse.Namespace) -> int:
    try:
        names = slurm.patiently(lambda: pipeline.requested_nodes(arguments.nodes, arguments.nodelist), _say)
        states, gpus = slurm.patiently(slurm.node_facts, _say)
    except slurm.SlurmError as error:
        raise ValueError(str(error)) from error
    if arguments.gpus:
        print(max(gpus.get(name, 0) for name in names))
    else:
        print(",".join(name for name in names if not arguments.usable or states.get(name) in USABLE_STATES))
    return 0


def _say(text: str) -> None:
    print(f"bringup: {text}", file=sys.stderr)


def _pairs(arguments: argparse.Namespace) -> int:
    """A round per line. To standard error: what is not exercised."""
    if arguments.again is not None:
        observations, _ = judge.judge_folder(arguments.again)
        for met in tournament.in_rounds(pairwise.suspects(observations.observations)):
            print(tournament.say(met))
        return 0
    nodes = hostlist.expand(arguments.nodes)
    if arguments.files:
        print(",".join(str(number) for number in tournament.circle_rounds(nodes)))
        return 0
    here = set(hostlist.expand(arguments.here)) if arguments.here else set(nodes)
    planned = tournament.rounds(nodes, plan.pair_rounds(nodes))
    played = [[pair for pair in met if here.issuperset(pair)] for met in planned]
    for met in played:
        print(tournament.say(met))
    exercised, possible = sum(map(len, played)), len(nodes) * (len(nodes) - 1) // 2
    print(
        f"{len(planned)} round(s), {exercised} of {possible} pairs; not exercised: {possible - exercised} "
        + (
            "(BRINGUP_PAIR_ROUNDS=all measures every pair)"
            if here.issuperset(nodes)
            else f"(not there: {', '.join(sorted(set(nodes) - here))})"
        ),
        file=sys.stderr,
    )
    return 0


def _open(arguments: argparse.Namespace) -> int:
    if arguments.phase not in PHASES:
        raise ValueError(f"no phase is called {arguments.phase!r}; there are {', '.join(PHASES)}")
    folder = runs.open_run(
        PHASES[arguments.phase],
        nodes=hostlist.expand(arguments.nodes),
        gpus_per_node=arguments.gpus_per_node,
        ranks_per_node=arguments.gpus_per_node if arguments.ranks_per_node is None else arguments.ranks_per_node,
        profile=load_profile(arguments.profile),
        argv=[PHASES[arguments.phase].script, *arguments.argv],
        results=arguments.results,
    )
    print(folder)
    return 0


def _close(arguments: argparse.Namespace) -> int:
    runs.close_run(arguments.run, arguments.exit_code)
    return judge_and_show(arguments.run, None)
