"""Gates of phase 1: what every node says about itself, and what Slurm says about it. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, Fleet, FromProfile, Gate
from bringup.records import Outcome

_ENV = "docs/01-environment.md#"
_ONLY = ("discovery",)

# what a healthy node's state is made of; anything else (DOWN, DRAIN, NOT_RESPONDING, INVALID_REG, ...) is a fault
USABLE_STATES: list[float] | list[str] = ["IDLE", "MIXED", "ALLOCATED", "COMPLETING"]

_SAME = (  # gate, quantity, "all nodes ..."
    ("discovery.kernel", "discovery.kernel", "run one kernel"),
    ("discovery.os", "discovery.os", "run one release of the system"),
    ("discovery.python", "discovery.python", "start one version of Python"),
    ("discovery.cpu.model", "discovery.cpu.model", "have one model of CPU"),
    ("discovery.cpu.topology", "discovery.cpu.topology", "have as many sockets, cores, threads of a core, and NUMA nodes"),
    ("discovery.mount", "discovery.mount", "have mounted the checkout from one place with the same options"),
    ("discovery.library.libc", "discovery.library.libc", "load one libc, byte for byte at both ends"),
    ("discovery.library.libcuda", "discovery.library.libcuda", "load one libcuda, byte for byte at both ends"),
    ("discovery.library.libnccl", "discovery.library.libnccl", "load one NCCL, byte for byte at both ends"),
    ("discovery.library.libibverbs", "discovery.library.libibverbs", "load one libibverbs, byte for byte at both ends"),
    ("discovery.library.libmunge", "discovery.library.libmunge", "load one libmunge, byte for byte at both ends"),
)

DISCOVERY = (
    Gate(id="discovery.node.state", phases=_ONLY, question=2, per="node",
         proves="Slurm considers the node usable",
         quantity="slurm.node.state", unit="text", rule="one_of", expect=Fixed(USABLE_STATES), fix=_ENV + "node-state"),
    Gate(id="discovery.node.answered", phases=_ONLY, question=2, per="node",
         proves="the node was reached through the scheduler and answered to the end",
         quantity="probe.inventory.finished", unit="flag", rule="equals", expect=Fixed(True), fix=_ENV + "node-answered"),
    Gate(id="discovery.node.distinct", phases=_ONLY, question=2, per="node", min_nodes=2,
         proves="two node names are not one machine (boot ids differ)",
         quantity="discovery.boot_id", unit="text", rule="all_distinct", expect=Fleet(), fix=_ENV + "node-distinct"),
    Gate(id="discovery.node.hostname", phases=_ONLY, question=2, per="node", min_nodes=2,
         proves="no two nodes call themselves by one name",
         quantity="discovery.hostname", unit="text", rule="all_distinct", expect=Fleet(), fix=_ENV + "node-distinct"),
    *(Gate(id=id, phases=_ONLY, question=2, per="node", min_nodes=2, proves=f"all nodes {says}",
           quantity=quantity, unit="text", rule="all_equal", expect=Fleet(), fix=_ENV + "drift")
      for id, quantity, says in _SAME),
    Gate(id="discovery.cpu.count", phases=_ONLY, question=2, per="node", min_nodes=2,
         proves="all nodes have as many CPUs online",
         quantity="discovery.cpu.count", unit="count", rule="all_equal", expect=Fleet(), fix=_ENV + "drift"),
    Gate(id="discovery.memory", phases=_ONLY, question=2, per="node", min_nodes=2,
         proves="all nodes have the same memory, to 2 %: what firmware takes differs a little",
         quantity="discovery.memory.of_median", unit="share", rule="between", expect=Fixed([0.98, 1.02]), fix=_ENV + "drift"),
    Gate(id="discovery.clock.offset", phases=_ONLY, question=6, per="node", min_nodes=2,
         proves="the node's clock is near the fleet's, measured by round trips, uncertainty included",
         quantity="discovery.clock.offset", unit="s", rule="at_most", expect=FromProfile(), fix=_ENV + "clock-offset"),
    Gate(id="discovery.kernel_log.xid", phases=_ONLY, question=1, per="node",
         proves="the kernel log was read, and holds no Xid that asks for action",
         quantity="discovery.kernel_log.xids_to_act_on", unit="count", rule="equals", expect=Fixed(0),
         stops=(Outcome.FAIL,), fix=_ENV + "kernel-log"),  # many sites keep it from users, whose phases may run all the same
    Gate(id="discovery.shm", phases=_ONLY, question=5, per="node",
         proves="shared memory (/dev/shm) is large enough for the ranks of a node",
         quantity="discovery.shm", unit="GiB", rule="at_least", expect=FromProfile(), fix=_ENV + "limits"),
    Gate(id="discovery.nofile", phases=_ONLY, question=5, per="node",
         proves="a task may open as many files and sockets as the profile asks for",
         quantity="discovery.nofile", unit="count", rule="at_least", expect=FromProfile(), fix=_ENV + "limits"),
    Gate(id="discovery.memlock", phases=_ONLY, question=4, per="node",
         proves="a task may lock memory, as RDMA needs it",
         quantity="discovery.memlock", unit="text", rule="equals", expect=FromProfile(), fix=_ENV + "limits"),
)
