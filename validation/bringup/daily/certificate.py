"""A dated statement of a whole pass: what was asked, of what, what it does not say, and when it stops holding.

It is made from the runs alone: made again from the same runs, it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from bringup.errors import NotComparable, NotHealthy
from bringup.evidence.parsed import Seen
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.records import Answer, Certificate, Certified, Closed, Condition, Mark, Observation, files, read_record
from bringup.report.collection import Collection
from bringup.report.text import counted, escaped, scope, table
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
    dated = max(_closed(run).closed_at for run in judged)
    sites = {run.run.site.name: _site_sha256(run) for run in judged if run.run.site is not None}
    return Certificate(
        name=name,
        mark=_whole({answer.mark for answer in gathered.answers}),
        dated=dated,
        holds_until=(datetime.fromisoformat(dated) + timedelta(days=days)).strftime(_DAY),
        nodes=[node for node in widest if all(node in run.run.nodes for run in several)],
        left_out=[*gathered.ill_nodes, *gathered.left_out],
        gpus_per_node=first.run.gpus_per_node,
        profile=first.run.profile,
        profile_sha256=first.run.profile_sha256,
        site=next(iter(sites), None),
        site_sha256=next(iter(sites.values()), None),
        answers=gathered.answers,
        does_not_say=_open_ends(gathered.answers),
        conditions=conditions(judged),
        runs=[_certified(run) for run in judged],
    )


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


def _whole(marks: set[Mark]) -> Mark:
    if marks <= {Mark.PASS, Mark.WARN}:
        return Mark.PASS
    return Mark.REHEARSED if marks <= {Mark.PASS, Mark.WARN, Mark.REHEARSED} else Mark.PARTLY


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
    gpus = sorted(
        {
            name
            for fact in observed.of("discovery.gpu.identities")
            if isinstance(fact.value, list)
            for name in fact.value
        }
    )
    if any(name.startswith("GPU-") for name in gpus):
        observed_conditions.append(
            Condition(what="GPUs, by UUID", values=[f"{len(gpus)} GPUs, SHA-256 {sha256(json.dumps(gpus))}"])
        )
    if not observed_conditions:
        raise NotHealthy("no run of discovery is among these: it would be unknown when the certificate stops holding")
    return observed_conditions


def broken(certificate: Certificate, judged: Sequence[Judged], today: datetime) -> list[str]:
    """Differences from the certificate's conditions. Empty: it still holds, as far as these runs show."""
    now = {condition.what: condition.values for condition in conditions(judged)}
    differences = [
        f"{was.what}: {', '.join(now.get(was.what, ['not seen']))}; certified was {', '.join(was.values)}"
        for was in certificate.conditions
        if now.get(was.what) != was.values
    ]
    if today.strftime(_DAY) > certificate.holds_until:
        differences.insert(0, f"it held until {certificate.holds_until}")
    return differences


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


def markdown(certificate: Certificate) -> str:
    rehearsed = any(answer.mark is Mark.REHEARSED for answer in certificate.answers)
    lines = [
        f"# {escaped(certificate.name)}: {certificate.mark.upper()}",
        "",
        *(
            ["**In parts this was rehearsed on stand-ins: it proves the path, and not the cluster.**", ""]
            if rehearsed
            else []
        ),
        f"Dated {certificate.dated}. It holds until {certificate.holds_until}, and no longer than its conditions.",
        "",
        f"{len(certificate.nodes)} nodes with {certificate.gpus_per_node} GPUs each: "
        f"{escaped(', '.join(certificate.nodes))}. "
        f"Profile {escaped(certificate.profile)} (SHA-256 {certificate.profile_sha256[:16]})"
        + (
            f", site {escaped(certificate.site)} (SHA-256 {(certificate.site_sha256 or '')[:16]})"
            if certificate.site
            else ""
        )
        + ".",
        "",
        *(f"Left out: {escaped(entry)}." for entry in certificate.left_out),
        "## What was asked",
        "",
        *table(
            ("question", "answer", "what was seen"),
            ((str(answer.question), answer.mark.upper(), answer.line) for answer in certificate.answers),
        ),
        "",
        "## What it does not say",
        "",
        *(f"- {escaped(entry)}" for entry in certificate.does_not_say),
        "- that a node which was replaced, added or repaired since then is healthy",
        "- that the cluster is fast enough for a program that was not run",
        "",
        "## When it stops holding",
        "",
        f"After {certificate.holds_until}, or as soon as one of these is otherwise:",
        "",
        *table(
            ("what", "as it was"),
            ((condition.what, ", ".join(condition.values)) for condition in certificate.conditions),
        ),
        "",
        "`bringup certificate NEW-RUN --check certificate.json` says what is otherwise in a newer run.",
        "",
        "## What it rests on",
        "",
        *table(
            ("phase", "run", "opened", "nodes", "verdicts", "evidence, SHA-256", "commit"),
            (
                (
                    run.phase,
                    run.name,
                    run.opened_at,
                    str(len(run.nodes)),
                    run.counted,
                    run.files_sha256[:16],
                    (run.git_commit or "unknown")[:12] + (" with local changes" if run.git_dirty else ""),
                )
                for run in certificate.runs
            ),
        ),
    ]
    return "\n".join(lines) + "\n"
