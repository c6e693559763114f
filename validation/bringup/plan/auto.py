"""The profile `auto`: made of the parts that a discovery of the nodes recognised, each number with its source.

What nobody recognised stays without a limit. What Slurm promised counts as there: a GPU that no node shows lowers no
expectation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bringup.plan import parts, stand_ins
from bringup.plan import profile as profiles
from bringup.plan.ceiling import Machine, Sourced
from bringup.plan.expectation import Expectation
from bringup.plan.gate import Gate
from bringup.plan.profile import Profile
from bringup.records import Observation

NAME = "auto"
RATES_GBPS = (800, 400, 200, 100)  # slower ports carry no collectives of GPUs
_ACTIVE = "discovery.rdma.active"
_SEEN = "what discovery saw"


@dataclass(frozen=True)
class Nodes:
    """What the nodes are, as far as it was seen."""

    model: str | None  # the driver's name of most GPUs. None: no driver answered
    gpus: int  # of a node: the most that were seen, or that Slurm promises
    layer: str | None = None  # of the ports that collectives use
    ports: int = 0  # of a node
    rate: int = 0  # Gb/s of a port
    has_no_ports: bool = False  # each node says so: silence is no absence
    virtual: bool = False
    simulated: bool = False
    cluster: str | None = None  # Slurm's name
    confined: bool = True
    others: tuple[str, ...] = ()  # further models

    @property
    def is_local(self) -> bool:
        return self.cluster == parts.index().local.cluster

    @property
    def gpu(self) -> parts.Gpu | None:
        return None if self.model is None else parts.gpu_called(self.model)

    @property
    def fabric(self) -> parts.Fabric | None:
        return None if self.layer is None or not self.ports else parts.index().fabrics.get(self.layer)

    @property
    def gbps(self) -> int:
        """Line rate of a port."""
        return self.rate if self.fabric is None else self.fabric.rates.get(self.ports, self.rate)


def is_open(profile: Profile) -> bool:
    """Whether it is `auto` before a discovery."""
    return profile.name == NAME and profile.recognised is None


def closed(profile: Profile) -> Profile | None:
    """The profile that runs are judged with. None: each with its own copy, because it is `auto`."""
    return None if is_open(profile) else profile


def seen(observations: Iterable[Observation], nodes: Collection[str], cluster: str | None) -> Nodes:
    """From the observations of a discovery. nodes: of the run. cluster: Slurm's name, as the run noted it."""
    by: dict[str, list[Observation]] = {}
    for fact in observations:
        if fact.value is not None and fact.subject.partition("/")[0] in {*nodes, "job"}:
            by.setdefault(fact.quantity, []).append(fact)
    models = Counter(str(fact.value) for fact in by.get("discovery.gpu.model", []))
    counts = [fact.value for name in ("discovery.gpu.count", "slurm.node.gpus") for fact in by.get(name, [])]
    layers = Counter(str(fact.value) for fact in by.get("discovery.rdma.layer", []))
    gpus = max((int(count) for count in counts if isinstance(count, int)), default=0)
    named = [model for model, _ in models.most_common()]
    ports, rate = _ports(by, gpus)
    return Nodes(
        model=named[0] if named else None,
        gpus=gpus,
        layer=max(layers, key=lambda layer: (layers[layer], layer == "InfiniBand"), default=None),
        ports=ports,
        rate=rate,
        has_no_ports=_all_say_none(by.get("discovery.rdma.ports", []), nodes),
        virtual=any(fact.value is True for fact in by.get("inventory.virtual", [])),
        simulated=any(map(stand_ins.is_named_in, by.get("discovery.gpu.identities", []))),
        cluster=cluster,
        confined=all(fact.value == "yes" for fact in by.get("discovery.slurm.confines_devices", [])),
        others=tuple(named[1:]),
    )


def _all_say_none(counts: Collection[Observation], nodes: Collection[str]) -> bool:
    return all(fact.value == 0 for fact in counts) and {fact.subject for fact in counts} == set(nodes)


def _ports(by: dict[str, list[Observation]], gpus: int) -> tuple[int, int]:
    """Ports that a node should have for collectives, and their rate. The node with the most active ones counts, and a
    number that suits its GPUs: of 7 ports beside 8 GPUs one is lost, of 10 two are for storage."""
    faster, at_rates = 0, []
    for rate in RATES_GBPS:
        counts = [fact.value for fact in by.get(f"{_ACTIVE}@{rate}Gb/s", [])]
        active = max((count for count in counts if isinstance(count, int)), default=0)
        at_rates.append((active - faster, rate))
        faster = max(active, faster)
    active, rate = max(at_rates)
    if active <= 0 or gpus <= 0:
        return 0, 0
    if active >= gpus:
        return active - active % gpus, rate
    return next(ports for ports in range(active, gpus + 1) if gpus % ports == 0), rate


def completed(nodes: Nodes, gates: Mapping[str, Gate] | None = None) -> Profile:
    """`auto` with the numbers of what was seen. Raises ProfileError where a part is wrong."""
    words = in_words(nodes)
    local = _local(nodes) if nodes.is_local else None
    extended = [local] if local is not None else ["generic", *_paths(nodes)]
    bare = Profile(schema_version=1, name=NAME, description=words, recognised=words, extends=extended)
    made = profiles.resolved(bare, profiles.PROFILES, gates)
    if local is not None:
        return made
    excluded = {entry.gate for entry in made.not_applicable}
    ports = {gate: entry for gate, entry in _of_ports(nodes).items() if gate not in excluded}
    machine = made.machine.model_copy(update=dict(_machine(nodes, made.machine)))
    return made.model_copy(update={"expect": made.expect | ports, "machine": machine})


def without_gpus() -> Profile:
    """`auto` on one machine that has no GPU. Raises ProfileError."""
    words = "no GPU here: one machine, whose ranks share its cores"
    bare = Profile(schema_version=1, name=NAME, description=words, recognised=words, extends="cpu")
    return profiles.resolved(bare, profiles.PROFILES)


def in_words(nodes: Nodes) -> str:
    """What was recognised, in one line, and what was not."""
    words = [f"{nodes.gpus} x {nodes.model or 'GPU'} per node"]
    if nodes.is_local:
        words = [f"the local cluster, {nodes.gpus} {'simulated' if nodes.simulated else 'placeholder'} GPU(s) per node"]
    if nodes.fabric is not None:
        words.append(f"{nodes.ports} x {nodes.gbps} Gb/s {nodes.fabric.words}")
    unknown = []
    if not nodes.is_local:
        if nodes.model is None:
            unknown.append("no driver named a GPU")
        elif nodes.gpu is None:
            unknown.append(f"{nodes.model} is not known")
        elif not _is_joined(nodes):
            unknown.append(f"no speed between {nodes.gpus} of these GPUs is known")
        if nodes.fabric is None:
            unknown.append("no RDMA port" if nodes.has_no_ports else "no fast RDMA port was seen")
        unknown += [f"{other} beside it" for other in nodes.others]
    return ", ".join(words) + (f"; without numbers: {', '.join(unknown)}" if unknown else "")


def _local(nodes: Nodes) -> str | None:
    """The profile of a shape of the local cluster. None: simulated GPUs that none is for."""
    local = parts.index().local
    if not nodes.simulated:
        return local.placeholders if nodes.confined else local.unconfined
    part = nodes.gpu.part if nodes.gpu is not None else None
    fabric = nodes.fabric.words if nodes.fabric is not None else None
    for shape in local.simulated:
        if shape.gpu == part and shape.fabric in (None, fabric):
            return shape.profile
    return None


def _is_joined(nodes: Nodes) -> bool:
    return nodes.gpu is not None and nodes.gpu.joined == nodes.gpus


def _paths(nodes: Nodes) -> list[str]:
    """Parts, the later ones the more special."""
    if nodes.model is None or nodes.others:
        return []
    chosen = ["any-gpu"]
    room = None if nodes.gpu is None else parts.of_gpu(nodes.gpu.part).machine.gpu_memory_gib
    if room is not None and room.value >= 79:
        chosen.append("80-gb")
    if _is_joined(nodes):
        chosen.append("nvswitch")
    if nodes.has_no_ports:
        chosen.append("fabrics/none")
    if nodes.fabric is not None:
        chosen += [f"fabrics/{part}" for part in nodes.fabric.parts]
    if nodes.gpu is not None:
        chosen.append(f"gpus/{nodes.gpu.part}")
    if nodes.virtual:
        chosen.append("virtual")
        if nodes.fabric is not None and nodes.fabric.virtual is not None:
            chosen.append(f"fabrics/{nodes.fabric.virtual}")
    return [f"parts/{part}.yaml" for part in chosen]


def _of_ports(nodes: Nodes) -> dict[str, Expectation]:
    if nodes.fabric is None:
        return {}
    source = f"{nodes.ports} ports of {nodes.rate} Gb/s on the node that has most of them: {_SEEN}"
    return {
        _ACTIVE: Expectation(at_least=nodes.ports, at=f"{nodes.rate}Gb/s", unit="count", source=source),
        "nccl.nics": Expectation(at_least=nodes.ports, unit="count", source=source),
    }


def _machine(nodes: Nodes, known: Machine) -> Iterable[tuple[str, Sourced | None]]:
    """Numbers of the node. Speeds inside of it hold only for as many GPUs as they were published of."""
    if not nodes.gpus:
        return
    yield "gpus_per_node", Sourced(value=nodes.gpus, source=f"{_SEEN}, or what Slurm promises, whichever is more")
    if not _is_joined(nodes):
        yield from ((key, None) for key in ("nvlink_busbw", "nvlink_ring_busbw") if getattr(known, key) is not None)
    if nodes.fabric is not None:
        yield "nics_per_node", Sourced(value=nodes.ports, source=_SEEN)
        each = float(f"{nodes.fabric.share * nodes.gbps / 8:.4g}")
        words = f"{nodes.fabric.share:g} of {nodes.gbps} Gb/s: {nodes.fabric.source}"
        yield "nic_gb_per_s", Sourced(value=each, source=words)
