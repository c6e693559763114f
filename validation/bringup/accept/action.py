"""What `bringup accept` does. The acceptance is signed over the bytes of acceptance.json, which names the contract and
each closed.json by their checksums."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bringup.accept.contract import Contract, parse, proposed
from bringup.accept.lines import of_contract
from bringup.accept.records import Acceptance, OfRun, State
from bringup.kernel.errors import BringupError, RecordError, RunError, UsageError
from bringup.kernel.judge import Judged
from bringup.kernel.plan.profile_text import text_of
from bringup.kernel.records import parse_record, read_record_text, write_record, write_text
from bringup.kernel.results import REPOSITORY, sha256
from bringup.report import collection, outputs, text
from bringup.report.render import render
from bringup.run import open as opening
from bringup.run import signature
from bringup.verb import complain

FOLDER = Path("validation/results/acceptance")
CONTRACT, RECORD, DOCUMENT, PAGE = "contract.yaml", "acceptance.json", "acceptance.md", "acceptance.html"
_LINES = ("state", "line", "seen", "why", "smallest fault found", "by")
_RUNS = ("phase", "run", "opened", "outcome", "nodes", "signed by", "closed.json, SHA-256")
_SIGNED = ("for the", "which is", "name and date", "signature")
_BOOT = "discovery.node.distinct"


def do_accept(arguments: argparse.Namespace) -> int:
    asked = [name for name in ("contract", "template", "check") if getattr(arguments, name)]
    if len(asked) != 1:
        raise UsageError("give one of --contract FILE, --template and --check FILE; docs/acceptance.md explains them")
    if arguments.template:
        output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
        outputs.check([output])
        outputs.write(output, proposed(collection.gather(arguments.runs).judged))
        return 0
    return _check(arguments) if arguments.check else _accept(arguments)


def _accept(arguments: argparse.Namespace) -> int:
    words = text_of(arguments.contract, "contract ")
    contract = parse(words, str(arguments.contract))
    folder = arguments.output or REPOSITORY / FOLDER / f"{contract.contract}-{opening.default_name()}"
    if folder.exists() and not arguments.force:
        raise UsageError(f"-o {folder}: is there already; name a new folder, or add --force")
    made = _made(arguments, contract, words)
    parties = (("vendor", contract.vendor), ("customer", contract.customer))
    tables = {
        "Line by line": (_LINES, [each.row for each in made.results]),
        "What it rests on": (_RUNS, [each.row for each in made.runs]),
        "Signed": (_SIGNED, [[who, name or "", "", ""] for who, name in parties]),
    }
    outputs.make_folder("-o", folder)
    signature.beside(folder / RECORD).unlink(missing_ok=True)  # of what is written over
    write_record(folder / RECORD, made, replace=arguments.force)
    documents = {name: render(f"{name}.j2", made=made, contract=contract, tables=tables) for name in (DOCUMENT, PAGE)}
    for name, document in {CONTRACT: words, **documents}.items():
        write_text(folder / name, document, replace=arguments.force)
    signature.sign(folder / RECORD, complain)
    print(text.columns(_LINES[:5], [each.row[:5] for each in made.results]))
    print(f"\n{made.counted}\nto sign: {text.shown_path(folder / PAGE)}")
    return made.exit_code


def _made(arguments: argparse.Namespace, contract: Contract, words: str) -> Acceptance:
    """Make the acceptance of these runs, now. words: of the contract. Raises RunError where no run was closed."""
    try:
        limits = TypeAdapter(dict[str, str]).validate_json(text_of(arguments.limits) if arguments.limits else "{}")
    except ValidationError as error:
        raise RecordError(f"{arguments.limits}: no limits.json of validation/benchmarks/fault_limits.py") from error
    runs, signers = collection.gather(arguments.runs), signature.signers(arguments.signers)
    closed = [run for run in runs.judged if run.seal is not None and run.seal.closed is not None]
    if not closed:
        raise RunError("none of these runs was closed: there is nothing to accept by; name a playbook that ended")
    in_order = sorted(closed, key=lambda run: run.run.opened_at)
    boots = [boot for run in in_order for boot in run.seen.of(_BOOT) if boot.subject in contract.node_names]
    return Acceptance(
        contract=contract.contract,
        contract_sha256=sha256(words),
        made_at=opening.now(),
        cluster=str(in_order[0].run.of_cluster),
        boots={boot.subject: str(boot.value) for boot in boots if boot.value is not None},
        results=of_contract(contract, runs, limits),
        runs=[_of_run(run, sha256(run.seal.content), signers) for run in closed if run.seal is not None],
    )


def _of_run(judged: Judged, closed_sha256: str, signers: Path | None) -> OfRun:
    try:
        signed_by = None if signers is None else signature.signer(judged, signers)
    except BringupError:
        signed_by = None
    fields = judged.run.model_dump(include={"phase", "name", "opened_at", "nodes"})
    return OfRun(**fields, outcome=judged.verdicts.outcome, closed_sha256=closed_sha256, signed_by=signed_by)


def _check(arguments: argparse.Namespace) -> int:
    """Say whether an acceptance still holds. Exit code 1: it does not. Raises RecordError where its signature does not
    count."""
    path: Path = arguments.check
    content, signers = read_record_text(path, Acceptance), signature.signers(arguments.signers)
    kept, signed = parse_record(path, content, Acceptance), "no signers are named: its signature was not looked at"
    if signers is not None:
        signed = f"signed by {text.plain(signature.verified(path, content, signers))}"
    words = text_of(path.with_name(CONTRACT))
    now = _made(arguments, parse(words, str(path.with_name(CONTRACT))), words)
    differences = kept.otherwise(now)
    print("".join(f"OTHERWISE  {text.plain(line)}\n" for line in differences), end="")
    again = sum(each.state is not State.NOT_ASKED for each in now.results)
    verdict = f"{'does not hold' if differences else 'holds'} as it was accepted {kept.made_at}"
    print(f"{kept.contract} {verdict}; {again} of {text.many(len(kept.results), 'line')} asked again; {signed}")
    return 1 if differences else 0
