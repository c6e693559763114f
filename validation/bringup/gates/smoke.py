"""Gates of phase 2: scheduling, binding and confinement, the shared filesystem. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, FromProfile, Gate, Requested

_INFRA = "docs/02-infrastructure-validation.md#"

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
