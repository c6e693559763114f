"""A dated statement of a whole pass: what was asked, of what, what it does not say, and when it stops holding.

It is made from the runs alone: made again from the same runs, it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bringup.compare import ledger
from bringup.derive.provenance import moment
from bringup.errors import NotComparable, NotHealthy
from bringup.evidence.parsed import Seen
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.records import (
    Answer,
    Certificate,
    Certified,
    Closed,
    Condition,
    Machine,
    Mark,
    Observation,
    Record,
    Value,
    files,
    read_record,
)
from bringup.report import limits, system
from bringup.report.collection import Collection
from bringup.report.headline import whole
from bringup.report.render import render
from bringup.report.text import counted, scope
from bringup.results import CLOSED, SITE, sha256

_CONDITIONS = (  # in words, quantity
    ("GPU model", "discovery.gpu.model"),
    ("GPU driver", "discovery.gpu.driver"),
    ("GPUs of a node", "discovery.gpu.count"),
    ("CPU model", "discovery.cpu.model"),
    ("cores, threads, NUMA nodes", "discovery.cpu.topology"),
    ("kernel", "discovery.kernel"),
    ("release of the system", "discovery.os"),
    ("libcuda", "inventory.library.libcuda"),
    ("NCCL on the nodes", "inventory.library.libnccl"),
    ("Slurm", "slurm.config.SLURM_VERSION"),
    ("RDMA ports of a node", "discovery.rdma.ports"),
    ("mount of the checkout", "discovery.mount"),
)
_MACHINE = {
    "inventory.machine": "hardware",
    "discovery.gpu.identities": "gpus",
    "discovery.node.distinct": "boot",
}
_LESS = (Mark.PARTLY, Mark.REHEARSED)  # that --partly admits; nothing admits a fail or a gap
_DAY = "%Y-%m-%d"


def made_of(gathered: Collection, name: str, days: int, partly: bool) -> Certificate:
    """Raises NotHealthy, NotComparable."""
    judged = gathered.judged
    if not judged:
        raise NotHealthy("there is no run to certify; give a playbook's folder, and the folder of its drills")
    _refuse(gathered, partly)
    of_whole_nodes = [run for run in judged if not PHASES[run.run.phase].one_gpu] or judged
    first = of_whole_nodes[0]
    for run in of_whole_nodes:
        if (run.run.profile, run.run.gpus_per_node) != (first.run.profile, first.run.gpus_per_node):
            raise NotComparable(
                f"{run.folder}: profile {run.run.profile} with {run.run.gpus_per_node} GPUs per node, {first.folder}: "
                f"{first.run.profile} with {first.run.gpus_per_node}; a certificate is of one kind of node"
            )
    widest = max(judged, key=lambda run: len(run.run.nodes)).run.nodes
    several = [run for run in judged if PHASES[run.run.phase].max_nodes is None]
    nodes = [node for node in widest if all(node in run.run.nodes for run in several)]
    dated = max(_closed(run).closed_at for run in judged)
    sites = {run.run.site.name: _site_sha256(run) for run in judged if run.run.site is not None}
    return Certificate(
        name=name,
        mark=whole(gathered.answers),
        dated=dated,
        days=days,
        holds_until=_until(dated, days),
        cluster=system.cluster_name(judged),
        nodes=nodes,
        left_out=[*gathered.unhealthy_nodes, *gathered.left_out],
        gpus_per_node=first.run.gpus_per_node,
        profile=first.run.profile,
        profile_sha256=first.run.profile_sha256,
        site=next(iter(sites), None),
        site_sha256=next(iter(sites.values()), None),
        answers=gathered.answers,
        does_not_say=_open_ends(gathered.answers),
        compared=ledger.sentences(ledger.of(judged)),
        limits=[line for report in gathered.limits for line in limits.lines(report)],
        conditions=conditions(judged),
        machines=[machine for machine in machines(judged) if machine.node in nodes],
        runs=[_certified(run) for run in judged],
    )


def _until(dated: str, days: int) -> str:
    begun = moment(dated)
    try:
        return "no day" if begun is None else (begun + timedelta(days=days)).strftime(_DAY)
    except OverflowError:
        return "no day"


def _refuse(gathered: Collection, partly: bool) -> None:
    if gathered.absent and not partly:
        absent = gathered.absent[0]
        raise NotHealthy(f"{absent.phase} is not there: {absent.why}; --partly certifies what is there, and says so")
    objections = [(run.folder, run.objection) for run in gathered.judged if run.objection is not None]
    if objections:
        raise NotHealthy(f"{objections[0][0]}: {objections[0][1]}; nothing is certified on such evidence")
    for answer in gathered.answers:
        if answer.mark in (Mark.FAIL, Mark.INCOMPLETE):
            raise NotHealthy(
                f"question {answer.question} is {answer.mark.upper()}: {answer.line}; nothing is certified"
            )
        if answer.mark in (*_LESS, Mark.NOT_ASKED) and not partly:
            raise NotHealthy(
                f"question {answer.question} is {answer.mark.upper()}: {(answer.reservations or [answer.line])[0]}; "
                "run what is missing, or say --partly"
            )


def _open_ends(answers: Sequence[Answer]) -> list[str]:
    return [
        f"{answer.question}. {claim.says}: {claim.mark}, {scope(claim)}"
        for answer in answers
        for claim in answer.claims
        if claim.mark not in (Mark.PASS, Mark.WARN)
    ]


def conditions(judged: Sequence[Judged]) -> list[Condition]:
    """The conditions of the certificate, each with all observed values."""
    observed_conditions = []
    observed = Seen(observation for run in judged for observation in run.observations)
    for condition_name, quantity in _CONDITIONS:
        values = sorted({_shown(fact) for fact in observed.of(quantity) if fact.value is not None})
        if values:
            observed_conditions.append(Condition(what=condition_name, values=values))
    if not observed_conditions:
        raise NotHealthy("no run of discovery is among these: it would be unknown when the certificate stops holding")
    return observed_conditions


def machines(judged: Sequence[Judged]) -> list[Machine]:
    """The machine behind every node that discovery saw, in the order of their names; the last run counts."""
    seen: dict[str, dict[str, str | None]] = {}
    for run in sorted(judged, key=lambda run: run.run.opened_at):
        for fact in run.observations:
            if fact.quantity in _MACHINE and fact.subject in run.run.nodes and fact.value is not None:
                field = _MACHINE[fact.quantity]
                seen.setdefault(fact.subject, {})[field] = _gpus(fact.value) if field == "gpus" else str(fact.value)
    return [
        Machine(node=node, hardware=known.get("hardware"), gpus=known.get("gpus"), boot=known.get("boot"))
        for node, known in sorted(seen.items())
    ]


def _gpus(names: Value) -> str | None:
    known = sorted(name for name in names if name.startswith("GPU-")) if isinstance(names, list) else []
    return sha256(json.dumps(known)) if known else None


def broken(certificate: Certificate, judged: Sequence[Judged], today: datetime) -> list[str]:
    """What is otherwise than certified. Empty: it still holds, on the nodes of these runs and when they ran."""
    now = {condition.what: condition.values for condition in conditions(judged)}
    differences = [f"it held until {certificate.holds_until}"] if today.strftime(_DAY) > certificate.holds_until else []
    differences += _otherwise("cluster", system.cluster_name(judged), certificate.cluster)
    for was in certificate.conditions:
        differences += _otherwise(was.what, ", ".join(now.get(was.what, [])), ", ".join(was.values))
    certified = {machine.node: machine for machine in certificate.machines}
    for machine in machines(judged):
        if (known := certified.get(machine.node)) is None:
            differences.append(f"{machine.node}: not among the certified nodes")
            continue
        differences += _otherwise(f"{machine.node}: hardware, SHA-256", machine.hardware, known.hardware)
        differences += _otherwise(f"{machine.node}: GPUs, SHA-256 of their UUIDs", machine.gpus, known.gpus)
    return differences


def _otherwise(what: str, now: str | None, certified: str | None) -> list[str]:
    return [] if now == certified else [f"{what}: {now or 'not seen'}; certified was {certified or 'not seen'}"]


def altered(certificate: Certificate, gathered: Collection) -> list[str]:
    """Why it or these runs cannot be relied on: it is not as a certificate of these runs is made, or their evidence is
    not their own. Who may write to both can make all of it anew: only a signature shows that."""
    doubts = [f"run {run.run.name}: {run.objection}" for run in gathered.judged if run.objection is not None]
    if doubts:
        return doubts
    certified = {(run.phase, run.name): run for run in certificate.runs}
    own = [run for run in gathered.judged if (run.run.phase, run.run.name) in certified]
    doubts = [
        f"{run.run.phase} {run.run.name}: {field} is {now!s:.80}; certified was {was!s:.80}"
        for run in own
        for field, now, was in _unlike(_certified(run), certified[run.run.phase, run.run.name])
    ]
    newest = max((_closed(run).closed_at for run in gathered.judged), default="")
    if not own and newest < certificate.dated:
        doubts.append(f"the runs ended at {newest}, before it was dated: {certificate.dated}")
    try:
        again = (
            made_of(replace(gathered, judged=own), certificate.name, certificate.days, partly=True)
            if len(own) == len(certified)
            else certificate.model_copy(
                update={
                    "holds_until": _until(certificate.dated, certificate.days),
                    "mark": whole(certificate.answers),
                    "does_not_say": _open_ends(certificate.answers),
                }
            )
        )
    except (NotHealthy, NotComparable) as error:
        return [*doubts, f"it cannot be made again: {error}"]
    return doubts + [
        f"{field} is {was!s:.80}; made again it is {now!s:.80}"
        for field, now, was in _unlike(again, certificate)
        if not field.startswith("runs")
    ]


def _unlike(now: object, was: object, where: str = "") -> Iterator[tuple[str, object, object]]:
    """(place in the record, its value now, its value then)."""
    if isinstance(now, Record) and isinstance(was, Record):
        for field in type(was).model_fields:
            yield from _unlike(getattr(now, field), getattr(was, field), f"{where}.{field}".lstrip("."))
    elif isinstance(now, list) and isinstance(was, list) and len(now) == len(was):
        for number, (now_there, was_there) in enumerate(zip(now, was, strict=True)):
            yield from _unlike(now_there, was_there, f"{where}[{number}]")
    elif now != was:
        yield where, now, was


def scope_of(certificate: Certificate, judged: Sequence[Judged]) -> str:
    """How many nodes these runs speak of, and until when."""
    boots = {machine.node: machine.boot for machine in certificate.machines}
    now = machines(judged)
    booted = [machine.node for machine in now if machine.boot != boots.get(machine.node)]
    return f"on {len(now)} of {len(boots)} nodes, as of {max(_closed(run).closed_at for run in judged)}" + (
        f"; {len(booted)} of them have booted since: {', '.join(booted[:8])}" if booted else ""
    )


def _shown(fact: Observation) -> str:
    if fact.quantity == "discovery.mount":
        return " ".join(str(fact.value).split(" ")[:2])
    return str(fact.value)


def _certified(judged: Judged) -> Certified:
    run = judged.run
    return Certified(
        phase=run.phase,
        name=run.name,
        opened_at=run.opened_at,
        nodes=run.nodes,
        outcome=judged.verdicts.outcome,
        counted=counted(judged.verdicts.verdicts),
        files_sha256=sha256(json.dumps(_closed(judged).files, sort_keys=True)),
        git_commit=run.git_commit,
        git_dirty=run.git_dirty,
    )


def _closed(judged: Judged) -> Closed:
    return read_record(judged.folder / CLOSED, Closed)


def _site_sha256(judged: Judged) -> str:
    path = judged.folder / SITE
    return sha256(files.read_text(path)) if files.is_file(path) else "not kept"


def markdown(certificate: Certificate, is_signed: bool) -> str:
    rehearsed = any(answer.mark is Mark.REHEARSED for answer in certificate.answers)
    return render("certificate.md.j2", made=certificate, rehearsed=rehearsed, is_signed=is_signed)
