"""Verbs for the time after bring-up: the baseline of the health check, nodes to resume, idle nodes, the certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.cli.command_line import (
    CANNOT_TELL,
    complain,
    most_drained,
    natural,
    profile_of_the_environment,
    signers_of_the_site,
)
from bringup.errors import RecordError

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

    verb = verbs.add_parser("watch", help="sweep nodes while they are idle; jobs of others go first")
    verb.add_argument(
        "--idle", action="store_true", required=True, help="nodes that nobody uses: nothing else is watched"
    )
    verb.add_argument("--nodelist", help="these alone: n[0-3] (default: all of the partition)")
    verb.add_argument("--most", type=natural, default=1, metavar="N", help="sweeps at once (default: %(default)s)")
    verb.add_argument(
        "--every", type=natural, default=24, metavar="H", help="hours between two of a node (default: %(default)s)"
    )
    verb.add_argument("--once", action="store_true", help="end when every node that is idle and due was swept")
    verb.add_argument("--apply", action="store_true", help="drain a node that fails; without it the line is printed")
    most_drained(verb)
    profile_of_the_environment(verb, "name or .yaml path")
    verb.set_defaults(verb=_watch)

    verb = verbs.add_parser("certificate", help="a dated statement of a whole pass, with what it does not say")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a playbook's folder, and that of its drills")
    verb.add_argument("-o", "--output", type=Path, default=Path(), metavar="FOLDER", help="default: this one")
    verb.add_argument("--name", default="Certificate", help="its title (default: %(default)s)")
    verb.add_argument("--days", type=natural, default=90, help="that it holds at most (default: %(default)s)")
    verb.add_argument("--partly", action="store_true", help="also of less than a whole pass; it says so at its top")
    verb.add_argument(
        "--check", type=Path, metavar="FILE", help="only compare: does certificate.json hold in these runs?"
    )
    signers_of_the_site(verb)
    verb.set_defaults(verb=_certificate)


def _site_baseline(arguments: argparse.Namespace) -> int:
    from bringup import judge, results
    from bringup.daily import baseline
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), outputs.BASELINE)
    outputs.check([output])
    runs = results.find(arguments.runs)
    made = baseline.made_of([judge.judge_folder(folder) for folder in runs.once])
    outputs.write(output, made.model_dump_json(indent=1) + "\n")
    if not output.is_standard_output:
        nodes, limits = sum(len(group.nodes) for group in made.groups), len(made.groups[-1].asked)
        print(
            f"{arguments.output}: {nodes} nodes, {limits} questions; infrastructure-validation/slurm/install takes it"
        )
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
    only, witnesses = (hostlist.expand(text) if text else [] for text in (arguments.nodelist, arguments.witnesses))
    return resume_nodes.resume(only, witnesses, arguments.apply, request, print)


def _certificate(arguments: argparse.Namespace) -> int:
    from bringup.daily import certificate
    from bringup.records import Mark
    from bringup.report import collection, outputs, text
    from bringup.results import SIGNATURE
    from bringup.run import signature

    if arguments.check is not None:
        return _check(arguments)
    folder = arguments.output
    page, record, signed = (
        outputs.Output("-o", folder / name, kind)
        for name, kind in (
            ("certificate.md", outputs.CERTIFICATE),
            ("certificate.json", outputs.CERTIFIED),
            (f"certificate.json{SIGNATURE}", outputs.SIGNATURE),
        )
    )
    outputs.make_folder("-o", folder)
    outputs.check([page, record, signed])
    made = certificate.made_of(collection.gather(arguments.runs), arguments.name, arguments.days, arguments.partly)
    signed.path.unlink(missing_ok=True)  # of the one before
    outputs.write(record, made.model_dump_json(indent=1) + "\n")
    outputs.write(page, certificate.markdown(made, signature.sign(record.path, complain)))
    less = "" if made.mark is Mark.PASS else f"; {len(made.does_not_say)} claims are not proven, and it says so"
    print(f"{made.mark.upper()}: {text.shown_path(page.path)}, {len(made.nodes)} nodes, until {made.holds_until}{less}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Exit code: 1 it no longer holds, 2 it or the runs cannot be relied on."""
    from datetime import UTC, datetime

    from bringup.daily import certificate
    from bringup.records import Certificate, read_record
    from bringup.report import collection, text
    from bringup.results import CLOSED
    from bringup.run import signature

    record, gathered = read_record(arguments.check, Certificate), collection.gather(arguments.runs)
    signers = signature.signers(arguments.signers)
    doubts = certificate.altered(record, gathered)
    if signers is None:
        print("not verified: who made it, and who closed the runs (--signers)")
    else:
        for path in (arguments.check, *(run.folder / CLOSED for run in gathered.judged)):
            try:
                print(f"{text.shown_path(path)}: signed by {text.plain(signature.signer(path, signers))}")
            except RecordError as error:
                doubts.append(str(error))
    if doubts:
        print("\n".join(["it cannot be relied on:", *map(text.plain, doubts)]))
    broken = certificate.broken(record, gathered.judged, datetime.now(UTC))
    if broken:
        print("\n".join(["it no longer holds:", *map(text.plain, broken)]))
    if not doubts and not broken:
        print(f"every condition still holds, {certificate.scope_of(record, gathered.judged)}")
    return CANNOT_TELL if doubts else 1 if broken else 0


def _watch(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.daily import watch
    from bringup.evidence import hostlist
    from bringup.plan import profile as profiles
    from bringup.run import site as at_site

    catalogue.load_profile(arguments.profile)  # before the first request to Slurm
    site = at_site.from_environment()
    at_site.enter(site)
    request = watch.Request(
        most=arguments.most,
        every_s=arguments.every * 3600,
        once=arguments.once,
        nodelist=hostlist.expand(arguments.nodelist) if arguments.nodelist else [],
        profile_name=profiles.portable(arguments.profile),
        site=site,
        apply=arguments.apply,
        most_drained=arguments.most_drained,
    )
    return watch.watch(request, lambda line: print(line, flush=True))
