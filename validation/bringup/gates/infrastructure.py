"""Gates of phases 1 to 3: discovery, smoke, collectives. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, Fleet, FromProfile, Gate, Requested

_ENV = "docs/01-environment.md#"
_INFRA = "docs/02-infrastructure-validation.md#"
_NCCL = ("nccl_scaling", "nccl_monitoring")

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

SMOKE = (
    Gate(id="smoke.controller", phases=("smoke",), question=2, per="job",
         proves="the primary controller answers",
         quantity="slurm.controller.primary", unit="text", rule="equals", expect=Fixed("UP"), fix=_INFRA + "controller"),
    Gate(id="smoke.node.ran_tasks", phases=("smoke",), question=2, per="node",
         proves="the node ran one task per GPU through the scheduler",
         quantity="smoke.binding.tasks", unit="count", rule="equals", expect=Requested("gpus_per_node"),
         fix=_INFRA + "ran-tasks"),
    Gate(id="smoke.gpu.bound", phases=("smoke",), question=1, per="node",
         proves="each task was given one GPU of its own, and together they were given all",
         quantity="smoke.binding.distinct_gpus", unit="count", rule="equals", expect=Requested("gpus_per_node"),
         needs=("smoke.node.ran_tasks",), fix=_INFRA + "gpu-bound"),
    Gate(id="smoke.gpu.isolated", phases=("smoke",), question=1, per="node",
         proves="a job that asked for no GPU was refused every one of them (EPERM is the proof, not a device that is not there)",
         quantity="smoke.isolation.denied_gpus", unit="count", rule="equals", expect=Requested("gpus_per_node"),
         fix=_INFRA + "gpu-isolated"),
    Gate(id="smoke.cpu.confined", phases=("smoke",), question=2, per="node",
         proves="a task that asked for one CPU could run on no more than one core",
         quantity="smoke.cpu.allowed", unit="count", rule="equals", expect=Fixed(1),
         fix=_INFRA + "cpu-confined"),
    Gate(id="smoke.exit_code", phases=("smoke",), question=2, per="job",
         proves="the exit code of a failing batch job arrives",
         quantity="smoke.job.exit_code", unit="text", rule="equals", expect=Fixed("7:0"), fix=_INFRA + "exit-code"),
    Gate(id="smoke.memory.enforced", phases=("smoke",), question=2, per="job",
         proves="a job that takes more memory than it asked for is ended for that reason",
         quantity="smoke.job.memory_state", unit="text", rule="equals", expect=Fixed("OUT_OF_MEMORY"),
         fix=_INFRA + "memory-enforced"),
    Gate(id="smoke.fs.reads_submit_host", phases=("smoke",), question=3, per="node",
         proves="the node read what the submit host had written",
         quantity="smoke.fs.read_reference", unit="flag", rule="equals", expect=Fixed(True), fix=_INFRA + "shared-fs"),
    Gate(id="smoke.fs.seen_by_submit_host", phases=("smoke",), question=3, per="node",
         proves="the submit host read what the node had written",
         quantity="smoke.fs.seen_by_reference", unit="flag", rule="equals", expect=Fixed(True), fix=_INFRA + "shared-fs"),
    Gate(id="smoke.fs.looked", phases=("smoke",), question=3, per="node",
         proves="the node had looked for the file before it existed",
         quantity="smoke.fs.looked", unit="flag", rule="equals", expect=Fixed(True), fix=_INFRA + "shared-fs"),
    Gate(id="smoke.fs.late_lookup", phases=("smoke",), question=3, per="node",
         proves="a file that the node had looked for in vain was seen once it existed",
         quantity="smoke.fs.late_lookup_s", unit="s", rule="at_most", expect=FromProfile(),
         needs=("smoke.fs.looked",), fix=_INFRA + "shared-fs"),
)

COLLECTIVES = (
    Gate(id="nccl.step", phases=_NCCL, question=4, per="scale",
         proves="the collective program ended by itself, without an error",
         quantity="nccl.step.exit_code", unit="count", rule="equals", expect=Fixed(0), fix=_INFRA + "nccl-step"),
    Gate(id="nccl.ranks", phases=_NCCL, question=4, per="scale",
         proves="one communicator spanned all ranks (counted inside it)",
         quantity="nccl.ranks", unit="count", rule="equals", expect=Requested("scale_ranks"), fix=_INFRA + "nccl-ranks"),
    Gate(id="nccl.hosts", phases=_NCCL, question=4, per="scale",
         proves="the ranks sat on that many different hosts",
         quantity="nccl.hosts", unit="count", rule="equals", expect=Requested("scale_nodes"), fix=_INFRA + "nccl-ranks"),
    Gate(id="nccl.wrong_values", phases=_NCCL, question=4, per="scale",
         proves="every collective gave the right result at every size",
         quantity="nccl.wrong_values", unit="count", rule="equals", expect=Fixed(0), fix=_INFRA + "nccl-wrong-values"),
    Gate(id="nccl.transport", phases=_NCCL, question=4, per="scale", min_nodes=2,
         proves="the bytes between nodes went over the interconnect that the profile names",
         quantity="nccl.transport", unit="text", rule="one_of", expect=FromProfile(), needs=("nccl.ranks",),
         fix=_INFRA + "nccl-transport"),
    Gate(id="nccl.all_reduce.busbw", phases=_NCCL, question=4, per="wide_scale",
         proves="all_reduce reaches the expected bus bandwidth at the named size",
         quantity="nccl.all_reduce.busbw", unit="GB/s", rule="at_least", expect=FromProfile(),
         needs=("nccl.ranks", "nccl.hosts", "nccl.wrong_values"), fix=_INFRA + "nccl-bandwidth"),
    Gate(id="nccl.monitor.coverage", phases=("nccl_monitoring",), question=6, per="node",
         proves="the node was sampled during the whole run",
         quantity="monitor.coverage", unit="share", rule="at_least", expect=Fixed(0.8), fix=_INFRA + "monitor"),
)
