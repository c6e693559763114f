"""Observations derived from facts of GPUs: per node, and compared over tasks, jobs and nodes."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict

from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.known_faults import xid
from bringup.records import Observation, Run

_KERNEL_LOG = "discovery.kernel_log."
_NO_EVENTS = ("records", "xids", "recovery_action")
_GPU = re.compile(r"[^/]+/(?:GPU-|gpu)\S+")


def derive(observed: Seen, run: Run) -> Parsed:
    """A subject without facts gets no observation, so its gates are incomplete."""
    derived = Parsed()
    _gpus_of_a_node(derived, observed)
    _seen_by_another_node(derived, observed.of("discovery.gpu.model"))
    _driver_log(derived, observed)
    _tasks_per_node(derived, observed)
    _two_jobs_at_once(derived, observed)
    _slowest_of_each_node(derived, observed)
    _spread_of_gpus(derived, observed)
    _slowest_against_all_gpus(derived, observed, run)
    return derived


def _gpus_of_a_node(derived: Parsed, observed: Seen) -> None:
    """One observation of the node for each different answer of its GPUs, with the GPUs that gave it."""
    for quantity, several in observed.starting_with("discovery.gpu.").items():
        answers: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for observation in several:
            if _GPU.fullmatch(observation.subject):
                node = observation.subject.partition("/")[0]
                answers[node, f"{observation.value!r} {observation.why}"].append(observation)
        for (node, _), equal in answers.items():
            names = [observation.subject.partition("/")[2] for observation in equal]
            gpus = ", ".join(names) if len(names) <= 2 else f"{len(names)} GPUs, the first is {names[0]}"
            first = equal[0]
            derived.saw(
                quantity, node, first.value, first.unit, first.evidence, f"{gpus}: {first.why}" if first.why else gpus
            )


def _seen_by_another_node(derived: Parsed, models: list[Observation]) -> None:
    """discovery.gpu.distinct: UUIDs of a node that another node also sees. `models` names each GPU once."""
    owners: dict[str, set[str]] = defaultdict(set)
    evidence: dict[str, str] = {}
    for observation in models:
        node, _, gpu = observation.subject.partition("/")
        if gpu.startswith("GPU-"):
            owners[gpu].add(node)
            evidence.setdefault(node, observation.evidence)
    shared: dict[str, list[str]] = defaultdict(list)
    for gpu, nodes in sorted(owners.items()):
        if len(nodes) > 1:
            for node in nodes:
                shared[node].append(gpu)
    for node, where in evidence.items():
        gpus = shared.get(node, [])
        derived.saw("discovery.gpu.distinct", node, len(gpus), "count", where, ", ".join(gpus) or None)


def _driver_log(derived: Parsed, observed: Seen) -> None:
    """Messages of the driver per node: discovery.kernel_log.xid (they ask for action) and
    discovery.kernel_log.nonfatal. 0 only if the log was read."""
    asking: dict[str, list[tuple[int, str]]] = defaultdict(list)
    nonfatal: dict[str, list[tuple[int, str]]] = defaultdict(list)
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
                asking[node].append((count, f"{count} × {event.words} on {device or node}: {event.action}"))
            elif event is None and name not in _NO_EVENTS:
                asking[node].append(
                    (count, f"{count} × {name[:40]} on {device or node}: this version does not know it")
                )
    for total in observed.of(f"{_KERNEL_LOG}xids"):
        for gate, messages in ((f"{_KERNEL_LOG}xid", asking), (f"{_KERNEL_LOG}nonfatal", nonfatal)):
            known = messages.get(total.subject, [])
            value = None if total.value is None else sum(count for count, _ in known)
            remark = "; ".join(words for _, words in known) or total.why
            derived.saw(gate, total.subject, value, "count", total.evidence, remark)


def _tasks_per_node(derived: Parsed, observed: Seen) -> None:
    """Answers of single tasks about their GPU, counted per node: smoke.gpu.bound is the number of different GPUs."""
    tasks_of: dict[str, list[Observation]] = {}
    for subject, several in observed.by_subject("smoke.binding.gpu").items():
        tasks_of.setdefault(subject.partition("/")[0], []).extend(several)
    for node, tasks in tasks_of.items():
        known = sorted({str(task.value) for task in tasks if task.value is not None})
        evidence = f"{tasks[0].evidence} to {tasks[-1].evidence.rpartition(':')[2]}"
        derived.saw("smoke.node.ran_tasks", node, len(tasks), "count", evidence)
        remark = next((task.why for task in tasks if task.value is None), ", ".join(known))
        derived.saw("smoke.gpu.bound", node, len(known), "count", evidence, remark)


def _two_jobs_at_once(derived: Parsed, observed: Seen) -> None:
    """GPUs that the two jobs would use, and GPUs that each was denied because the other had them."""
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


def _slowest_of_each_node(derived: Parsed, observed: Seen) -> None:
    """smoke.compute.peers: the speed of each node, to compare it with the other nodes."""
    for fact in observed.of("smoke.compute.tflops"):
        derived.saw("smoke.compute.peers", fact.subject, fact.value, fact.unit, fact.evidence, fact.why)


def _spread_of_gpus(derived: Parsed, observed: Seen) -> None:
    """smoke.compute.spread: from the slowest to the fastest GPU of all nodes, as a share of their median."""
    speeds = [(float(fact.value), fact) for fact in observed.of("smoke.compute.gpu.tflops") if is_number(fact.value)]
    if len(speeds) < 2:
        return
    (low, slowest), (high, fastest) = min(speeds, key=_first), max(speeds, key=_first)
    middle = statistics.median(speed for speed, _ in speeds)
    derived.saw(
        "smoke.compute.spread",
        "job",
        round((high - low) / middle, 4) if middle > 0 else None,
        "share",
        slowest.evidence,
        f"{len(speeds)} devices: {slowest.subject} {low:.4g}, median {middle:.4g}, "
        f"{fastest.subject} {high:.4g} TFLOP/s",
    )


def _first(speed_and_fact: tuple[float, Observation]) -> float:
    return speed_and_fact[0]


def _slowest_against_all_gpus(derived: Parsed, observed: Seen, run: Run) -> None:
    """smoke.compute.gpu_peers per node: its slowest GPU, with its name, against the median of all GPUs of all nodes.
    Unknown if a GPU of the node gave no answer: it may be the slowest."""
    speeds_of: dict[str, dict[str, float]] = {}
    evidence: dict[str, str] = {}
    silent: dict[str, str] = {}
    for subject, facts in observed.by_subject("smoke.compute.gpu.tflops").items():
        node, _, device = subject.partition("/")
        gpus = speeds_of.setdefault(node, {})
        evidence.setdefault(node, facts[0].evidence)
        speeds = [float(fact.value) for fact in facts if is_number(fact.value)]
        if device != "cpu" and len(speeds) == len(facts):
            gpus[device] = min(speeds)
        elif device != "cpu":
            silent.setdefault(node, f"{device}: {next(fact.why for fact in facts if not is_number(fact.value))}")
    everyone = [speed for gpus in speeds_of.values() for speed in gpus.values()]
    middle = statistics.median_high(everyone) if everyone else 0.0
    for node, gpus in speeds_of.items():
        if gpus and middle > 0:
            slowest = min(gpus, key=lambda gpu: gpus[gpu])
            value = round(gpus[slowest] / middle, 3)
            why = f"{slowest} {gpus[slowest]:.4g}, the median of {len(everyone)} GPUs is {middle:.4g} TFLOP/s"
            derived.saw("smoke.compute.gpu_peers", node, value, "ratio", evidence[node], why)
        if len(gpus) < run.gpus_per_node or middle <= 0:
            why = silent.get(node) or f"{len(gpus)} of {run.gpus_per_node} GPUs reported their speed"
            derived.saw("smoke.compute.gpu_peers", node, None, "ratio", evidence[node], why)
