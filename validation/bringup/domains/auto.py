"""The profile `auto`: made of the parts that a discovery of the nodes recognised, each number with its source.

What is not recognised stays without a limit. What Slurm promised counts as there: a GPU that no node shows lowers no
expectation.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bringup.domains import parts
from bringup.kernel.characters import many
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan import stand_ins
from bringup.kernel.plan import subjects as naming
from bringup.kernel.plan.ceiling import Sourced
from bringup.kernel.plan.expectation import Expectation
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Observation, Run, grouped

NAME = profiles.AUTO
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
    others: tuple[str, ...] = ()  # further models

    @property
    def local_profile(self) -> str | None:
        """Name the local cluster's profile. None: another cluster, or simulated GPUs that did not answer."""
        gpu = self.gpu.part if self.simulated and self.gpu is not None else None
        fabric = None if self.fabric is None else self.fabric.words
        of_cluster = (local for local in parts.index().local if local.cluster == self.cluster)
        fitting = (each for each in of_cluster if each.gpu in (None, gpu) and each.fabric in (None, fabric))
        return next((each.profile for each in fitting), None)

    @property
    def is_joined(self) -> bool:
        """Say whether the published speeds between GPUs are of as many in a node."""
        return self.gpu is not None and self.gpu.joined == self.gpus

    @property
    def gpu(self) -> parts.Gpu | None:
        return None if self.model is None else parts.gpu_called(self.model)

    @property
    def fabric(self) -> parts.Fabric | None:
        return None if self.layer is None or not self.ports else parts.index().fabrics.get(self.layer)

    @property
    def gbps(self) -> int:
        """Return the line rate of a port, Gb/s."""
        return self.rate if self.fabric is None else self.fabric.rates.get(self.ports, self.rate)


def with_own(opened: Profile, made: Profile) -> Profile:
    """Return `made`, and over it what a profile that extends `auto` says itself."""
    return made if opened.own is None else profiles.over(made, opened.own)


def of_run(opened: Profile, observations: Iterable[Observation], run: Run) -> Profile:
    """Return the profile of a discovery that was opened with `auto`: with the numbers of what it saw."""
    return with_own(opened, completed(seen(observations, run.nodes, run.cluster)))


def seen(observations: Iterable[Observation], nodes: Collection[str], cluster: str | None) -> Nodes:
    """Read the nodes from a discovery's observations. nodes: of the run. cluster: Slurm's name, as the run noted it."""
    kept = {*nodes, naming.JOB}
    known = (fact for fact in observations if fact.value is not None and fact.node in kept)
    by = grouped((fact.quantity, fact) for fact in known)
    models = Counter(str(fact.value) for fact in by.get("discovery.gpu.model", []))
    divided = any(fact.value != "off" for fact in by.get("discovery.gpu.mig", []))  # Slurm then counts the parts
    counted = [*by.get("discovery.gpu.count", []), *([] if divided else by.get("slurm.node.gpus", []))]
    gpus = max((fact.value for fact in counted if isinstance(fact.value, int)), default=0)
    named = [model for model, _ in models.most_common()]
    counts = by.get("discovery.rdma.ports", [])
    return Nodes(
        named[0] if named else None,
        gpus,
        *_ports(by, gpus),
        has_no_ports={(fact.subject, fact.value) for fact in counts} == {(node, 0) for node in nodes},
        virtual=any(fact.value is True for fact in by.get("inventory.virtual", [])),
        simulated=stand_ins.are_in(by.get("discovery.gpu.identities", [])),
        cluster=cluster,
        others=tuple(named[1:]),
    )


def _ports(by: Mapping[str, Sequence[Observation]], gpus: int) -> tuple[str | None, int, int]:
    """Return (layer, ports that a node should have for collectives, Gb/s of each), of the node with most ports."""
    rate, active = max(((rate, _active(by, rate)) for rate in RATES_GBPS), key=lambda known: (known[1], known[0]))
    rates = {fact.subject: str(fact.value) for fact in by.get("discovery.rdma.rate", [])}
    layers = by.get("discovery.rdma.layer", [])
    of_rate = [fact for fact in layers if active and rates.get(fact.subject, "").startswith(f"{rate} ")] or layers
    counted = Counter(str(fact.value) for fact in of_rate)
    layer = max(counted, key=lambda name: (counted[name], name == "InfiniBand"), default=None)
    of_nodes = Counter(fact.node for fact in layers if fact.value == layer)
    present = max(of_nodes.values(), default=0)
    if not active and layer != "Ethernet":  # a subnet manager that is gone takes all of them; Ethernet may be unused
        return layer, _suited(min(present, gpus), gpus, present), RATES_GBPS[-1]
    return layer, _suited(active, gpus, active + max(0, present - _most(by, "10"))), rate


def _active(by: Mapping[str, Sequence[Observation]], rate: int) -> int:
    """Ports of a node that are active at this rate."""
    faster = [known for known in RATES_GBPS if known > rate]
    return _most(by, str(rate)) - (_most(by, str(min(faster))) if faster else 0)


def _most(by: Mapping[str, Sequence[Observation]], rate: str) -> int:
    """Ports that are active at this rate or a faster one, of the node that has most of them."""
    counts = [fact.value for fact in by.get(f"{_ACTIVE}@{rate}Gb/s", [])]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _suited(active: int, gpus: int, present: int) -> int:
    """Return a number of ports that suits the GPUs. Of 7 beside 8 GPUs one is lost, also where no node shows it; of 5,
    where none is down, one is for storage, as two of 10 are. present: active ones, and those that are down."""
    if active <= 0 or gpus <= 0:
        return 0
    if active >= gpus:
        return active - active % gpus
    suited = [ports for ports in range(1, gpus + 1) if gpus % ports == 0]
    up = min(ports for ports in suited if ports >= active)
    return up if up <= present or up == gpus == active + 1 else max(ports for ports in suited if ports <= active)


def completed(nodes: Nodes, *, strict: bool = False) -> Profile:
    """Return `auto` with the numbers of what was seen. Raises FileError where a part is wrong."""
    if nodes.local_profile is not None:
        return _resolved(in_words(nodes), [nodes.local_profile], strict=strict)
    made = _resolved(in_words(nodes), ["generic", *_paths(nodes)], strict=strict)
    excluded = {entry.gate for entry in made.not_applicable}
    ports = {gate: entry for gate, entry in _of_ports(nodes).items() if gate not in excluded}
    machine = made.machine.model_copy(update=_machine(nodes))
    return made.model_copy(update={"expect": made.expect | ports, "machine": machine})


def _resolved(words: str, extended: list[str], *, strict: bool = False) -> Profile:
    bare = Profile(schema_version=1, name=NAME, description=words, recognised=words, extends=extended)
    return profiles.resolved(bare, profiles.PROFILES, strict=strict)


def in_words(nodes: Nodes) -> str:
    """Say in one line what was recognised, and what was not."""
    words = [f"{nodes.gpus} x {nodes.model or 'GPU'} per node"]
    if nodes.local_profile is not None:
        kind = "simulated" if nodes.simulated else "placeholder"
        words = [f"the local cluster, {many(nodes.gpus, f'{kind} GPU')} per node"]
    if nodes.fabric is not None:
        words.append(f"{nodes.ports} x {nodes.gbps} Gb/s {nodes.fabric.words}")
    unknown = []
    if nodes.local_profile is None:
        if nodes.model is None:
            unknown.append("no driver named a GPU")
        elif nodes.gpu is None:
            unknown.append(f"{nodes.model} is not known")
        elif not nodes.is_joined:
            unknown.append(f"no speed between {nodes.gpus} of these GPUs is known")
        if nodes.fabric is None:
            unknown.append("no RDMA port" if nodes.has_no_ports else "no fast RDMA port was seen")
        unknown += [f"{other} beside it" for other in nodes.others]
    return ", ".join(words) + (f"; without numbers: {', '.join(unknown)}" if unknown else "")


def _paths(nodes: Nodes) -> list[str]:
    """Parts, the later ones the more special. Of unlike GPUs there is none but that they are GPUs."""
    if nodes.model is None:
        return []
    gpu, fabric = None if nodes.others else nodes.gpu, nodes.fabric
    joined = gpu is not None and nodes.is_joined
    room = None if gpu is None else parts.of_gpu(gpu.part).machine.gpu_memory_gib
    chosen = {
        "any-gpu": True,
        "80-gb": room is not None and room.value >= 79,
        "nvswitch": joined,
        "nic-per-gpu": joined and nodes.ports > 0 and nodes.ports % nodes.gpus == 0,
        "fabrics/none": nodes.has_no_ports,
        **{f"fabrics/{part}": True for part in (fabric.parts if fabric is not None else ())},
        f"gpus/{gpu and gpu.part}": gpu is not None,
        f"nodes/{gpu and gpu.part}": joined,
        "virtual": nodes.virtual,
        f"fabrics/{fabric and fabric.virtual}": nodes.virtual and fabric is not None and fabric.virtual is not None,
    }
    return [f"parts/{part}.yaml" for part, fits in chosen.items() if fits]


def _of_ports(nodes: Nodes) -> dict[str, Expectation]:
    if nodes.fabric is None:
        return {}
    source = f"{nodes.ports} ports of {nodes.rate} Gb/s on the node that has most of them: {_SEEN}"
    return {
        _ACTIVE: Expectation(at_least=nodes.ports, at=f"{nodes.rate}Gb/s", unit="count", source=source),
        "nccl.nics": Expectation(at_least=nodes.ports, unit="count", source=source),
    }


def _machine(nodes: Nodes) -> dict[str, Sourced]:
    """Numbers of the node. Without a GPU there is no fabric either: its ports are those that suit the GPUs."""
    counted = f"{_SEEN}, or what Slurm promises, whichever is more"
    numbers = {"gpus_per_node": Sourced(value=nodes.gpus, source=counted)} if nodes.gpus else {}
    if nodes.fabric is not None:
        each = float(f"{nodes.fabric.share * nodes.gbps / 8:.4g}")
        words = f"{nodes.fabric.share:g} of {nodes.gbps} Gb/s: {nodes.fabric.source}"
        numbers["nics_per_node"] = Sourced(value=nodes.ports, source=_SEEN)
        numbers["nic_gb_per_s"] = Sourced(value=each, source=words)
    return numbers
