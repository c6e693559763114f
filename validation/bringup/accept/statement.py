"""The acceptance as one statement: of which contract, runs and machines it is, and whether it still holds.

It is signed over the bytes of acceptance.json, which names the contract and each closed.json by their checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from bringup.accept.contract import Contract
from bringup.accept.lines import of_contract
from bringup.accept.records import Acceptance, OfRun, Result, State
from bringup.kernel.errors import BringupError, RecordError, RunError
from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import files
from bringup.kernel.results import sha256
from bringup.report.collection import Collection
from bringup.run import signature

CONTRACT, RECORD = "contract.yaml", "acceptance.json"
_BOOT = "discovery.node.distinct"


def made(
    contract: Contract, text: str, runs: Collection, now: datetime, limits: Path | None, signers: Path | None
) -> Acceptance:
    """Make the acceptance of these runs. text: of the contract. limits: limits.json of fault_limits.py. signers: whose
    signatures count. Raises RunError where there is no run that was closed."""
    judged = [run for run in runs.judged if run.seal is not None and run.seal.closed is not None]
    if not judged:
        raise RunError("none of these runs was closed: there is nothing to accept by; name a playbook that ended")
    known = {} if limits is None else _read_limits(limits)
    results = [_with_limits(each, contract, known) for each in of_contract(contract, runs)]
    return Acceptance(
        contract=contract.contract,
        contract_sha256=sha256(text),
        vendor=contract.vendor,
        customer=contract.customer,
        made_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        cluster=str(judged[0].run.of_cluster),
        boots={node: boot for node, boot in boots(judged).items() if node in contract.node_names},
        results=results,
        runs=[_of_run(run, signers) for run in judged],
    )


def _of_run(run: Judged, signers: Path | None) -> OfRun:
    try:
        signed_by = None if signers is None else signature.signer(run, signers)
    except BringupError:
        signed_by = None
    assert run.seal is not None
    return OfRun(
        phase=run.run.phase,
        name=run.run.name,
        opened_at=run.run.opened_at,
        outcome=run.verdicts.outcome,
        nodes=run.run.nodes,
        closed_sha256=sha256(run.seal.content),
        signed_by=signed_by,
    )


def boots(runs: Iterable[Judged]) -> dict[str, str]:
    """Return the boot id of each node that discovery saw; the newest run counts."""
    in_order = sorted(runs, key=lambda run: run.run.opened_at)
    seen = [fact for run in in_order for fact in run.observations if fact.quantity == _BOOT and fact.value is not None]
    return {fact.subject: str(fact.value) for fact in seen}


def otherwise(kept: Acceptance, contract: str, runs: Collection, now: Acceptance) -> list[str]:
    """Say what is not as it was accepted. contract: the text beside the record. now: made again of these runs."""
    words = [] if sha256(contract) == kept.contract_sha256 else [f"{CONTRACT} is not the one that was accepted"]
    known = {(run.phase, run.name): run.closed_sha256 for run in kept.runs}
    altered = [run for run in now.runs if known.get((run.phase, run.name), run.closed_sha256) != run.closed_sha256]
    words += [f"{run.phase} {run.name}: its closed.json is another one" for run in altered]
    was = {each.line: each.state for each in kept.results}
    for each in now.results:
        lost = was.get(each.line) is State.PROVEN and each.state is State.NOT_PROVEN
        if lost or (each.state is State.REFUTED and was.get(each.line) is not State.REFUTED):
            words.append(f"{each.line}: {each.state}; accepted was {was.get(each.line, 'no such line')}: {each.why}")
    again = [node for node, boot in boots(runs.judged).items() if kept.boots.get(node, boot) != boot]
    return words + [f"booted since: {listed(again)}"] * bool(again)


def _read_limits(path: Path) -> dict[str, str]:
    """Read limits.json of fault_limits.py: check -> how small a fault it found, in how many trials."""
    try:
        return TypeAdapter(dict[str, str]).validate_json(files.read_text(path))
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise RecordError(f"{path}: not a limits.json of validation/benchmarks/fault_limits.py: {why}") from error


def _with_limits(result: Result, contract: Contract, known: dict[str, str]) -> Result:
    line = contract.lines.get(result.line)
    gates: Sequence[str] = [] if line is None else [*line.gates, line.fact or ""]
    of_claims = [id for id, gate in GATES.items() if line is not None and set(gate.claims) & set(line.statements)]
    limits = [known[gate] for gate in dict.fromkeys([*gates, *of_claims]) if gate in known]
    return result.model_copy(update={"limits": limits})
