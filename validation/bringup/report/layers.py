"""Where the bandwidth goes: from the line rate to what a training gets, layer by layer.

Each layer was measured by a phase of its own. What it keeps of the layer above says who owns the loss, and where to
look: "perftest gives 392 Gb/s on each NIC, and NCCL 13 GB/s" is two lines of this table.
"""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.subjects import nodes_of_scale
from bringup.kernel.records import Observation, grouped

PUBLISHED = 21  # bandwidths of known/busbw.yaml, as shares of the line rate: the least and the most
LITTLE, MOST = 0.8, 1.01  # a layer that keeps less of the one above it loses
GBIT, MOST_NAMED = 8, 3  # Gb/s of a GB/s; ports in a sentence
OfPorts = Mapping[tuple[str, str], float]  # node that sends, port -> Gb/s
HEADER = ("layer", "GB/s", "of the layer above", "usual", "who owns the loss")
USUAL = f"{100 * LITTLE:.0f} to {100 * MOST:.0f} %: {PUBLISHED} published results"


class Layer(NamedTuple):
    name: str
    gb_per_s: float | None  # None: not measured
    owner: str  # of what it loses of the layer above
    measured_by: str  # the phase that measures it, or what a profile says
    usual: str = ""  # published, kept of the layer above
    kept: float | None = None  # of the nearest layer above that was measured

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        if self.gb_per_s is None:
            return self.name, "not measured", "", "", f"measured by: {self.measured_by}"
        usual = "" if self.kept is None else self.usual
        return self.name, f"{self.gb_per_s:.4g}", _share(self.kept), usual, self.owner


class Waterfall(NamedTuple):
    title: str
    layers: list[Layer]

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        return [layer.row for layer in self.layers]

    @property
    def worst(self) -> tuple[Layer, Layer] | None:
        """Return the layer that keeps least of the one above it, behind that one; None: all keep enough."""
        known = [layer for layer in self.layers if layer.gb_per_s is not None]
        pairs = [pair for pair in itertools.pairwise(known) if pair[1].kept is not None]  # of 0 nothing has a share
        least = min(pairs, key=lambda pair: pair[1].kept or 0)
        return None if (least[1].kept or 0) >= LITTLE else least

    @property
    def says(self) -> str:
        if self.worst is None:
            return f"No layer keeps less than {_share(LITTLE)} of the one above it."
        above, worst = self.worst
        has = f"It has {worst.gb_per_s:.4g} of the {above.gb_per_s:.4g} GB/s of the layer above ({above.name})."
        return f"Most is lost at: {worst.name}. {has} Look at {worst.owner}."


def _share(kept: float | None) -> str:
    return "" if kept is None else f"{100 * kept:.0f} %" if kept >= 0.01 else f"{100 * kept:.2f} %"


def waterfalls(judged: Sequence[Judged]) -> list[Waterfall]:
    """Return what is known between nodes, and inside a node: each where a layer has a share of another one."""
    known = [Waterfall("Between nodes", _kept(_between(judged))), Waterfall("Inside a node", _kept(_inside(judged)))]
    return [each for each in known if any(layer.kept is not None for layer in each.layers)]


def _kept(layers: Iterable[Layer]) -> list[Layer]:
    above: float | None = None
    kept = []
    for layer in layers:
        share = None if above is None or layer.gb_per_s is None else layer.gb_per_s / above
        kept.append(layer._replace(kept=share))
        above = layer.gb_per_s or above
    return kept


def _between(judged: Sequence[Judged]) -> list[Layer]:
    pairs, scaling = PHASES["nccl_pairwise"].title, PHASES["nccl_scaling"].title
    speeds = _values(judged, "nccl.all_reduce.busbw")
    scale = max(speeds, key=lambda name: nodes_of_scale(name) or 0, default="")
    if (nodes_of_scale(scale) or 0) < 2:
        scale = "all nodes"
    worst = min(_values(judged, "nccl.pair.slowest").values(), default=None)
    return [
        *_of_ports(judged, pairs),
        Layer("NCCL on the slowest pair of nodes", worst, "NCCL: transport, GPUDirect, settings; CPUs", pairs, USUAL),
        Layer(f"all_reduce on {scale}", speeds.get(scale), "switches between leaves, a slow node or link", scaling),
        *_in_training(judged, across=True),
    ]


def _inside(judged: Sequence[Judged]) -> list[Layer]:
    rates = [rate.value for each in judged if (rate := each.profile.machine.nvlink_busbw) is not None]
    alone, of_scale = _values(judged, "sweep.inside.busbw"), _values(judged, "nccl.all_reduce.busbw")
    whose = f"{min(alone, key=alone.__getitem__, default='')}: NVLinks, NVSwitches, clocks, CPUs"
    return [
        *(Layer("all_reduce over NVLink, as the profile has it", rate, "", "") for rate in rates[:1]),
        Layer("all_reduce in the slowest node", min(alone.values(), default=None), whose, PHASES["node_sweep"].title),
        Layer("all_reduce on 1-node", of_scale.get("1-node"), "NCCL: NVLS, channels", PHASES["nccl_scaling"].title),
        *_in_training(judged, across=False),
    ]


def _in_training(judged: Sequence[Judged], *, across: bool) -> list[Layer]:
    """Return three layers of the collective that moves most bytes in a step, of two runs of the faster one: what the
    network gives to messages of its size, what it gives in a step to the rank that waits least, and to all ranks."""
    none = [Layer("in a step of a training", None, "", f"a training {'across nodes' if across else 'on one node'}")]
    if all(each.training is None for each in judged):
        return none
    from bringup.training.advise import bandwidth
    from bringup.training.records.folder import records_of

    known = [
        (collective, each, seen)
        for each in judged
        if (records := records_of(each)) is not None and (seen := records.metrics.communication) is not None
        for collective in seen.collectives
        if (collective.over != "node" and len(each.run.nodes) > 1) is across
    ]
    if not known:
        return none
    most, run, seen = max(known, key=lambda each: (each[0].sent_bytes, each[0].busbw_gb_per_s))
    curves = bandwidth.measured([each for each in judged if each.run.phase == "nccl_scaling"])
    speed = curves.bus(most.operation, len(run.run.nodes), most.message_bytes)
    alone = speed.gbps if isinstance(speed, bandwidth.Speed) else None
    size = f"messages of {most.message_bytes / 2**20:.3g} MiB"
    title, last = PHASES[run.run.phase].title, min(seen.total_s, default=0.0)
    with_waits = most.busbw_gb_per_s * last / statistics.fmean(seen.total_s) if last > 0 else None
    whom = f"rank {[*seen.total_s, 0.0].index(last)}, for which the others wait most"
    return [
        Layer(f"{most.operation} of {size}, as in a step", alone, "the size of messages", PHASES["nccl_scaling"].title),
        Layer(f"the same inside a step: {title}", most.busbw_gb_per_s, "work beside it", ""),
        Layer("the same with the wait for ranks that come late", with_waits, whom, ""),
    ]


def _values(judged: Sequence[Judged], gate: str) -> dict[str, float]:
    """Subject -> the least value that a phase measured."""
    known: dict[str, float] = {}
    for verdict in (verdict for each in judged for verdict in each.verdicts.verdicts if verdict.gate == gate):
        if is_number(verdict.value) and 0 <= float(verdict.value) < float("inf"):
            known[verdict.subject] = min(float(verdict.value), known.get(verdict.subject, float("inf")))
    return known


def _of_ports(judged: Sequence[Judged], measured_by: str) -> list[Layer]:
    """Return what the RDMA ports of the node that has least give, all together. A collective goes over all of them and
    waits for the slowest, so that each counts as that one. Empty: the pairs ran, and no node has one."""
    facts = [fact for each in judged if each.run.phase == "nccl_pairwise" for fact in each.observations]
    rates, alone, shares = (_least_of_each(facts, f"rail.{what}@") for what in ("rate", "bandwidth", "together"))
    if facts and not rates:
        return []
    together = {key: share * rates.get(key, 0.0) for key, share in shares.items()}
    count = {node: len(ports) for node, ports in grouped(rates).items()}
    line_rate, slowest, at_work = (_of_all(speeds, count) for speeds in (rates, alone, together))
    of_port, of_all = f"{_slow(alone, rates)}: cable, NIC, switch", f"{_slow(together, alone)}: PCIe, NUMA, congestion"
    return [
        Layer("line rate of a node's RDMA ports", line_rate, "", measured_by),
        Layer("the slowest port alone, times their number", slowest, of_port, measured_by),
        Layer("the same while all ports work", at_work, of_all, measured_by),
    ]


def _slow(speeds: OfPorts, above: OfPorts) -> str:
    """Name the ports that lose, a few of them, and the node that sends over each."""
    slow = sorted((port, node) for (node, port), gbps in speeds.items() if gbps < LITTLE * above.get((node, port), 0))
    more = f" and {len(slow) - MOST_NAMED} more" if len(slow) > MOST_NAMED else ""
    return (", ".join(f"{port} from {node}" for port, node in slow[:MOST_NAMED]) or "ports") + more


def _least_of_each(facts: Iterable[Observation], prefix: str) -> OfPorts:
    """Return the least value of each, Gb/s or a share."""
    least: dict[tuple[str, str], float] = {}
    for fact in facts:
        if fact.quantity.startswith(prefix) and is_number(fact.value):
            key = fact.subject.partition("->")[0], fact.quantity.removeprefix(prefix)
            least[key] = min(float(fact.value), least.get(key, float("inf")))
    return least


def _of_all(of_port: OfPorts, count: Mapping[str, int]) -> float | None:
    """GB/s of all ports of a node, each as fast as its slowest; of the node with least, of those wholly known."""
    of_node = grouped((node, gbps) for (node, _), gbps in of_port.items())
    whole = [len(gbps) * min(gbps) / GBIT for node, gbps in of_node.items() if len(gbps) == count.get(node)]
    return min(whole, default=None)
