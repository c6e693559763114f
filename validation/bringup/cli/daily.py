"""Verbs for the time after bring-up: the baseline of the health check, nodes to resume, idle nodes, the certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.cli.command_line import profile_of_the_environment

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser(
        "site-baseline", help="what the health check of a node compares with, from runs that passed"
    )
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="runs of discovery, or playbooks that hold one")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new .json file (default: standard output)")
    verb.set_defaults(verb=_site_baseline)

    verb = verbs.add_parser(
        "resume-nodes",
        help="nodes that bringup drained and that pass again; others stay as they are. Says, without --apply",
    )
    verb.add_argument("--nodelist", help="these alone: n[0-3] (default: all that are kept out of service)")
    verb.add_argument(
        "--with", dest="witnesses", metavar="NODES", help="healthy idle nodes, for gates that compare nodes"
    )
    verb.add_argument("--apply", action="store_true", help="resume; ask again, in a reservation, what a run drained")
    profile_of_the_environment(verb, "name or .yaml path")
    verb.set_defaults(verb=_resume_nodes)


def _site_baseline(arguments: argparse.Namespace) -> int:
    from bringup import judge, results
    from bringup.daily import baseline
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), outputs.BASELINE)
    outputs.check([output])
    found = results.find(arguments.runs)
    made = baseline.made_of([judge.judge_folder(folder) for folder in found.once])
    outputs.write(output, made.model_dump_json(indent=1) + "\n")
    if not output.is_standard_output:
        nodes, asked = sum(len(group.nodes) for group in made.groups), len(made.groups[-1].asked)
        print(f"{arguments.output}: {nodes} nodes, {asked} questions; infrastructure-validation/slurm/install takes it")
    return 0


def _resume_nodes(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.daily import resume_nodes
    from bringup.evidence import hostlist
    from bringup.plan import profile as profiles
    from bringup.run import playbook
    from bringup.run import site as at_site

    site = at_site.from_environment()
    at_site.enter(site)
    request = playbook.Request(
        nodes=None,
        nodelist=None,
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        phases=[],
        resume=None,
        strict=True,
        site=site,
    )
    only, witnesses = (hostlist.expand(said) if said else [] for said in (arguments.nodelist, arguments.witnesses))
    return resume_nodes.resume(only, witnesses, arguments.apply, request, print)
