"""Verbs before a run: what would stop one, what its site file sets, what is checked; completion of verbs in a shell."""

import argparse
import json
from pathlib import Path

from bringup.kernel.errors import UsageError
from bringup.kernel.plan import catalogue, own
from bringup.kernel.plan.phases import PHASES
from bringup.report import text
from bringup.report.render import render
from bringup.report.terminal import console
from bringup.run import site as at_site
from bringup.run.before import cluster, doctor, new_site
from bringup.verb import phase_called


def do_doctor(arguments: argparse.Namespace) -> int:
    lines = doctor.look(arguments.profile)
    console().print(render("doctor.txt.j2", lines=lines))
    return doctor.exit_code(lines)


def do_site(arguments: argparse.Namespace) -> int:
    if arguments.init is not None:
        return _write_site(arguments.init)
    if arguments.phase is not None:
        phase_called(arguments.phase)
    if (at := at_site.from_environment()) is None:
        raise UsageError("no site file is used; name one: export BRINGUP_SITE=NAME, or the path of a .yaml file")
    if arguments.export:
        print("\n".join(at_site.for_a_person(at, arguments.phase)))
        return 0
    rows = text.site_rows(at_site.used(at.site, arguments.phase))
    print(f"{text.shown_path(at.file)}\n" + text.columns(("key", "value", "here instead"), rows))
    return 0


def _write_site(named: str) -> int:
    is_path = named.endswith((".yaml", ".yml"))
    new = new_site.suggest(cluster.read(), Path(named).name.split(".")[0] if is_path else named or None)
    path = new_site.write(new, named)
    print("\n".join(text.wrapped(f"assumed    {line}", len("assumed    ")) for line in new.assumed))
    print(f"wrote      {text.shown_path(path)}")
    print(f"next       export BRINGUP_SITE={path.resolve() if is_path else new.site.name} && bringup doctor")
    return 0


def do_gates(arguments: argparse.Namespace) -> int:
    listed = list(catalogue.GATES.values()) if arguments.site is None else own.read(arguments.site)

    if arguments.json:
        fields = ("id", "per", "rule", "unit", "severity", "proves", "phases", "claims", "fix")
        gates = [{field: getattr(gate, field) for field in fields} | {"action": gate.helps} for gate in listed]
        print(json.dumps(gates, indent=1))
        return 0
    rows = [(gate.id, gate.helps, gate.proves) for gate in listed]  # their rules and units: --json
    print(text.columns(("gate", "usual fix", "a pass says"), rows))
    return 0


def do_completion(arguments: argparse.Namespace) -> int:
    """Print a script for the shell, made from the verbs themselves. Once it is loaded, a TAB starts no Python."""
    import shtab

    from bringup.cli import parser

    top = parser()
    [verbs] = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    for verb in verbs.choices.values():
        for action in verb._actions:
            if action.type is Path or action.metavar == "RUN":
                vars(action)["complete"] = shtab.FILE
            elif action.metavar == "PHASE":
                action.choices = list(PHASES)
    print(shtab.complete(top, arguments.shell))
    return 0
