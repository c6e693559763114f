"""A node: who answered, how far its clock is from the others, and whether its settings are what vendors ask for."""

import re
from collections.abc import Iterator

from bringup.kernel.facts.fold import ALONE, by_node
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.records import Observation, Run, Value
from bringup.readers import clock
from bringup.readers.known import vendors

NOT_ASKED = "no vendor documents one for such a node"


def answered(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count a node that srun could not reach as an observed fault, not only as missing evidence."""
    answers = observed.of("probe.inventory.finished")
    derived.observations += [answer.model_copy(update={"quantity": "discovery.node.answered"}) for answer in answers]
    who = {answer.subject for answer in answers}
    for error in observed.of("slurm.launch.error"):
        if error.subject not in who:
            derived.saw("discovery.node.answered", error.subject, False, "flag", error.evidence, str(error.value))


def clock_offset(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive the distance from the fleet's median clock, plus the uncertainty. Of two clocks the median is halfway,
    where no clock is: there it is their distance, and the one that the kernel calls unsynchronised has it."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    held = {fact.subject: fact.value for fact in observed.of("discovery.clock.synchronised")}
    for behind in observed.of(clock.BEHIND):
        node, shift = behind.subject, measured.get(behind.subject)
        others = [other for other in measured if other != node]
        if shift is None:
            value, why = None, behind.why or "its uncertainty did not arrive"
        elif not others:
            value, why = None, ALONE
        elif len(others) == 1:
            apart = 2 * abs(shift.seconds)
            is_right = held.get(node) is True and held.get(others[0]) is False
            value = shift.uncertainty + (0.0 if is_right else apart)
            why = f"{apart:.6f} ± {shift.uncertainty:.6f} s from {others[0]}"
            why += f", which nothing synchronises: {node} is synchronised" if is_right else ""
        else:
            value, why = abs(shift.seconds) + shift.uncertainty, str(shift)
        derived.saw("discovery.clock.offset", node, value, "s", behind.evidence, why)


def right_settings(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count the settings of a node that have another value than the one that a vendor documents."""
    settings: dict[str, dict[str, str]] = {}
    evidence: dict[str, str] = {}
    for fact in [*observed.under("inventory.settings."), *observed.under("inventory.devices.")]:
        if isinstance(fact.value, list):
            evidence.setdefault(fact.subject, fact.evidence)
            entries = (str(entry).rpartition("=") for entry in fact.value)
            settings.setdefault(fact.subject, {}).update({name: value for name, _, value in entries})
    kinds = _Kinds(observed)
    for node, known in settings.items():
        traits = kinds.traits(node)
        wrong, right, hidden = vendors.look_at(known, traits)
        is_not_asked = vendors.none_applies(traits)
        nothing = NOT_ASKED if is_not_asked else "none of them could be read"
        words = wrong or ([f"right: {', '.join(right)}"] if right else [nothing])
        words += [f"a user may not read {', '.join(hidden)}"] if hidden else []
        value = len(wrong) if wrong or right or is_not_asked else None
        derived.saw("discovery.settings.right", node, value, "count", evidence[node], first_few(words))


_NCCL = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+) ")  # the system's; that of torch's wheels is called libnccl.so.2
_BY_NAME = ("torch", "transformers", "accelerate")
_OF_PACKAGE = {"nvidia_nccl_cu12": "NCCL", "nvidia_nccl_cu13": "NCCL", **{name: name for name in _BY_NAME}}


def known_version_faults(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count the faults that are known of the versions which a node has installed."""
    installed: dict[str, dict[tuple[str, str], str]] = {}  # node -> (component, version) -> where it is said
    for component, version, fact in _versions(observed, run):
        if version[:1].isdecimal():  # not `absent`
            installed.setdefault(fact.node, {}).setdefault((component, version), fact.evidence)
    asked, kinds = {fact.subject for fact in observed.of("inventory.packages")}, _Kinds(observed)
    for node, versions in installed.items():
        if node not in run.nodes:
            continue
        faults = {pair: vendors.faults(*pair, kinds.traits(node), kinds.models(node)) for pair in versions}
        words = [sentence for sure, _ in faults.values() for sentence in sure]
        unsure = [sentence for _, of_one in faults.values() for sentence in of_one]
        if not words and node not in asked and {name for name, _ in versions} == {"Slurm"}:
            continue  # the node itself said nothing of its versions
        evidence = next((versions[pair] for pair, (sure, _) in faults.items() if sure), next(iter(versions.values())))
        why = first_few(words) if words else f"none is known of {', '.join(' '.join(pair) for pair in versions)}"
        value = len(words) if words or not unsure else None
        if value is None:
            why = f"the node did not say what decides whether it is hit: {first_few(unsure)}"
        derived.saw("discovery.versions.faults", node, value, "count", evidence, why)


def _versions(observed: Seen, run: Run) -> Iterator[tuple[str, str, Observation]]:
    """Yield (component, version, the fact that says so). A container brings its own libraries."""
    for quantity, component in (("discovery.gpu.driver", "driver"), ("slurm.node.version", "Slurm")):
        yield from ((component, str(fact.value), fact) for fact in observed.of(quantity) if fact.value is not None)
    for name, versions, fact in _entries(observed, "inventory.devices.nics"):
        if name.startswith("firmware of "):
            yield from (("NIC firmware", version, fact) for version in versions.split("+"))
    if run.site is not None and "container" in run.site.says:
        return
    for fact in observed.of("inventory.library.libnccl"):
        if known := _NCCL.match(str(fact.value)):
            yield "NCCL", known[1], fact
    for name, version, fact in _entries(observed, "inventory.packages"):
        if name in _OF_PACKAGE:
            yield _OF_PACKAGE[name], version, fact


def _entries(observed: Seen, quantity: str) -> Iterator[tuple[str, str, Observation]]:
    """Yield (name, value, fact) of each entry of such lists."""
    for fact in observed.of(quantity):
        for entry in fact.value if isinstance(fact.value, list) else ():
            name, _, value = str(entry).partition("=")
            yield name, value, fact


class _Kinds:
    """Say what kind each node is, by its own facts, and go through them once for all nodes. None: they do not tell."""

    def __init__(self, observed: Seen) -> None:
        self._observed = observed
        self._models = by_node(observed.of("discovery.gpu.model"))
        self._known: dict[str, dict[str, Value | None]] = {}  # quantity -> node -> the first fact's value

    def _value(self, quantity: str, node: str) -> Value | None:
        if quantity not in self._known:
            self._known[quantity] = {fact.subject: fact.value for fact in reversed(self._observed.of(quantity))}
        return self._known[quantity].get(node)

    def _some(self, quantity: str, node: str) -> bool | None:
        count = self._value(quantity, node)
        return float(count) > 0 if is_number(count) else None

    def traits(self, node: str) -> vendors.Traits:
        virtual, cpu = self._value("inventory.virtual", node), self._value("discovery.cpu.model", node)
        is_arm = None if cpu is None else str(cpu).startswith("aarch64")
        nics = self._value("inventory.devices.nics", node)
        names = [str(entry).partition("=")[0] for entry in nics] if isinstance(nics, list) else None
        return {
            "gpus": self._some("discovery.gpu.count", node),
            "rdma": self._some("discovery.rdma.ports", node),
            "bare metal": None if virtual is None else virtual is False,
            "RoCE": None if names is None else any(name.endswith(" of RoCE") for name in names),
            "x86": None if is_arm is None else not is_arm,
            "arm": is_arm,
        }

    def models(self, node: str) -> set[str] | None:
        """Return the models of its GPUs. None: a node with GPUs, or that may have some, named none."""
        models = {str(fact.value) for fact in self._models.get(node, ()) if fact.value is not None}
        return models if models or self._some("discovery.gpu.count", node) is False else None
