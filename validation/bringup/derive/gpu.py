"""GPUs: what the driver logged, whom they belong to, and which of them tasks and jobs got."""

from __future__ import annotations

from collections import defaultdict

from bringup.derive.fold import by_node
from bringup.evidence.names import first_few
from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.known_faults import xid
from bringup.plan import cuda
from bringup.records import Observation, Run
from bringup.records.grouped import grouped

_KERNEL_LOG = "discovery.kernel_log."
LAST_AT = f"{_KERNEL_LOG}last_at"
_NO_EVENTS = ("records", "xids", "recovery_action", "last_at")


def seen_by_another_node(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.gpu.distinct: UUIDs of a node that another node also sees."""
    owners: dict[str, set[str]] = defaultdict(set)
    evidence: dict[str, str] = {}
    for observation in observed.of("discovery.gpu.model"):  # one of each GPU
        node, _, gpu = observation.subject.partition("/")
        if gpu.startswith("GPU-"):
            owners[gpu].add(node)
            evidence.setdefault(node, observation.evidence)
    silent = _without_their_gpus(observed, run)
    shared = grouped((node, gpu) for gpu, nodes in sorted(owners.items()) if len(nodes) > 1 for node in nodes)
    for node, where in evidence.items():
        gpus, others = shared.get(node, []), [name for name in silent if name != node]
        if gpus or not silent:
            derived.saw("discovery.gpu.distinct", node, len(gpus), "count", where, ", ".join(gpus) or None)
        if silent:
            why = f"{first_few(others or [node])} did not name all GPUs: one of them may be of this node, too"
            derived.saw("discovery.gpu.distinct", node, None, "count", where, why)


def _without_their_gpus(observed: Seen, run: Run) -> list[str]:
    """Nodes of the run that named fewer GPUs than answered there, or said nothing about them."""
    named = by_node(fact for fact in observed.of("discovery.gpu.model") if "/GPU-" in fact.subject)
    answered = {fact.subject: fact.value for fact in observed.of("discovery.gpu.answering")}
    return [node for node in run.nodes if len({fact.subject for fact in named.get(node, [])}) != answered.get(node)]


def driver_log(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive messages of the driver per node: discovery.kernel_log.xid (they ask for action) and
    discovery.kernel_log.nonfatal. 0 only if the log was read."""
    asking: dict[str, list[tuple[int, str]]] = defaultdict(list)
    nonfatal: dict[str, list[tuple[int, str]]] = defaultdict(list)
    last = {(at.subject, at.why): f", last at {at.value}" for at in observed.of(LAST_AT) if at.value is not None}
    for quantity, several in observed.starting_with(_KERNEL_LOG).items():
        name = quantity.removeprefix(_KERNEL_LOG)
        event = xid.event(name)
        for observation in several:
            node, _, device = observation.subject.partition("/")
            count = int(observation.value) if is_number(observation.value) else 1
            if name == "recovery_action" and observation.value != "None":
                asking[node].append((1, f"Xid 154 on {device}: {observation.value or observation.why}"))
            elif event is not None and event.nonfatal:
                nonfatal[node].append((count, f"{count} × {event.words} on {device}"))
            elif event is not None and event.action is not None:
                at = last.get((observation.subject, name), "")
                asking[node].append(
                    (count, f"{count} × {event.words} on {device or node}{at}: {event.what_and_action}")
                )
            elif event is None and name not in _NO_EVENTS:
                asking[node].append(
                    (count, f"{count} × {name[:40]} on {device or node}: this version does not know it")
                )
    for total in observed.of(f"{_KERNEL_LOG}xids"):
        if (lost := _not_named(observed, total)) is not None:
            for gate in (f"{_KERNEL_LOG}xid", f"{_KERNEL_LOG}nonfatal"):
                derived.saw(gate, total.subject, None, "count", total.evidence, lost)
        for gate, messages in ((f"{_KERNEL_LOG}xid", asking), (f"{_KERNEL_LOG}nonfatal", nonfatal)):
            known = messages.get(total.subject, [])
            if lost is not None and not known:
                continue
            value = None if total.value is None else sum(count for count, _ in known)
            remark = "; ".join(words for _, words in known) or total.why
            derived.saw(gate, total.subject, value, "count", total.evidence, remark)


def _not_named(observed: Seen, total: Observation) -> str | None:
    """Why the named Xids of a node are not all that the log held: fewer arrived than were counted. Of messages that
    change the recovery action, the last one of each GPU arrives."""
    if not is_number(total.value):
        return None
    node, counts = total.subject, dict[str, int]()
    for quantity, several in observed.starting_with(_KERNEL_LOG).items():
        name = quantity.removeprefix(_KERNEL_LOG)
        of_node = [fact for fact in several if fact.subject.partition("/")[0] == node]
        if name == "recovery_action" and of_node:
            return None
        if name.startswith("xid_"):
            counts[name] = sum(int(fact.value) for fact in of_node if is_number(fact.value))
    named = sum(counts.values())
    return f"the log has {total.value} Xids, and {named} of them are named" if named < int(total.value) else None


def driver_for_torch(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.torch.driver: whether the node's driver can run the torch that is installed; or why that is no
    question here."""
    in_container = run.site is not None and "container" in run.site.says
    asked: dict[str, dict[str, Observation]] = {}
    for name in ("inventory.torch", "discovery.gpu.cuda", "discovery.gpu.driver", "discovery.gpu.model"):
        for fact in observed.of(name):
            asked.setdefault(fact.subject.partition("/")[0], {}).setdefault(name, fact)
    for node, facts in asked.items():
        if (torch := facts.get("inventory.torch")) is None:
            continue
        build = str(torch.value)
        version, driver, model = (
            str(facts[name].value) if name in facts and facts[name].value is not None else ""
            for name in ("discovery.gpu.cuda", "discovery.gpu.driver", "discovery.gpu.model")
        )
        words = f"torch {torch.why} for CUDA {build}"
        if in_container or not build[:1].isdecimal():
            value = (
                "in a container" if in_container else "not installed" if build == "absent" else f"a build for {build}"
            )
            derived.saw("discovery.torch.driver", node, value, "text", torch.evidence)
        elif (runs := cuda.can_run(version, driver, build)) is None:
            why = f"{words}; the driver did not say which CUDA it has"
            derived.saw("discovery.torch.driver", node, None, "text", torch.evidence, why)
        else:
            words += f"; driver {driver or '?'} has CUDA {version or '?'}"
            remark = words if runs else f"{words}: {cuda.way_out(driver, model)}"
            derived.saw(
                "discovery.torch.driver", node, "runs it" if runs else "too old", "text", torch.evidence, remark
            )


def tasks(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count what single tasks say of their GPU, per node: smoke.gpu.bound is the number of different GPUs."""
    for node, several in by_node(observed.of("smoke.binding.gpu")).items():
        known = sorted({str(task.value) for task in several if task.value is not None})
        evidence = f"{several[0].evidence} to {several[-1].evidence.rpartition(':')[2]}"
        derived.saw("smoke.node.ran_tasks", node, len(several), "count", evidence)
        remark = next((task.why for task in several if task.value is None), ", ".join(known))
        derived.saw("smoke.gpu.bound", node, len(known), "count", evidence, remark)


def two_jobs_at_once(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count GPUs that the two jobs would use, and GPUs that each was denied because the other had them."""
    facts = {
        (job, quantity, fact.subject): fact
        for job in ("first", "second")
        for quantity in ("gpu", "openable", "denied", "outlasted")
        for fact in observed.of(f"smoke.{job}_job.{quantity}")
    }
    for node in observed.by_subject("smoke.second_job.openable"):
        if ("first", "outlasted", node) not in facts:
            why = "the first job was not there until the second had ended"
            where = facts["second", "openable", node].evidence
            derived.saw("smoke.jobs.distinct_gpus", node, None, "count", where, why)
            continue
        first, second = (
            {quantity: facts.get((job, quantity, node)) for quantity in ("gpu", "openable", "denied")}
            for job in ("first", "second")
        )
        bound = [fact for fact in (first["gpu"], second["gpu"]) if fact is not None]
        evidence = ", ".join(fact.evidence for fact in bound)
        gpus = sorted({str(fact.value) for fact in bound if fact.value is not None})
        derived.saw("smoke.jobs.distinct_gpus", node, len(gpus), "count", evidence, ", ".join(gpus) or "none")
        refused = sorted(_common(first["openable"], second["denied"]) | _common(second["openable"], first["denied"]))
        derived.saw("smoke.jobs.refused_gpus", node, len(refused), "count", evidence, ", ".join(refused) or "none")


def _common(opened: Observation | None, denied: Observation | None) -> set[str]:
    gpus = [
        set(fact.value) if fact is not None and isinstance(fact.value, list) else set() for fact in (opened, denied)
    ]
    return gpus[0] & gpus[1]
