"""Verbs for the time after bring-up: the baseline of the health check, nodes to resume, idle nodes, the certificate."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from bringup.cli.arguments import CANNOT_TELL, complain
from bringup.errors import RecordError, UsageError
from bringup.plan.phases import PREFLIGHT


def do_site_baseline(arguments: argparse.Namespace) -> int:
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


def do_resume_nodes(arguments: argparse.Namespace) -> int:
    from bringup.daily import resume_nodes
    from bringup.evidence import hostlist
    from bringup.plan import catalogue
    from bringup.plan import profile as profiles
    from bringup.run import playbook
    from bringup.run import site as at_site

    site = at_site.entered()
    profile = catalogue.load_profile(arguments.profile)
    request = playbook.Request(profile, profiles.portable(arguments.profile), strict=True, site=site)
    only, witnesses = (hostlist.expand(text) if text else [] for text in (arguments.nodelist, arguments.witnesses))
    return resume_nodes.resume(only, witnesses, arguments.apply, request, print)


def do_certificate(arguments: argparse.Namespace) -> int:
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
    from datetime import datetime, timezone

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
        signed = {run.folder / CLOSED: partial(signature.closer, run, signers) for run in gathered.judged}
        content = arguments.check.read_bytes()
        for path, signer in {
            arguments.check: partial(signature.signer, arguments.check, content, signers),
            **signed,
        }.items():
            try:
                print(f"{text.shown_path(path)}: signed by {text.plain(signer())}")
            except RecordError as error:
                doubts.append(str(error))
    if doubts:
        print("\n".join(["it cannot be relied on:", *map(text.plain, doubts)]))
    broken = certificate.broken(record, gathered.judged, datetime.now(timezone.utc))
    if broken:
        print("\n".join(["it no longer holds:", *map(text.plain, broken)]))
    if not doubts and not broken:
        print(f"every condition still holds, {certificate.scope_of(record, gathered.judged)}")
    return CANNOT_TELL if doubts else 1 if broken else 0


def do_preflight(arguments: argparse.Namespace) -> int:
    from bringup.daily.preflight import flow
    from bringup.plan import catalogue
    from bringup.plan import profile as profiles
    from bringup.run import site as at_site

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("preflight: which command? bringup preflight --nodes 2 -- srun python train.py")
    site = at_site.from_environment()  # its variables for sbatch and srun are not the command's
    request = flow.Request(
        command=command,
        nodes=arguments.nodes,
        spares=arguments.spares,
        retries=arguments.retries,
        stall_after_s=arguments.stall_after,
        phases=[stem for stem in PREFLIGHT if stem in arguments.phases],
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    # standard output is the command's
    return flow.run(request, os.environ, lambda line: print(f"preflight: {line}", file=sys.stderr, flush=True))


def do_watch(arguments: argparse.Namespace) -> int:
    from bringup.daily import watch
    from bringup.evidence import hostlist
    from bringup.plan import catalogue
    from bringup.plan import profile as profiles
    from bringup.run import site as at_site

    catalogue.load_profile(arguments.profile)  # before the first request to Slurm
    site = at_site.entered()
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
