"""Gates of phase 1: what every node says about itself, and what Slurm says about it. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, Fleet, Gate, Requested

_ENV = "docs/01-environment.md#"

# what a healthy node's state is made of; anything else (DOWN, DRAIN, NOT_RESPONDING, INVALID_REG, ...) is a fault
USABLE_STATES: list[float] | list[str] = ["IDLE", "MIXED", "ALLOCATED", "COMPLETING"]

DISCOVERY = (
    Gate(id="discovery.node.state", phases=("discovery",), question=2, per="node",
         proves="Slurm considers the node usable",
         quantity="slurm.node.state", unit="text", rule="one_of", expect=Fixed(USABLE_STATES), fix=_ENV + "node-state"),
    Gate(id="discovery.node.answered", phases=("discovery",), question=2, per="node",
         proves="the node was reached through the scheduler and answered to the end",
         quantity="probe.inventory.finished", unit="flag", rule="equals", expect=Fixed(True), fix=_ENV + "node-answered"),
    Gate(id="discovery.node.distinct", phases=("discovery",), question=2, per="node", min_nodes=2,
         proves="two node names are not one machine (boot ids differ)",
         quantity="discovery.boot_id", unit="text", rule="all_distinct", expect=Fleet(), fix=_ENV + "node-distinct"),
    Gate(id="discovery.gpu.count", phases=("discovery",), question=1, per="node",
         proves="every GPU that Slurm hands out is there",
         quantity="discovery.gpu.count", unit="count", rule="equals", expect=Requested("gpus_per_node"),
         fix=_ENV + "gpu-count"),
    Gate(id="discovery.gpu.answering", phases=("discovery",), question=1, per="node",
         proves="every GPU answered its driver: a device file may outlive a GPU that fell off the bus",
         quantity="discovery.gpu.answering", unit="count", rule="equals", expect=Requested("gpus_per_node"),
         fix=_ENV + "gpu-count"),
    Gate(id="discovery.gpu.driver", phases=("discovery",), question=1, per="node",
         proves="all nodes run one GPU driver",
         quantity="discovery.gpu.driver", unit="text", rule="all_equal", expect=Fleet(), fix=_ENV + "drift"),
    Gate(id="discovery.kernel", phases=("discovery",), question=2, per="node",
         proves="all nodes run one kernel",
         quantity="discovery.kernel", unit="text", rule="all_equal", expect=Fleet(), fix=_ENV + "drift"),
    Gate(id="discovery.slurm.confines_devices", phases=("discovery",), question=1, per="job",
         proves="cgroup.conf confines devices to the job that was granted them",
         quantity="slurm.config.ConstrainDevices", unit="text", rule="equals", expect=Fixed("yes"),
         fix=_ENV + "confines-devices"),
)
