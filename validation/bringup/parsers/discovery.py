"""What follows from single facts of the discovery: per node from its GPUs, against the fleet's median, from Slurm's configuration.

Derived here and not in the probe: it needs several nodes, or a judgement. What was not found out stays not found out.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from typing import TypeGuard

from bringup.parsers import clock, xid
from bringup.parsers.result import Parsed
from bringup.records import Observation

_XID = re.compile(r"discovery\.kernel_log\.xid_(\d+)")
_GPU = re.compile(r"[^/]+/(?:GPU-|gpu)\S+")


def derive(parsed: Parsed) -> None:
    """Adds to `parsed` what its own observations imply."""
    by_quantity: dict[str, list[Observation]] = defaultdict(list)
    for one in parsed.observations:
        by_quantity[one.quantity].append(one)
    _gpus_of_a_node(parsed, by_quantity)
    _shared_gpus(parsed, by_quantity["discovery.gpu.model"])
    _clock(parsed, by_quantity)
    _memory(parsed, by_quantity["discovery.memory"])
    _xids(parsed, by_quantity)
    _devices_behind_gres(parsed, by_quantity)


def _gpus_of_a_node(parsed: Parsed, by_quantity: dict[str, list[Observation]]) -> None:
    """A node says what its GPUs say: one observation for each different answer, with the GPUs that gave it."""
    for quantity, several in by_quantity.items():
        if not quantity.startswith("discovery.gpu."):
            continue
        answers: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for one in several:
            if _GPU.fullmatch(one.subject):
                answers[one.subject.split("/")[0], f"{one.value!r} {one.why}"].append(one)
        for (node, _), same in answers.items():
            names = [one.subject.split("/")[1] for one in same]
            who = ", ".join(names) if len(names) <= 2 else f"{len(names)} GPUs, the first is {names[0]}"
            first = same[0]
            parsed.saw(
                quantity, node, first.value, first.unit, first.evidence, f"{who}: {first.why}" if first.why else who
            )


def _shared_gpus(parsed: Parsed, models: list[Observation]) -> None:
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
        parsed.saw("discovery.gpu.shared_uuids", node, len(shared), "count", where, ", ".join(shared) or None)


def _clock(parsed: Parsed, by_quantity: dict[str, list[Observation]]) -> None:
    """Distance from the fleet's median clock, uncertainty added."""
    measured = clock.shifts([*by_quantity[clock.BEHIND], *by_quantity[clock.UNCERTAINTY]])
    for one in by_quantity[clock.BEHIND]:
        shift = measured.get(one.subject)
        if shift is None:
            parsed.saw(
                "discovery.clock.offset",
                one.subject,
                None,
                "s",
                one.evidence,
                one.why or "its uncertainty did not arrive",
            )
        else:
            parsed.saw(
                "discovery.clock.offset",
                one.subject,
                abs(shift.seconds) + shift.uncertainty,
                "s",
                one.evidence,
                str(shift),
            )


def _memory(parsed: Parsed, several: list[Observation]) -> None:
    """Share of the fleet's median: firmware takes a little more on one board than on another."""
    sizes = _numbers(several)
    median = statistics.median(sizes.values()) if sizes else 0.0
    for one in several:
        if one.subject in sizes and median > 0:
            parsed.saw(
                "discovery.memory.of_median",
                one.subject,
                sizes[one.subject] / median,
                "share",
                one.evidence,
                f"{sizes[one.subject]:.1f} GiB, the median is {median:.1f} GiB",
            )


def _xids(parsed: Parsed, by_quantity: dict[str, list[Observation]]) -> None:
    """Xids that ask for action, per node; 0 only where the log was read."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for quantity, several in by_quantity.items():
        match = _XID.fullmatch(quantity)
        action = xid.action(int(match[1])) if match else None
        if match is None or action is None:
            continue
        for one in several:
            node, _, gpu = one.subject.partition("/")
            count = int(one.value) if _is_number(one.value) else 1
            found[node].append((count, f"{count} × Xid {match[1]} on {gpu}: {action}"))
    for one in by_quantity["discovery.kernel_log.xids"]:
        bad = found[one.subject]
        value = None if one.value is None else sum(count for count, _ in bad)
        parsed.saw(
            "discovery.kernel_log.xids_to_act_on",
            one.subject,
            value,
            "count",
            one.evidence,
            "; ".join(words for _, words in bad) or one.why,
        )


def _devices_behind_gres(parsed: Parsed, by_quantity: dict[str, list[Observation]]) -> None:
    """GPUs that slurm.conf promises and the node does not have."""
    there, promised = _numbers(by_quantity["discovery.gpu.count"]), _numbers(by_quantity["slurm.node.gpus"])
    for one in {one.subject: one for one in by_quantity["slurm.node.gpus"]}.values():
        node = one.subject
        if node in there and node in promised:
            parsed.saw(
                "slurm.gres.surplus",
                node,
                int(promised[node] - there[node]),
                "count",
                one.evidence,
                f"Gres says {promised[node]:.0f}, {there[node]:.0f} devices were found",
            )


def _numbers(several: list[Observation]) -> dict[str, float]:
    """Subject -> value, of those that were found out."""
    return {one.subject: float(one.value) for one in several if _is_number(one.value)}


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
