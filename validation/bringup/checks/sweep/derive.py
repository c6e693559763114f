"""Results of a node's GPUs, joined per node and compared with the other nodes."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from bringup.checks.sweep import dcgm
from bringup.evidence.parsed import Parsed, Seen, is_number, numbers
from bringup.records import Observation, Run

_PARTS = ("sweep_device", "seeded_step", "sustained_load", "node_sweep")
_STEPS = ("cpu", "gpu")


def derive(observed: Seen, run: Run) -> Parsed:
    derived = Parsed()
    if run.phase != "node_sweep":
        return derived
    _ranks(derived, observed)
    _devices(derived, observed)
    for where in _STEPS:
        _same_bits(derived, observed, where, run.gpus_per_node)
    _load(derived, observed)
    for part in ("inside", "load"):
        _wrong_values(derived, observed, part, run.gpus_per_node)
    _pcie(derived, observed, run.gpus_per_node)
    _against_peers(
        derived, numbers(observed.of("sweep.inside.busbw")), observed.of("sweep.inside.busbw"), "sweep.inside.peers"
    )
    derived.add(dcgm.derive(observed))
    return derived


def _by_node(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    by_node: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        by_node[observation.subject.partition("/")[0]].append(observation)
    return by_node


def _name(observation: Observation) -> str:
    return observation.subject.partition("/")[2] or observation.subject


def _ranks(derived: Parsed, observed: Seen) -> None:
    """sweep.ranks per node: the ranks that finished every part; for the others, the last part that they finished."""
    ended = {part: _by_node(observed.of(f"probe.{part}.finished")) for part in _PARTS}
    for node, begun in _by_node(observed.of("sweep.gpu.device")).items():
        counts = {part: sum(1 for fact in ended[part].get(node, []) if fact.value is True) for part in _PARTS}
        short = next((f"{part}: {counts[part]} finished" for part in _PARTS if counts[part] < len(begun)), None)
        derived.saw("sweep.ranks", node, min(counts.values()), "count", begun[0].evidence, short)


def _devices(derived: Parsed, observed: Seen) -> None:
    for node, facts in _by_node(observed.of("sweep.gpu.device")).items():
        known = sorted({str(fact.value) for fact in facts if fact.value is not None})
        derived.saw(
            "sweep.device", node, " and ".join(known) if known else None, "text", facts[0].evidence, facts[0].why
        )
    for node, facts in _by_node(observed.of("sweep.gpu.device.fallback")).items():
        fell_back = [fact for fact in facts if fact.value]
        remark = f"{_name(fell_back[0])}: {fell_back[0].why}" if fell_back else None
        unknown = next((fact for fact in facts if fact.value is None), None)
        value = len(fell_back) if fell_back or unknown is None else None
        derived.saw(
            "sweep.device.fallback",
            node,
            value,
            "count",
            facts[0].evidence,
            remark or (f"{_name(unknown)}: {unknown.why}" if unknown else None),
        )


def _same_bits(derived: Parsed, observed: Seen, where: str, ranks: int) -> None:
    """sweep.step.cpu and sweep.step.gpu per node: devices whose seeded step differs in any bit from its own repetition,
    or from most devices of the same kind on all nodes. Unknown if a device of the node gave no answer."""
    quantity = f"sweep.gpu.step.{where}"
    kinds = {fact.subject: str(fact.value) for fact in observed.of(f"{quantity}.kind") if fact.value is not None}
    answers = observed.by_subject(quantity)
    first = {subject: str(facts[0].value) for subject, facts in answers.items() if facts[0].value is not None}
    common = {
        kind: _most(first, [subject for subject in first if kinds.get(subject) == kind]) for kind in kinds.values()
    }
    differences: dict[str, list[str]] = defaultdict(list)
    unknown: dict[str, str] = {}
    for subject, facts in answers.items():
        node, _, device = subject.partition("/")
        missing = next((fact.why or "no answer" for fact in facts if fact.value is None), None)
        if missing is not None or subject not in kinds:
            unknown.setdefault(node, f"{device or subject}: {missing or 'its kind did not arrive'}")
            continue
        if len({str(fact.value) for fact in facts}) > 1:
            differences[node].append(f"{device} differs from itself")
            continue
        usual = common[kinds[subject]]
        if usual is None:
            differences[node].append(f"{device}: devices of its kind differ, and no majority agrees")
        elif first[subject] != usual[0]:
            differences[node].append(f"{device} differs from {usual[1]} of {usual[2]} of its kind")
    for node, facts in _by_node(observed.of(quantity)).items():
        devices = {fact.subject for fact in facts}
        if len(devices) < ranks:
            unknown.setdefault(node, f"{len(devices)} of {ranks} ranks said it")
        kind = kinds.get(facts[0].subject, "")
        value = len(differences[node]) if differences[node] or node not in unknown else None
        remark = "; ".join(differences[node]) or unknown.get(node) or f"{len(devices)} of {kind}"
        derived.saw(f"sweep.step.{where}", node, value, "count", facts[0].evidence, remark)


def _most(first: dict[str, str], subjects: Sequence[str]) -> tuple[str, int, int] | None:
    """(the most common result, its count, the number of results); None if no more than half agree."""
    value, count = Counter(first[subject] for subject in subjects).most_common(1)[0] if subjects else ("", 0)
    return (value, count, len(subjects)) if 2 * count > len(subjects) else None


def _load(derived: Parsed, observed: Seen) -> None:
    """sweep.load.peers of the node's slowest GPU, and sweep.load.drift of the GPU that lost most speed."""
    slowest: dict[str, Observation] = {}
    for quantity, gate in (("tflops", ""), ("drift", "sweep.load.drift")):
        for node, facts in _by_node(observed.of(f"sweep.gpu.load.{quantity}")).items():
            missing = next((fact for fact in facts if not is_number(fact.value)), None)
            known = [fact for fact in facts if is_number(fact.value)]
            worst = min(known, key=_value) if known else None
            for fact in (worst, missing) if gate else ():
                if fact is not None:
                    derived.saw(gate, node, fact.value, fact.unit, fact.evidence, f"{_name(fact)}: {fact.why}")
            if not gate:
                slowest[node] = missing or facts[0] if missing or worst is None else worst
    speeds = {node: _value(fact) for node, fact in slowest.items() if is_number(fact.value)}
    _against_peers(derived, speeds, [slowest[node] for node in slowest], "sweep.load.peers")


def _value(fact: Observation) -> float:
    return float(fact.value) if is_number(fact.value) else 0.0


def _against_peers(derived: Parsed, speeds: dict[str, float], facts: Sequence[Observation], gate: str) -> None:
    """A node's speed as a share of the median of all nodes; with two nodes, of the faster one."""
    usual = statistics.median_high(speeds.values()) if speeds else 0.0
    for fact in facts:
        node = fact.subject.partition("/")[0]
        if node not in speeds or usual <= 0:
            derived.saw(gate, node, None, "ratio", fact.evidence, fact.why or "it has no speed to compare")
            continue
        device = f"{_name(fact)}: " if "/" in fact.subject else ""
        peers = "the faster of 2 nodes has" if len(speeds) == 2 else f"the median of {len(speeds)} nodes is"
        remark = f"{device}{speeds[node]:.4g} {fact.unit}, {peers} {usual:.4g}"
        derived.saw(gate, node, round(speeds[node] / usual, 3), "ratio", fact.evidence, remark)


def _pcie(derived: Parsed, observed: Seen, ranks: int) -> None:
    """sweep.load.pcie: GPUs of the node whose PCIe link was slower under load than its maximum."""
    for node, facts in _by_node(observed.of("sweep.gpu.load.pcie")).items():
        short = [f"{_name(fact)}: {fact.why}" for fact in facts if fact.value]
        missing = next((f"{_name(fact)}: {fact.why}" for fact in facts if fact.value is None), None)
        if len(facts) < ranks:
            missing = missing or f"{len(facts)} of {ranks} ranks said it"
        value = len(short) if short or missing is None else None
        remark = "; ".join(short) or missing or facts[0].why
        derived.saw("sweep.load.pcie", node, value, "count", facts[0].evidence, remark)


def _wrong_values(derived: Parsed, observed: Seen, part: str, ranks: int) -> None:
    for node, facts in _by_node(observed.of(f"sweep.gpu.{part}.wrong_values")).items():
        wrong = [fact for fact in facts if fact.value]
        unknown = next((fact for fact in facts if fact.value is None), None)
        missing = f"{len(facts)} of {ranks} ranks said it" if len(facts) < ranks else None
        open_ = unknown.why if unknown is not None else missing
        value = int(sum(_value(fact) for fact in wrong)) if wrong or open_ is None else None
        remark = f"on {', '.join(map(_name, wrong))}" if wrong else open_
        derived.saw(f"sweep.{part}.wrong_values", node, value, "count", facts[0].evidence, remark)
