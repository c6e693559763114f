"""GPUs: what the driver logged, whom they belong to, and which of them tasks and jobs got."""

from collections import Counter, defaultdict
from itertools import product

from bringup import registry
from bringup.domains import cuda
from bringup.kernel.facts.fold import by_node, ended_by_slurm
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.records import Run, Value, grouped

_KERNEL_LOG = "discovery.kernel_log."
LAST_AT = f"{_KERNEL_LOG}last_at"
_TORCH = "discovery.torch.driver"
_NO_EVENTS = ("records", "xids", "last_at")


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
    named, actions = Counter[str](), set[str]()
    last = {(at.subject, at.why): f", last at {at.value}" for at in observed.of(LAST_AT) if at.value is not None}
    lines = {(line.subject, line.why): str(line.value) for line in observed.of("inventory.kernel_log.line")}
    for fact in observed.under(_KERNEL_LOG):
        name = fact.quantity.removeprefix(_KERNEL_LOG)
        if name in _NO_EVENTS:
            continue
        xid = registry.called(registry.XIDS)
        event = xid.event(name)
        node, _, device = fact.subject.partition("/")
        count, on = int(fact.value) if is_number(fact.value) else 1, device or node
        if name.startswith("xid_") and is_number(fact.value):
            named[node] += count
        if name == "recovery_action":
            actions.add(node)
            if fact.value != "None":
                asking[node].append((1, f"Xid 154 on {device}: {fact.value or fact.why}"))
        elif event is not None and (event.warns or event.action is not None):
            at = "" if event.warns else last.get((fact.subject, name), "")
            link = None if event.warns else xid.of_the_link(lines.get((fact.subject, name), ""))
            what = "; ".join(filter(None, (event.what_and_action, link)))
            words = f"{count} × {event.words} on {on}{at}{f': {what}' if what else ''}"
            (nonfatal if event.warns else asking)[node].append((count, words))
        elif event is None:
            nonfatal[node].append((count, f"{count} × {name[:40]} on {on}: this version does not know it"))
    for total in observed.of(f"{_KERNEL_LOG}xids"):
        node = total.subject
        # of messages that change the recovery action, the last one of each GPU arrives
        lost = is_number(total.value) and node not in actions and named[node] < int(total.value)
        for gate, messages in ((f"{_KERNEL_LOG}xid", asking), (f"{_KERNEL_LOG}nonfatal", nonfatal)):
            known = messages.get(node, [])
            if lost:
                why = f"the log has {total.value} Xids, and {named[node]} of them are named"
                derived.saw(gate, node, None, "count", total.evidence, why)
            if known or not lost:
                value = None if total.value is None else sum(count for count, _ in known)
                remark = "; ".join(words for _, words in known) or total.why
                derived.saw(gate, node, value, "count", total.evidence, remark)


def driver_for_torch(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.torch.driver: whether the node's driver can run the torch that is installed; or why that is no
    question here."""
    in_container = run.site is not None and "container" in run.site.says
    asked = [by_node(observed.of(f"discovery.gpu.{name}")) for name in ("cuda", "driver", "model")]
    for node, (torch, *_) in by_node(observed.of("inventory.torch")).items():
        build, first = str(torch.value), (next(iter(of_nodes.get(node, ())), None) for of_nodes in asked)
        version, driver, model = ("" if fact is None or fact.value is None else str(fact.value) for fact in first)
        value, why = None, f"torch {torch.why} for CUDA {build}"
        if in_container or not build[:1].isdecimal():
            value = "not installed" if build == "absent" else f"a build for {build}"
            derived.saw(_TORCH, node, "in a container" if in_container else value, "text", torch.evidence)
            continue
        if (runs := cuda.can_run(version, driver, build)) is None:
            why = f"{why}; the driver did not say which CUDA it has"
        else:
            value = "runs it" if runs else "too old"
            why = f"{why}; driver {driver or '?'} has CUDA {version or '?'}"
            why += "" if runs else f": {cuda.way_out(driver, model)}"
        derived.saw(_TORCH, node, value, "text", torch.evidence, why)


def fabric_manager(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.fabric_manager: whether its version is the driver's, where NVSwitches join the GPUs."""
    gate, drivers = "discovery.fabric_manager", by_node(observed.of("discovery.gpu.driver"))
    switches, managers = observed.by_subject("inventory.nvswitches"), observed.by_subject("inventory.fabric_manager")
    fabrics = by_node(observed.of("discovery.gpu.fabric"))
    for count in observed.of("discovery.gpu.count"):
        node, evidence, why = count.subject, count.evidence, None
        joined = [fact.value for fact in fabrics.get(node, ()) if fact.value != "not supported"]
        joined += [fact.value for fact in switches.get(node, ()) if fact.value != 0]
        value: Value | None = None
        if not any(each is not None for each in joined):
            has_none = not joined and node in switches and (node in fabrics or count.value == 0)
            value, why = ("no NVSwitch", None) if has_none else (None, "the node did not say whether it has NVSwitches")
        elif (manager := next(iter(managers.get(node, ())), None)) is None:
            why = "the node did not say which fabric manager it has"
        else:
            value, evidence, why = manager.value, manager.evidence, manager.why
            known = {str(driver.value) for driver in drivers.get(node, []) if driver.value is not None}
            if value not in (None, "not installed"):
                why = f"fabric manager {value}, driver {first_few(sorted(known)) or '?'}"
                value = ("as the driver" if {str(value)} == known else "another one") if known else None
        derived.saw(gate, node, value, "text", evidence, why)


def tasks(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count what single tasks say of their GPU, per node: smoke.gpu.bound is the number of different GPUs."""
    for node, several in by_node(observed.of("smoke.binding.gpu")).items():
        known = sorted({str(task.value) for task in several if task.value is not None})
        evidence = f"{several[0].evidence} to {several[-1].evidence.rpartition(':')[2]}"
        ended = ended_by_slurm(observed, "binding") if len(several) < run.gpus_per_node else None
        derived.saw("smoke.node.ran_tasks", node, None if ended else len(several), "count", evidence, ended)
        remark = next((task.why for task in several if task.value is None), ", ".join(known))
        derived.saw("smoke.gpu.bound", node, len(known), "count", evidence, remark)


def two_jobs_at_once(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count GPUs that the two jobs would use, and GPUs that each was denied because the other had them."""
    kinds = product(("first", "second"), ("gpu", "openable", "denied", "outlasted"))
    facts = {(job, what, each.subject): each for job, what in kinds for each in observed.of(f"smoke.{job}_job.{what}")}
    for node in observed.by_subject("smoke.second_job.openable"):
        if ("first", "outlasted", node) not in facts:
            why = "the first job was not there until the second had ended"
            where = facts["second", "openable", node].evidence
            derived.saw("smoke.jobs.distinct_gpus", node, None, "count", where, why)
            continue
        bound = [facts[job, "gpu", node] for job in ("first", "second") if (job, "gpu", node) in facts]
        evidence = ", ".join(fact.evidence for fact in bound)
        gpus = sorted({str(fact.value) for fact in bound if fact.value is not None})
        derived.saw("smoke.jobs.distinct_gpus", node, len(gpus), "count", evidence, ", ".join(gpus) or "none")
        lists = {key: set(fact.value) for key, fact in facts.items() if key[2] == node and isinstance(fact.value, list)}
        refused = set[str]()
        for job, other in (("first", "second"), ("second", "first")):
            refused |= lists.get((job, "openable", node), set()) & lists.get((other, "denied", node), set())
        words = ", ".join(sorted(refused)) or "none"
        derived.saw("smoke.jobs.refused_gpus", node, len(refused), "count", evidence, words)


def two_jobs_apart(derived: Parsed, observed: Seen, run: Run) -> None:
    """Say whether each of two jobs at once had its own /tmp, and its own IMEX channel where there are such; or both the
    same one, or one of them none."""
    outlasted = observed.by_subject("smoke.first_job.outlasted")
    for what in ("tmp", "imex"):
        first = observed.by_subject(f"smoke.first_job.{what}")
        for node, (second, *_) in observed.by_subject(f"smoke.second_job.{what}").items():
            both = [first[node][0], second] if node in first and node in outlasted else []
            has = [set(fact.value) for fact in both if isinstance(fact.value, list)]
            value: str | None = None
            if len(has) == 2:
                value = "shared" if has[0] & has[1] else "own" if all(has) else "none"
            elif not has and len({str(fact.value) for fact in both}) == 1:  # the node has no such thing
                value = str(second.value)
            names = ", ".join(sorted(set[str]().union(*has))) or None
            why = names if both else "the first job was not there until the second had ended"
            derived.saw(f"smoke.jobs.{what}", node, value, "text", second.evidence, why)
