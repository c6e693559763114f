"""Gates of single nodes, and of what should be equal on all of them. Data only."""

from __future__ import annotations

from bringup.checks import folders
from bringup.checks.node import guides
from bringup.evidence.slurm import USABLE_STATES
from bringup.plan.gate import Fixed, Fleet, FromProfile, Gate
from bringup.plan.guide import Guide
from bringup.records import Limit, Outcome

_ONLY = ("discovery",)

_SAME = (  # gate, "all nodes ..."
    ("discovery.kernel", "run the same kernel"),
    ("discovery.os", "run the same release of the system"),
    ("discovery.python", "start the same version of Python"),
    ("discovery.cpu.model", "have the same model of CPU"),
    ("discovery.cpu.topology", "have the same number of sockets, cores, threads per core, and NUMA nodes"),
    ("discovery.hugepages", "handle transparent huge pages alike"),
    ("discovery.mount", "have mounted the checkout from the same place with the same options"),
)
_LIBRARIES = (  # gate, name
    ("discovery.library.libc", "libc"),
    ("discovery.library.libcuda", "libcuda"),
    ("discovery.library.libnccl", "NCCL"),
    ("discovery.library.libibverbs", "libibverbs"),
    ("discovery.library.libmunge", "libmunge"),
)


def _same(id: str, says: str, guide: Guide, unit: str = "text") -> Gate:
    return Gate(
        id=id,
        phases=_ONLY,
        claims=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves=f"all nodes {says}",
        unit=unit,
        rule="all_equal",
        expect=Fleet(),
        guide=guide,
    )


def _name(id: str, proves: str, unit: str, expected: Limit, severity: Outcome = Outcome.FAIL) -> Gate:
    """A gate for two nodes or more: a single node does not need to resolve names."""
    return Gate(
        id=f"discovery.names.{id}",
        phases=_ONLY,
        bears_on=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves=proves,
        unit=unit,
        rule="equals",
        expect=Fixed(expected),
        severity=severity,
        guide=guides.NAMES,
    )


def _alike(id: str, proves: str, guide: Guide, severity: Outcome) -> Gate:
    """Settings compared one by one: the value is the number that differ; the verdict names them."""
    return Gate(
        id=id,
        phases=_ONLY,
        claims=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves=proves,
        unit="count",
        rule="equals",
        expect=Fixed(0),
        severity=severity,
        guide=guide,
    )


_NAMES: tuple[Gate, ...] = (
    _name("unresolved", "this node resolves the name of every other node", "count", 0),
    _name("differ", "this node resolves the name of every other node to the same address as most nodes do", "count", 0),
    _name("own", "every address that the other nodes use for this node is one that it has", "flag", True),
    _name(
        "reachable", ("the node resolves its own host name to more than a loopback address"), "flag", True, Outcome.WARN
    ),
    Gate(
        id="discovery.names.slowest",
        phases=_ONLY,
        bears_on=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves="the name of every other node was looked up quickly",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        severity=Outcome.WARN,
        guide=guides.NAMES,
    ),
)

GATES: tuple[Gate, ...] = (
    Gate(
        id="discovery.node.state",
        phases=_ONLY,
        bears_on=("nodes-ran",),
        per="node",
        proves="Slurm considers the node usable",
        unit="text",
        rule="one_of",
        expect=Fixed(USABLE_STATES),
        guide=guides.STATE,
    ),
    Gate(
        id="discovery.node.answered",
        phases=_ONLY,
        claims=("nodes-ran",),
        per="node",
        proves="the node was reached through the scheduler and answered to the end",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        guide=guides.ANSWERED,
    ),
    Gate(
        id="discovery.node.distinct",
        phases=_ONLY,
        claims=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves="no two node names are the same machine (boot ids differ)",
        unit="text",
        rule="all_distinct",
        expect=Fleet(),
        guide=guides.DISTINCT,
    ),
    Gate(
        id="discovery.node.hostname",
        phases=_ONLY,
        claims=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves="no two nodes have the same host name",
        unit="text",
        rule="all_distinct",
        expect=Fleet(),
        guide=guides.DISTINCT,
    ),
    *(_same(id, says, guides.DRIFT) for id, says in _SAME),
    *(_same(id, f"load one {name}, byte for byte at both ends", guides.LIBRARIES) for id, name in _LIBRARIES),
    _same("discovery.cpu.count", "have as many CPUs online", guides.DRIFT, "count"),
    Gate(
        id="discovery.memory",
        phases=_ONLY,
        claims=("nodes-alike",),
        per="node",
        min_nodes=2,
        proves="all nodes have the same memory, to 2 %: what firmware takes differs a little",
        unit="share",
        rule="between",
        expect=Fixed([0.98, 1.02]),
        guide=guides.DRIFT,
    ),
    Gate(
        id="discovery.clock.offset",
        phases=_ONLY,
        bears_on=("observable",),
        per="node",
        min_nodes=2,
        proves="the node's clock is near the median of all nodes, measured by round trips, uncertainty included",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        guide=guides.CLOCK,
    ),
    Gate(
        id="discovery.shm",
        phases=_ONLY,
        bears_on=("trains-alone",),
        per="node",
        proves="shared memory (/dev/shm) is large enough for the ranks of a node",
        unit="GiB",
        rule="at_least",
        expect=FromProfile(),
        guide=guides.LIMITS,
    ),
    Gate(
        id="discovery.nofile",
        phases=_ONLY,
        bears_on=("trains-alone",),
        per="node",
        proves="a task may open as many files and sockets as the profile requests",
        unit="count",
        rule="at_least",
        expect=FromProfile(),
        guide=guides.LIMITS,
    ),
    Gate(
        id="discovery.clock.synchronised",
        phases=_ONLY,
        bears_on=("observable",),
        per="node",
        proves="the kernel says that its clock is kept synchronised",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        severity=Outcome.WARN,
        guide=guides.CLOCK,
    ),
    _alike(
        "discovery.network",
        "the node has as many interfaces of each driver, speed and MTU as most nodes, and the same default route",
        guides.NETWORK,
        Outcome.FAIL,
    ),
    _alike(
        "discovery.settings",
        "the settings of the kernel that collectives, storage and loaders depend on are those of most nodes",
        guides.SETTINGS,
        Outcome.WARN,
    ),
    *_NAMES,
    *folders.gates("discovery.tmp", "the folder for temporary files and in /dev/shm", "trains-alone", guides.TMP),
)
