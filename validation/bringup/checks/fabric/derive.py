"""RDMA ports and the NUMA nodes of GPUs: facts of sysfs -> observations of a node that gates judge."""

from __future__ import annotations

import re
from collections import defaultdict

from bringup.checks.fabric import rails
from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.records import Observation, Run

RATES_GBPS = (10, 25, 40, 50, 56, 100, 200, 400, 800)
FIELDS = ("state", "phys_state", "rate", "layer", "numa")
_UP = ("4: ACTIVE", "5: LinkUp")


def derive(observed: Seen, run: Run) -> Parsed:
    derived = Parsed()
    ports: dict[str, dict[str, dict[str, Observation]]] = defaultdict(
        lambda: defaultdict(dict)
    )  # node -> port -> field -> fact
    for field in FIELDS:
        for fact in observed.of(f"discovery.rdma.{field}"):
            node, _, port = fact.subject.partition("/")
            if port:
                ports[node][port][field] = fact
    for count in observed.of("discovery.rdma.ports"):
        _ports(derived, count, ports[count.subject])
    for kind in ("flaps", "errors"):
        counted: dict[str, list[Observation]] = defaultdict(list)  # node -> its ports
        for fact in observed.of(f"inventory.rdma.{kind}"):
            counted[fact.subject.partition("/")[0]].append(fact)
        for count in observed.of("discovery.rdma.ports"):
            _worst_port(derived, count, f"discovery.rdma.{kind}", counted[count.subject])
    _gpus(derived, observed)
    derived.add(rails.derive(observed, run))
    return derived


def _ports(derived: Parsed, count: Observation, ports: dict[str, dict[str, Observation]]) -> None:
    """discovery.rdma.same: all ports in one text, to compare nodes. discovery.rdma.active@RATE: ports that are up and
    at least that fast."""
    node, where = count.subject, count.evidence
    unknown = [
        f"{port}: {facts[field].why if field in facts else f'its {field} did not arrive'}"
        for port, facts in ports.items()
        for field in FIELDS
        if field not in facts or facts[field].value is None
    ]
    if count.value != len(ports):
        unknown.append(f"{len(ports)} of {count.value} ports are described")
    if unknown:
        derived.saw("discovery.rdma.same", node, None, "text", where, unknown[0])
        for rate in RATES_GBPS:
            derived.saw(f"discovery.rdma.active@{rate}Gb/s", node, None, "count", where, unknown[0])
        return
    alike: dict[str, list[str]] = defaultdict(list)
    for port, facts in sorted(ports.items()):
        state, phys, speed, layer, numa = (str(facts[field].value) for field in FIELDS)
        alike[f"{_word(state)} {_word(phys)} {speed} {layer} NUMA {numa}"].append(port)
    derived.saw(
        "discovery.rdma.same",
        node,
        "; ".join(f"{' '.join(names)}: {port_state}" for port_state, names in alike.items()) or "none",
        "text",
        where,
    )
    speeds = {port: _speed(facts) for port, facts in sorted(ports.items())}
    for rate in RATES_GBPS:
        idle = [
            f"{port} {speed if isinstance(speed, str) else f'runs at {speed:g} Gb/s'}"
            for port, speed in speeds.items()
            if isinstance(speed, str) or speed < rate
        ]
        remark = "; ".join(idle) or None
        derived.saw(f"discovery.rdma.active@{rate}Gb/s", node, len(speeds) - len(idle), "count", where, remark)


def _worst_port(derived: Parsed, count: Observation, quantity: str, facts: list[Observation]) -> None:
    """discovery.rdma.flaps and .errors: the counts of the node's worst port, with its name."""
    node = count.subject
    unknown = [fact for fact in facts if not is_number(fact.value)]
    if unknown:
        port = unknown[0].subject.partition("/")[2]
        derived.saw(quantity, node, None, "count", unknown[0].evidence, f"{port}: {unknown[0].why}")
    elif count.value != len(facts):
        derived.saw(quantity, node, None, "count", count.evidence, f"{len(facts)} of {count.value} ports are described")
    elif not facts:
        derived.saw(quantity, node, 0, "count", count.evidence, "it has no RDMA port")
    else:
        worst = max(facts, key=lambda fact: fact.value if is_number(fact.value) else 0)
        port = worst.subject.partition("/")[2]
        derived.saw(quantity, node, worst.value, "count", worst.evidence, f"{port}: {worst.why}" if worst.why else port)


def _speed(facts: dict[str, Observation]) -> float | str:
    """Rate of a port that is up, in Gb/s; for another port, the reason why it does not count."""
    state, phys, speed = (str(facts[field].value) for field in FIELDS[:3])
    if (state, phys) != _UP:
        return f"is {_word(state)}, {_word(phys)}"
    match = re.match(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec", speed)  # 400 Gb/sec (4X NDR)
    if match is None:
        return f"does not say its rate: {speed}"
    return float(match[1])


def _word(state: str) -> str:
    """`4: ACTIVE` -> `ACTIVE`"""
    return state.partition(": ")[2] or state


def _gpus(derived: Parsed, observed: Seen) -> None:
    """NUMA nodes of a node's GPUs in the order of their PCI addresses: `0 0 1 1`. -1 means that the firmware does not
    report it; that is accepted only if the node has one NUMA node."""
    nodes = {fact.subject: fact.value for fact in observed.of("discovery.numa_nodes")}
    gpus_of: dict[str, list[Observation]] = defaultdict(list)
    for fact in observed.of("discovery.numa.gpu"):
        if "/" in fact.subject:
            gpus_of[fact.subject.partition("/")[0]].append(fact)
    for node, gpus in gpus_of.items():
        unknown = [gpu for gpu in gpus if gpu.value is None or (gpu.value == "-1" and nodes.get(node) != 1)]
        if unknown:
            why = f"{unknown[0].subject.partition('/')[2]}: {unknown[0].why or 'the firmware does not say (-1)'}"
            derived.saw("discovery.numa.gpu", node, None, "text", unknown[0].evidence, why)
        else:
            derived.saw(
                "discovery.numa.gpu",
                node,
                " ".join(str(gpu.value) for gpu in sorted(gpus, key=lambda gpu: gpu.subject)),
                "text",
                gpus[0].evidence,
            )
