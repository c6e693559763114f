"""What the health check of a node asks, and the answers that a passed run of discovery showed to be right there.

Versions (kernel, driver, libraries) are not among it: an update that goes through the cluster would drain half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bringup import judge
from bringup.errors import RunError
from bringup.evidence.parsed import Seen, is_number
from bringup.judge import Judged
from bringup.known_faults import xid
from bringup.plan import catalogue
from bringup.plan.gate import Fixed
from bringup.records import Action, Asked, Baseline, Group, Limit, Outcome

UP = "4: ACTIVE"
MEMORY_SHARES = (0.98, 1.02)


@dataclass(frozen=True)
class Question:
    """A gate whose limit in the run holds on the node, for these facts of this check."""

    gate: str
    check: str
    quantities: tuple[str, ...] = ()  # empty: the gate's own
    equals: str | None = None  # where the fact is another one than the gate's


_TMP = "inventory.folder"
QUESTIONS: tuple[Question, ...] = (
    Question("discovery.gpu.count", "gpus"),
    Question("discovery.gpu.answering", "gpus"),
    Question("discovery.gpu.ecc", "gpus"),
    Question("discovery.gpu.remap_pending", "gpus"),
    Question("discovery.gpu.remap_failed", "gpus"),
    Question("discovery.gpu.pcie", "gpus"),
    Question("discovery.kernel_log.xid", "driver-log"),
    Question("discovery.tmp.writes", "host", (f"{_TMP}.tmp.writes", f"{_TMP}.shm.writes"), equals="works"),
    Question("discovery.tmp.space", "host", (f"{_TMP}.tmp.space", f"{_TMP}.shm.space")),
    Question("discovery.tmp.files", "host", (f"{_TMP}.tmp.files", f"{_TMP}.shm.files")),
)


def made_of(judgements: Sequence[Judged]) -> Baseline:
    """Make a group of nodes per run; of a node in several, the last one counts. Raises RunError."""
    groups = [_group(judged) for judged in judgements if judged.run.phase == "discovery"]
    if not groups:
        raise RunError(
            "none of these is a run of discovery; the baseline of the health check is made of one that passed"
        )
    return Baseline(groups=groups, driver_events=xid.asked_for())


def _group(judged: Judged) -> Group:
    bad = [verdict for verdict in judged.verdicts.verdicts if judge.stops(verdict)]
    if bad:
        raise RunError(
            f"{judged.folder}: {bad[0].gate} [{bad[0].subject}] is {bad[0].outcome} ({len(bad)} such verdicts); "
            "the health check compares with what a run showed that passed"
        )
    observed = Seen(judged.observations)
    entries = [entry for question in QUESTIONS for entry in _limits(question, judged)]
    entries += [
        *_cores(judged, observed),
        *_memory(judged, observed),
        *_mount(judged, observed),
        *_ports(judged, observed),
    ]
    folders = {fact.why for fact in observed.of("discovery.mount") if fact.why}
    return Group(
        run=judged.run.name,
        opened_at=judged.run.opened_at,
        nodes=judged.run.nodes,
        mounts=sorted(folders) if len(folders) == 1 else [],
        asked=entries,
    )


def _limits(question: Question, judged: Judged) -> list[Asked]:
    """Empty where the run did not judge it: not applicable here, or no number is declared."""
    gate = catalogue.GATES[question.gate]
    verdicts = [verdict for verdict in judged.verdicts.verdicts if verdict.gate == gate.id]
    limits = {str(verdict.limit): verdict.limit for verdict in verdicts if verdict.outcome is Outcome.PASS}
    limit = next(iter(limits.values()), None) if len(limits) == 1 else None
    if limit is None and verdicts and gate.id == "discovery.kernel_log.xid" and isinstance(gate.expect, Fixed):
        limit = gate.expect.value  # many sites keep the log from users; the health check runs as root
    if limit is None:
        return []
    rule, limit = ("equals", question.equals) if question.equals is not None else (gate.rule, limit)
    return [
        _asked(gate.id, question.check, quantity, rule, limit, gate.unit if question.equals is None else "text")
        for quantity in question.quantities or (gate.id,)
    ]


def _asked(
    gate: str,
    check: str,
    quantity: str,
    rule: str,
    limit: Limit,
    unit: str,
    parts: Sequence[str] = (),
    action: Action | None = None,
) -> Asked:
    return Asked(
        gate=gate,
        check=check,
        quantity=quantity,
        parts=list(parts),
        rule=rule,
        limit=limit,
        unit=unit,
        action=action or catalogue.GATES[gate].helps,
    )


def _cores(judged: Judged, observed: Seen) -> list[Asked]:
    values = {fact.value for fact in observed.of("discovery.cpu.count") if is_number(fact.value)}
    gate = "discovery.cpu.count"
    broken = Action.INSPECT  # on a node that had them all
    return [_asked(gate, "host", gate, "equals", value, "count", action=broken) for value in values if len(values) == 1]


def _memory(judged: Judged, observed: Seen) -> list[Asked]:
    amounts = [float(fact.value) for fact in observed.of("inventory.memory") if is_number(fact.value)]
    if len(amounts) < len(judged.run.nodes):
        return []
    limit = [round(median(amounts) * share, 3) for share in MEMORY_SHARES]
    return [_asked("discovery.memory", "host", "inventory.memory", "between", limit, "GiB", action=Action.INSPECT)]


def _mount(judged: Judged, observed: Seen) -> list[Asked]:
    """Type and source: what a mount is, whatever its options."""
    mounts = {
        " ".join(str(fact.value).split(" ")[:2])
        for fact in observed.of("discovery.mount")
        if fact.value is not None
        and not str(fact.value).startswith("autofs ")  # of the automounter, which mounts later
    }
    gate = "discovery.mount"
    return [_asked(gate, "mount", gate, "equals", value, "text") for value in mounts if len(mounts) == 1]


def _ports(judged: Judged, observed: Seen) -> list[Asked]:
    """Those that were up on every node."""
    up = [
        {
            fact.subject.partition("/")[2]
            for fact in observed.of("discovery.rdma.state")
            if fact.subject.startswith(f"{node}/") and fact.value == UP
        }
        for node in judged.run.nodes
    ]
    ports = sorted(set.intersection(*up))
    if not ports:
        return []
    return [_asked("discovery.rdma.active", "rdma", "discovery.rdma.state", "equals", UP, "text", ports)]
