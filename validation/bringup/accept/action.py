"""What `bringup accept` does."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path

from bringup.accept import contract, propose, statement
from bringup.accept.records import Acceptance, State
from bringup.kernel.errors import RecordError, UsageError
from bringup.kernel.records import parse_record, read_record_text, write_record, write_text
from bringup.kernel.results import REPOSITORY
from bringup.report import collection, outputs, text
from bringup.report.render import render
from bringup.run import signature
from bringup.verb import CANNOT_TELL, complain

FOLDER = Path("validation/results/acceptance")
PAGE, DOCUMENT = "acceptance.html", "acceptance.md"


def do_accept(arguments: argparse.Namespace) -> int:
    asked = [name for name in ("contract", "template", "check") if getattr(arguments, name)]
    if len(asked) != 1:
        raise UsageError("give one of --contract FILE, --template and --check FILE; docs/acceptance.md explains them")
    if arguments.template:
        return _propose(arguments)
    return _check(arguments) if arguments.check else _accept(arguments)


def _propose(arguments: argparse.Namespace) -> int:
    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    outputs.write(output, propose.text(collection.gather(arguments.runs)))
    return 0


def _accept(arguments: argparse.Namespace) -> int:
    words = contract.text_of(arguments.contract)
    asked, now = contract.parse(words, str(arguments.contract)), datetime.now(timezone.utc)
    folder = arguments.output or REPOSITORY / FOLDER / f"{asked.contract}-{now:%Y%m%d-%H%M%S}"
    if folder.exists() and not arguments.force:
        raise UsageError(f"-o {folder}: is there already; name a new folder, or add --force")
    gathered = collection.gather(arguments.runs)
    made = statement.made(asked, words, gathered, now, arguments.limits, signature.signers(arguments.signers))
    outputs.make_folder("-o", folder)
    signature.beside(folder / statement.RECORD).unlink(missing_ok=True)  # of what is written over
    write_text(folder / statement.CONTRACT, words, replace=arguments.force)
    write_record(folder / statement.RECORD, made, replace=arguments.force)
    for name, template in ((DOCUMENT, "acceptance.md.j2"), (PAGE, "acceptance.html.j2")):
        write_text(folder / name, render(template, made=made, contract=asked), replace=arguments.force)
    signature.sign(folder / statement.RECORD, complain)
    print(
        text.columns(("line", "state", "seen", "why", "smallest fault found"), [each.row[:5] for each in made.results])
    )
    print(f"\n{asked.contract}: {text.many(len(made.results), 'line')}: {made.counted}")
    print(f"to sign: {text.shown_path(folder / PAGE)}")
    return made.exit_code


def _check(arguments: argparse.Namespace) -> int:
    """Say whether an acceptance still holds. Exit code 1: it does not, 2: its signature does not count."""
    path: Path = arguments.check
    content = read_record_text(path, Acceptance)
    kept = parse_record(path, content, Acceptance)
    words = contract.text_of(path.with_name(statement.CONTRACT))
    asked = contract.parse(words, str(path.with_name(statement.CONTRACT)))
    signers = signature.signers(arguments.signers)
    signed = "no signers are named: its signature was not looked at"
    if signers is not None:
        try:
            signed = f"signed by {text.plain(signature.verified(path, content, signers))}"
        except RecordError as error:
            complain(str(error))
            return CANNOT_TELL
    gathered = collection.gather(arguments.runs)
    now = statement.made(asked, words, gathered, datetime.now(timezone.utc), arguments.limits, signers)
    differences = statement.otherwise(kept, words, gathered, now)
    for line in differences:
        print(f"OTHERWISE  {text.plain(line)}")
    verdict = "does not hold as it was accepted" if differences else "holds as it was accepted"
    again = sum(each.state is not State.NOT_ASKED for each in now.results)
    asked_again = f"{again} of {text.many(len(kept.results), 'line')} asked again"
    print(f"{kept.contract}, accepted {kept.made_at}: {verdict}; {asked_again}; {signed}")
    return 1 if differences else 0
