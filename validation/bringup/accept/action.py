"""What `bringup accept` does. The signature is over acceptance.json, which holds contract and checksums of the runs."""

import argparse
from pathlib import Path

from bringup.accept.contract import Contract, parse, proposed
from bringup.accept.lines import of_contract
from bringup.accept.records import Acceptance, State
from bringup.kernel.errors import RunError, UsageError
from bringup.kernel.plan.profile_text import read, text_of
from bringup.kernel.records import parse_record, read_record_text, write_record, write_text
from bringup.kernel.results import REPOSITORY, sha256
from bringup.report import collection, outputs, text
from bringup.report.render import render
from bringup.run import open as opening
from bringup.run import signature
from bringup.verb import CANNOT_TELL, complain

FOLDER = Path("validation/results/acceptance")
RECORD, DOCUMENT, PAGE = "acceptance.json", "acceptance.md", "acceptance.html"
_LINES = ("state", "line", "seen", "why", "smallest fault found", "by")
_SIGNED = ("for the", "which is", "name and date", "signature")


def do_accept(arguments: argparse.Namespace) -> int:
    if sum(map(bool, (arguments.contract, arguments.template, arguments.check))) != 1:
        raise UsageError("give one of --contract FILE, --template and --check FILE; docs/acceptance.md explains them")
    if arguments.template:
        outputs.check([output := outputs.Output("-o", arguments.output or Path("-"), arguments.force)])
        outputs.write(output, proposed(collection.gather(arguments.runs).judged))
        return 0
    return _check(arguments) if arguments.check else _accept(arguments)


def _accept(arguments: argparse.Namespace) -> int:
    contract = parse(text_of(arguments.contract, "contract "), str(arguments.contract))
    folder = arguments.output or REPOSITORY / FOLDER / f"{contract.contract}-{opening.default_name()}"
    if folder.exists() and not arguments.force:
        raise UsageError(f"-o {folder}: is there already; name a new folder, or add --force")
    made = _made(arguments, contract)
    outputs.make_folder("-o", folder)
    signature.beside(folder / RECORD).unlink(missing_ok=True)  # of what is written over
    write_record(folder / RECORD, made, replace=arguments.force)
    rows = [each.row for each in made.results]
    tables = {
        "Line by line": (_LINES, rows),
        "What it rests on": (("run", "its closed.json, SHA-256"), [(run, sha) for sha, run in made.closed.items()]),
        "Signed": (_SIGNED, [("vendor", contract.vendor, "", ""), ("customer", contract.customer, "", "")]),
    }
    for name in (DOCUMENT, PAGE):
        write_text(folder / name, render(f"{name}.j2", made=made, tables=tables), replace=arguments.force)
    signature.sign(folder / RECORD, complain)
    print(text.columns(_LINES[:5], [row[:5] for row in rows]))
    print(f"\n{made.counted}\nto sign: {text.shown_path(folder / PAGE)}")
    return made.exit_code


def _made(arguments: argparse.Namespace, contract: Contract) -> Acceptance:
    """Make the acceptance of these runs, now. Raises RunError where no run was closed."""
    limits = read(text_of(arguments.limits), str(arguments.limits), "limits.json") if arguments.limits else {}
    runs = collection.gather(arguments.runs)
    closed = {run.seal.content: run for run in runs.judged if run.seal is not None and run.seal.closed is not None}
    if not closed:
        raise RunError("none of these runs was closed: there is nothing to accept by; name a playbook that ended")
    boots = (boot for run in closed.values() for boot in run.seen.of("discovery.node.distinct"))
    return Acceptance(
        contract=contract,
        made_at=opening.now(),
        cluster=str(runs.judged[0].run.of_cluster),
        boots={boot.subject: str(boot.value) for boot in boots if boot.value and boot.subject in contract.node_names},
        results=of_contract(contract, runs, limits),
        closed={sha256(content): f"{run.folder.parent.name}/{run.folder.name}" for content, run in closed.items()},
    )


def _check(arguments: argparse.Namespace) -> int:
    """Say whether an acceptance still holds. Raises RecordError where its signature does not count."""
    path, signers = arguments.check, signature.signers(arguments.signers)
    content, signed = read_record_text(path, Acceptance), "no signers are named: its signature was not looked at"
    kept = parse_record(path, content, Acceptance)
    if signers is not None:
        signed = f"signed by {signature.verified(path, content, signers)}"
    now = _made(arguments, kept.contract)
    differences = kept.otherwise(now)
    again = sum(each.state is not State.NOT_ASKED for each in now.results)
    asked = f"as it was accepted {kept.made_at}; {again} of {text.many(len(kept.results), 'line')} asked again"
    holds = "does not hold" if differences else "holds" if again else "was not asked again"
    words = [f"OTHERWISE  {line}" for line in differences] + [f"{kept.contract.contract} {holds} {asked}; {signed}"]
    print("\n".join(map(text.plain, words)))
    return 1 if differences else 0 if again else CANNOT_TELL
