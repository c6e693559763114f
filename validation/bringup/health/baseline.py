"""What the health check of a node asks, and the answers that a passed run of discovery showed to be right there.

Versions (kernel, driver, libraries) are not among it: an update that goes through the cluster would drain half of it.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from bringup.health.records import Asked, Baseline, Group
from bringup.kernel import judge
from bringup.kernel.errors import RunError
from bringup.kernel.facts.parser_result import Seen, is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.gate import Fixed
from bringup.kernel.records import Action, Limit, Outcome, known
from bringup.readers.known import xid
from bringup.report import run_folders

UP = "4: ACTIVE"
MEMORY_SHARES = (0.98, 1.02)


_FOLDERS = "inventory.folder.tmp", "inventory.folder.shm"
QUESTIONS = {gate: check for check, gates in known("health_questions", dict[str, list[str]]).items() for gate in gates}


def made_of(judgements: Sequence[Judged]) -> Baseline:
    """Make a group of nodes per run; of a node in several, the last one counts. Raises RunError,
    NotComparable where they are of two clusters."""
    run_folders.refuse_other_clusters((judged.folder, judged.run) for judged in judgements)
    groups = [_group(judged) for judged in judgements if judged.run.phase == "discovery"]
    if not groups:
        needed = "the baseline of the health check is made of one that passed"
        raise RunError(f"none of these is a run of discovery; {needed}")
    return Baseline(groups=groups, driver_events=xid.asked_for())


def _group(judged: Judged) -> Group:
    bad = [verdict for verdict in judged.verdicts.verdicts if judge.stops(verdict)]
    if bad:
        first = f"{bad[0].gate} [{bad[0].subject}] is {bad[0].outcome} ({len(bad)} such verdicts)"
        needed = "the health check compares with what a run showed that passed"
        raise RunError(f"{judged.folder}: {first}; {needed}")
    observed = Seen(judged.observations)
    limits = [entry for gate, check in QUESTIONS.items() for entry in _limits(gate, check, judged)]
    folders = {fact.why for fact in observed.of("discovery.mount") if fact.why}
    return Group(
        run=judged.run.name,
        opened_at=judged.run.opened_at,
        nodes=judged.run.nodes,
        mounts=sorted(folders) if len(folders) == 1 else [],
        asked=[*limits, *_observed(judged, observed)],
    )


def _limits(name: str, check: str, judged: Judged) -> list[Asked]:
    """Empty where the run did not judge it: not applicable here, or no number is declared."""
    gate = catalogue.GATES[name]
    verdicts = [verdict for verdict in judged.verdicts.verdicts if verdict.gate == name]
    limits = {str(verdict.limit): verdict.limit for verdict in verdicts if verdict.outcome is Outcome.PASS}
    limit = next(iter(limits.values()), None) if len(limits) == 1 else None
    if limit is None and verdicts and name == "discovery.kernel_log.xid" and isinstance(gate.expect, Fixed):
        limit = gate.expect.value  # many sites keep the log from users; the health check runs as root
    if limit is None:
        return []
    if not name.startswith("discovery.tmp."):
        return [_asked(name, check, gate.rule, limit, gate.unit)]
    what = name.rpartition(".")[2]
    right = ("equals", "works", "text") if what == "writes" else (gate.rule, limit, gate.unit)
    return [_asked(name, check, *right, quantity=f"{folder}.{what}") for folder in _FOLDERS]


def _asked(gate: str, check: str, rule: str, limit: Limit, unit: str, **more: Any) -> Asked:
    fields = {"quantity": gate, "action": catalogue.GATES[gate].helps, **more}
    return Asked(gate=gate, check=check, rule=rule, limit=limit, unit=unit, **fields)


def _observed(judged: Judged, observed: Seen) -> Iterator[Asked]:
    """Yield what all nodes showed alike."""
    broken = Action.INSPECT  # a node that had them all
    cores = {fact.value for fact in observed.of("discovery.cpu.count") if is_number(fact.value)}
    if len(cores) == 1:
        yield _asked("discovery.cpu.count", "host", "equals", cores.pop(), "count", action=broken)
    amounts = [float(fact.value) for fact in observed.of("inventory.memory") if is_number(fact.value)]
    if len(amounts) >= len(judged.run.nodes):
        near = [round(median(amounts) * share, 3) for share in MEMORY_SHARES]
        yield _asked("discovery.memory", "host", "between", near, "GiB", quantity="inventory.memory", action=broken)
    # type and source: what a mount is, whatever its options; autofs: of the automounter, which mounts later
    values = [str(fact.value) for fact in observed.of("discovery.mount") if fact.value is not None]
    mounts = {" ".join(mount.split(" ")[:2]) for mount in values if not mount.startswith("autofs ")}
    if len(mounts) == 1:
        yield _asked("discovery.mount", "mount", "equals", mounts.pop(), "text")
    up = [fact.subject.partition("/")[::2] for fact in observed.of("discovery.rdma.state") if fact.value == UP]
    if ports := set.intersection(*({port for at, port in up if at == node} for node in judged.run.nodes)):
        on_all, state = sorted(ports), "discovery.rdma.state"
        yield _asked("discovery.rdma.active", "rdma", "equals", UP, "text", quantity=state, parts=on_all)
