"""RDMA ports, the NUMA nodes of GPUs, the NIC beside each GPU: facts of a node -> observations that gates judge."""

import re
from collections import Counter, defaultdict
from functools import lru_cache

from bringup.kernel.facts.fold import by_node
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Observation, Run, grouped
from bringup.readers.known import NEAR_FIRST

RATES_GBPS = (10, 25, 40, 50, 56, 100, 200, 400, 800)
FIELDS = ("state", "phys_state", "rate", "layer", "numa")
COMPUTE = "compute"  # whether NCCL may use the port, where somebody said so
_UP = ("4: ACTIVE", "5: LinkUp")

Ports = dict[str, dict[str, Observation]]  # port -> field -> fact


def ports(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.rdma.same and discovery.rdma.active@RATE of each node that counted its ports."""
    of_nodes = ports_of(observed)
    for count in observed.of("discovery.rdma.ports"):
        _ports(derived, count, of_nodes.get(count.subject, {}))


def ports_of(observed: Seen) -> dict[str, Ports]:
    of_nodes: dict[str, Ports] = defaultdict(lambda: defaultdict(dict))
    for field in (*FIELDS, COMPUTE):
        for fact in observed.of(f"discovery.rdma.{field}"):
            node, _, port = fact.subject.partition("/")
            if port:
                of_nodes[node][port][field] = fact
    return of_nodes


def others(ports: Ports) -> dict[str, str]:
    """Return ports that collectives do not use -> why not: NCCL_IB_HCA leaves them out; or, where it names none, the
    fastest have another link layer (a port for storage of the same rate must not stand in for a dead one)."""
    if any(COMPUTE in facts for facts in ports.values()):
        answers = {port: facts[COMPUTE] for port, facts in ports.items() if COMPUTE in facts}
        return {port: f"is left out by {fact.why}" for port, fact in answers.items() if fact.value is False}
    layers = {port: str(facts["layer"].value) for port, facts in ports.items() if "layer" in facts}
    speeds = {port: speed for port in layers if not isinstance(speed := _speed(ports[port]), str)}
    fastest = Counter(layers[port] for port, speed in speeds.items() if speed == max(speeds.values()))
    usual = max(fastest, key=lambda layer: fastest[layer], default=None)
    return {port: f"is {layer}" for port, layer in layers.items() if usual is not None and layer != usual}


def is_a_setting(ports: Ports) -> bool:
    """Say whether a setting may be all that is wrong with a node's ports: those that are down were switched off, or
    have a link and wait for the subnet manager, and the others run at one rate. No port at all: its driver."""
    used = [facts for port, facts in ports.items() if port not in others(ports)]
    physical = {_word(str(facts["phys_state"].value)) for facts in used if "phys_state" in facts}
    rates = {speed for facts in used if not isinstance(speed := _speed(facts), str)}
    return physical <= {"Disabled", "LinkUp"} and len(rates) <= 1


def _ports(derived: Parsed, count: Observation, ports: Ports) -> None:
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
    all_ports = "; ".join(f"{' '.join(names)}: {port_state}" for port_state, names in alike.items()) or "none"
    derived.saw("discovery.rdma.same", node, all_ports, "text", where)
    left_out = others(ports)
    speeds = {port: _speed(facts) for port, facts in sorted(ports.items()) if port not in left_out}
    words = [f"{port} {why}" for port, why in sorted(left_out.items())]
    for rate in RATES_GBPS:
        slow = {port: speed for port, speed in speeds.items() if isinstance(speed, str) or speed < rate}
        idle = [f"{port} {why if isinstance(why, str) else f'runs at {why:g} Gb/s'}" for port, why in slow.items()]
        remark = "; ".join([*idle, *words]) or None
        derived.saw(f"discovery.rdma.active@{rate}Gb/s", node, len(speeds) - len(idle), "count", where, remark)


def _speed(facts: dict[str, Observation]) -> float | str:
    """Rate of a port that is up, in Gb/s; for another port, the reason why it does not count."""
    return _speed_of(*(str(facts[field].value) if field in facts else "unknown" for field in FIELDS[:3]))


@lru_cache(maxsize=1024)
def _speed_of(state: str, phys: str, speed: str) -> float | str:
    if (state, phys) != _UP:
        return f"is {_word(state)}, {_word(phys)}"
    match = re.match(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec", speed)  # 400 Gb/sec (4X NDR)
    if match is None:
        return f"does not say its rate: {speed}"
    return float(match[1])


def _word(state: str) -> str:
    """Shorten `4: ACTIVE` to `ACTIVE`."""
    return state.partition(": ")[2] or state


def numa_of_gpus(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive the NUMA nodes of a node's GPUs in the order of their PCI addresses: `0 0 1 1`. -1: the firmware does not
    report it; that is accepted only if the node has one NUMA node."""
    nodes = {fact.subject: fact.value for fact in observed.of("discovery.numa_nodes")}
    for node, gpus in by_node(fact for fact in observed.of("discovery.numa.gpu") if "/" in fact.subject).items():
        unknown = [gpu for gpu in gpus if gpu.value is None or (gpu.value == "-1" and nodes.get(node) != 1)]
        if unknown:
            why = f"{unknown[0].subject.partition('/')[2]}: {unknown[0].why or 'the firmware does not say (-1)'}"
            derived.saw("discovery.numa.gpu", node, None, "text", unknown[0].evidence, why)
        else:
            numbers = " ".join(str(gpu.value) for gpu in sorted(gpus, key=lambda gpu: gpu.subject))
            derived.saw("discovery.numa.gpu", node, numbers, "text", gpus[0].evidence)


BESIDE = ("PIX", "PXB")  # below PCIe switches: such a NIC belongs to the GPU
NONE = "none"
HIDDEN = "the virtual machine shows no NIC beside a GPU; NCCL needs a file that does (NCCL_TOPO_FILE)"
Paths = dict[str, dict[str, str]]  # GPU -> NIC -> path


def nearest_nic(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.topology.nic: the path from a GPU to the nearest NIC that is up and that no other GPU needs; of
    the GPU with the longest such path. A NIC for storage does not count, if known."""
    ports = ports_of(observed)
    virtual = {fact.subject for fact in observed.of("inventory.virtual") if fact.value is True}
    for node, gpus in by_node(observed.of("inventory.topology.paths")).items():
        other, down, silent = _devices(ports.get(node, {}))
        paths: Paths = {}
        for fact in gpus:
            entries = (entry.rpartition("=") for entry in fact.value) if isinstance(fact.value, list) else ()
            paths[fact.device] = {name: path for name, _, path in entries if name not in other}
        if node in virtual and not any(path in BESIDE for nics in paths.values() for path in nics.values()):
            derived.saw("discovery.topology.nic", node, None, "text", gpus[0].evidence, HIDDEN)
            continue
        up = {gpu: {name: path for name, path in nics.items() if name not in down} for gpu, nics in paths.items()}
        deprived = _with_one_of_their_own(paths) - _with_one_of_their_own(up)
        nearest = {gpu: _nearest(nics, beside=gpu not in deprived) for gpu, nics in up.items()}
        worst = max(nearest, key=lambda gpu: [*NEAR_FIRST, NONE].index(nearest[gpu]))
        lost = [f"{name} {down[name]}" for name, path in paths[worst].items() if path in BESIDE and name in down]
        words = "; ".join([worst, *lost, *(["its NIC is another GPU's"] if worst in deprived and not lost else [])])
        unheard = next((why for name, why in silent.items() if any(name in nics for nics in paths.values())), None)
        is_up = unheard is None or nearest[worst] not in BESIDE  # what is not known is not up
        path = nearest[worst] if is_up else None
        derived.saw("discovery.topology.nic", node, path, "text", gpus[0].evidence, words if is_up else unheard)


def _devices(ports: Ports) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """RDMA devices that are not for collectives. Of the others those that have no port up, with what they say; and
    those of which it is not known, with the reason."""
    left_out = others(ports)
    used = {port: facts["state"] for port, facts in ports.items() if port not in left_out and "state" in facts}
    states = grouped((port.rpartition(":")[0], state) for port, state in used.items())
    down, silent = dict[str, str](), dict[str, str]()
    for device, facts_of_ports in states.items():
        unknown = next((fact for fact in facts_of_ports if fact.value is None), None)
        if any("ACTIVE" in str(fact.value) for fact in facts_of_ports):
            continue
        if unknown is not None:
            silent[device] = f"{device}: {unknown.why}"
        else:
            down[device] = f"is {_word(str(facts_of_ports[0].value))}"
    return {port.rpartition(":")[0] for port in left_out} - states.keys(), down, silent


def _nearest(nics: dict[str, str], beside: bool) -> str:
    return min((path for path in nics.values() if beside or path not in BESIDE), key=NEAR_FIRST.index, default=NONE)


def _with_one_of_their_own(paths: Paths) -> set[str]:
    """GPUs that get a NIC beside them when as many as possible get one."""
    owner: dict[str, str] = {}

    def finds(gpu: str, tried: set[str]) -> bool:
        for name, path in paths[gpu].items():
            if path in BESIDE and name not in tried:
                tried.add(name)
                if name not in owner or finds(owner[name], tried):
                    owner[name] = gpu
                    return True
        return False

    return {gpu for gpu in paths if finds(gpu, set())}
