"""What follows from single facts of GPUs: a node says what its worst GPU says; tasks and jobs are compared with each other."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict

from bringup.evidence.parsed import Parsed, Seen, is_number, numbers
from bringup.known_faults import xid
from bringup.records import Observation, Run

_XID = re.compile(r"discovery\.kernel_log\.xid_(\d+)")
_GPU = re.compile(r"[^/]+/(?:GPU-|gpu)\S+")


def derive(seen: Seen, run: Run) -> Parsed:
    """A subject whose facts did not arrive stays without evidence."""
    found = Parsed()
    _gpus_of_a_node(found, seen)
    _shared_gpus(found, seen.of("discovery.gpu.model"))
    _xids(found, seen)
    _devices_behind_gres(found, seen)
    _tasks_per_node(found, seen)
    _two_jobs_at_once(found, seen)
    _spread_of_gpus(found, seen)
    _slowest_of_nodes(found, seen, run)
    return found


def _gpus_of_a_node(found: Parsed, seen: Seen) -> None:
    """A node says what its GPUs say: one observation for each different answer, with the GPUs that gave it."""
    for quantity, several in seen.starting_with("discovery.gpu.").items():
        answers: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for one in several:
            if _GPU.fullmatch(one.subject):
                answers[one.subject.split("/")[0], f"{one.value!r} {one.why}"].append(one)
        for (node, _), same in answers.items():
            names = [one.subject.split("/")[1] for one in same]
            who = ", ".join(names) if len(names) <= 2 else f"{len(names)} GPUs, the first is {names[0]}"
            first = same[0]
            found.saw(
                quantity, node, first.value, first.unit, first.evidence, f"{who}: {first.why}" if first.why else who
            )


def _shared_gpus(found: Parsed, models: list[Observation]) -> None:
    """UUIDs of a node that another node sees too. `models` names each GPU once."""
    owners: dict[str, set[str]] = defaultdict(set)
    evidence: dict[str, str] = {}
    for one in models:
        node, _, gpu = one.subject.partition("/")
        if gpu.startswith("GPU-"):
            owners[gpu].add(node)
            evidence.setdefault(node, one.evidence)
    for node, where in evidence.items():
        shared = sorted(gpu for gpu, nodes in owners.items() if node in nodes and len(nodes) > 1)
        found.saw("discovery.gpu.shared_uuids", node, len(shared), "count", where, ", ".join(shared) or None)


def _xids(found: Parsed, seen: Seen) -> None:
    """Xids that ask for action, per node; 0 only where the log was read."""
    to_act_on: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for quantity, several in seen.starting_with("discovery.kernel_log.").items():
        match = _XID.fullmatch(quantity)
        action = xid.action(int(match[1])) if match else None
        if match is None or action is None:
            continue
        for one in several:
            node, _, gpu = one.subject.partition("/")
            count = int(one.value) if is_number(one.value) else 1
            to_act_on[node].append((count, f"{count} × Xid {match[1]} on {gpu}: {action}"))
    for one in seen.of("discovery.kernel_log.xids"):
        bad = to_act_on[one.subject]
        value = None if one.value is None else sum(count for count, _ in bad)
        found.saw(
            "discovery.kernel_log.xids_to_act_on",
            one.subject,
            value,
            "count",
            one.evidence,
            "; ".join(words for _, words in bad) or one.why,
        )


def _devices_behind_gres(found: Parsed, seen: Seen) -> None:
    """GPUs that slurm.conf promises and the node does not have."""
    there, promised = numbers(seen.of("discovery.gpu.count")), numbers(seen.of("slurm.node.gpus"))
    for one in {one.subject: one for one in seen.of("slurm.node.gpus")}.values():
        node = one.subject
        if node in there and node in promised:
            found.saw(
                "slurm.gres.surplus",
                node,
                int(promised[node] - there[node]),
                "count",
                one.evidence,
                f"Gres says {promised[node]:.0f}, {there[node]:.0f} devices were found",
            )


def _tasks_per_node(found: Parsed, seen: Seen) -> None:
    """What single tasks said about their GPU, counted per node."""
    gpus: dict[str, list[Observation]] = {}
    for subject, told in seen.by_subject("smoke.binding.gpu").items():
        gpus.setdefault(subject.split("/")[0], []).extend(told)
    for node, tasks in gpus.items():
        known = sorted({str(one.value) for one in tasks if one.value is not None})
        evidence = f"{tasks[0].evidence} to {tasks[-1].evidence.rpartition(':')[2]}"
        found.saw("smoke.binding.tasks", node, len(tasks), "count", evidence)
        remark = next((one.why for one in tasks if one.value is None), ", ".join(known))
        found.saw("smoke.binding.distinct_gpus", node, len(known), "count", evidence, remark)


def _two_jobs_at_once(found: Parsed, seen: Seen) -> None:
    """GPUs that the two jobs would compute on, and those that each was refused because the other had them."""
    told = {
        (job, what, fact.subject): fact
        for job in ("first", "second")
        for what in ("gpu", "openable", "denied", "outlasted")
        for fact in seen.of(f"smoke.{job}_job.{what}")
    }
    for node in seen.by_subject("smoke.second_job.openable"):
        if ("first", "outlasted", node) not in told:
            found.saw(
                "smoke.jobs.distinct_gpus",
                node,
                None,
                "count",
                told["second", "openable", node].evidence,
                "the first job was not there until the second had ended",
            )
            continue
        first, second = (
            {what: told.get((job, what, node)) for what in ("gpu", "openable", "denied")} for job in ("first", "second")
        )
        evidence = ", ".join(one.evidence for one in (first["gpu"], second["gpu"]) if one is not None)
        gpus = sorted(
            {str(one.value) for one in (first["gpu"], second["gpu"]) if one is not None and one.value is not None}
        )
        found.saw("smoke.jobs.distinct_gpus", node, len(gpus), "count", evidence, ", ".join(gpus) or "none")
        refused = _common(first["openable"], second["denied"]) | _common(second["openable"], first["denied"])
        found.saw(
            "smoke.jobs.refused_gpus", node, len(refused), "count", evidence, ", ".join(sorted(refused)) or "none"
        )


def _common(one: Observation | None, other: Observation | None) -> set[str]:
    sets = [set(o.value) if o is not None and isinstance(o.value, list) else set() for o in (one, other)]
    return sets[0] & sets[1]


def _spread_of_gpus(found: Parsed, seen: Seen) -> None:
    """smoke.compute.spread: from the slowest GPU of all nodes to the fastest, as a share of their median; both are named."""
    told = [
        (float(one.value), one)
        for several in seen.by_subject("smoke.compute.gpu.tflops").values()
        for one in several
        if isinstance(one.value, int | float)
    ]
    if len(told) < 2:
        return
    (low, slowest), (high, fastest) = min(told, key=lambda item: item[0]), max(told, key=lambda item: item[0])
    middle = statistics.median(speed for speed, _ in told)
    found.saw(
        "smoke.compute.spread",
        "job",
        round((high - low) / middle, 4) if middle > 0 else None,
        "share",
        slowest.evidence,
        f"{len(told)} devices: {slowest.subject} {low:.4g}, median {middle:.4g}, {fastest.subject} {high:.4g} TFLOP/s",
    )


def _slowest_of_nodes(found: Parsed, seen: Seen, run: Run) -> None:
    """smoke.compute.gpu_of_median per node: its slowest GPU against the median of all GPUs of all nodes; the GPU is named. Unknown
    for a node of which a GPU said nothing: that one may be the slowest."""
    told: dict[str, dict[str, float]] = {}
    evidence: dict[str, str] = {}
    for subject, several in seen.by_subject("smoke.compute.gpu.tflops").items():
        node, _, device = subject.partition("/")
        gpus = told.setdefault(node, {})
        evidence.setdefault(node, several[0].evidence)
        speeds = [float(one.value) for one in several if isinstance(one.value, int | float)]
        if device != "cpu" and len(speeds) == len(several):
            gpus[device] = min(speeds)
    everyone = [speed for gpus in told.values() for speed in gpus.values()]
    middle = statistics.median(everyone) if everyone else 0.0
    for node, gpus in told.items():
        value, why = None, f"{len(gpus)} of {run.gpus_per_node} GPUs told their speed"
        if len(gpus) >= run.gpus_per_node and middle > 0:
            slowest = min(gpus, key=lambda gpu: gpus[gpu])
            value = round(gpus[slowest] / middle, 4)
            why = f"{slowest} {gpus[slowest]:.4g}, the median of {len(everyone)} GPUs is {middle:.4g} TFLOP/s"
        found.saw("smoke.compute.gpu_of_median", node, value, "ratio", evidence[node], why)
