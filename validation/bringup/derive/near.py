"""The NIC beside each GPU: paths of `nvidia-smi topo -m`, and which NICs are up and for collectives."""

from __future__ import annotations

from bringup.derive import fabric
from bringup.derive.fold import by_node
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.topology import NEAR_FIRST
from bringup.records import Observation, Run

BESIDE = ("PIX", "PXB")  # below PCIe switches: such a NIC belongs to the GPU
NONE = "none"
HIDDEN = "the virtual machine shows no NIC beside a GPU; NCCL needs a file that does (NCCL_TOPO_FILE)"
Paths = dict[str, dict[str, str]]  # GPU -> NIC -> path


def nic(derived: Parsed, observed: Seen, run: Run) -> None:
    """discovery.topology.nic: the path from a GPU to the nearest NIC that is up and that no other GPU needs; of the GPU
    with the longest such path. A NIC for storage does not count, where it is known."""
    ports = fabric.ports_of(observed)
    virtual = {fact.subject for fact in observed.of("inventory.virtual") if fact.value is True}
    for node, gpus in by_node(observed.of("inventory.topology.paths")).items():
        other, down, silent = _devices(ports.get(node, {}))
        paths: Paths = {}
        for fact in gpus:
            entries = (entry.rpartition("=") for entry in fact.value) if isinstance(fact.value, list) else ()
            paths[fact.subject.partition("/")[2]] = {name: path for name, _, path in entries if name not in other}
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
        if unheard is not None and nearest[worst] in BESIDE:  # what is not known is not up
            derived.saw("discovery.topology.nic", node, None, "text", gpus[0].evidence, unheard)
        else:
            derived.saw("discovery.topology.nic", node, nearest[worst], "text", gpus[0].evidence, words)


def _devices(ports: fabric.Ports) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """RDMA devices that are not for collectives. Of the others those that have no port up, with what they say; and
    those of which it is not known, with the reason."""
    others = fabric.others(ports)
    states: dict[str, list[Observation]] = {}
    for port, facts in ports.items():
        if port not in others and "state" in facts:
            states.setdefault(port.rpartition(":")[0], []).append(facts["state"])
    down, silent = dict[str, str](), dict[str, str]()
    for device, facts_of_ports in states.items():
        unknown = next((fact for fact in facts_of_ports if fact.value is None), None)
        if any("ACTIVE" in str(fact.value) for fact in facts_of_ports):
            continue
        if unknown is not None:
            silent[device] = f"{device}: {unknown.why}"
        else:
            down[device] = f"is {str(facts_of_ports[0].value).partition(': ')[2] or facts_of_ports[0].value}"
    return {port.rpartition(":")[0] for port in others} - states.keys(), down, silent


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
