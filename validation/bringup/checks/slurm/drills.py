"""Faults of Slurm: its configuration, its daemons, and what it does with jobs.

Outcome.PASS: the fault is survived. Then the words of `says` must be on the screen while the phase waits, and
nothing may fail. Data only.
"""

from __future__ import annotations

from bringup.checks.faults import BINDING, FOLDER, edited, put_back
from bringup.plan.drill import UNCONFINED, Drill, NoDrill
from bringup.records import Outcome, Value


def _configured(id: str, fault: str, edit: str, file: str, gate: str, outcome: Outcome, value: Value) -> Drill:
    """A line of Slurm's configuration is other than it should be, and is put back."""
    return Drill(
        id=id,
        fault=fault,
        phase="discovery",
        inject=(edited(edit, file),),
        undo=(put_back(file),),
        gate=gate,
        subject="job",
        outcome=outcome,
        value=value,
    )


# a first controller that is not there: no slurmctld listens on n0. The daemons have read their configuration, and stay
_FIRST_CONTROLLER_DOWN = (
    (
        "sh",
        "bash",
        "-c",
        'cp "$SLURM_CONF" "$SLURM_CONF.good" && '
        'sed -i "s/^SlurmctldHost=/SlurmctldHost=n0(10.77.1.10)\\n&/" "$SLURM_CONF"',
    ),
)


_CONTROLLER_BACK = (("sh", "bash", "-c", 'mv "$SLURM_CONF.good" "$SLURM_CONF"'),)


_JOBS = (("BRINGUP_SMOKE_PARTS", "jobs"),)


_WARNING = (("BRINGUP_SMOKE_PARTS", "warning"),)


_REQUEUE = (("BRINGUP_SMOKE_PARTS", "requeue"),)


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="task-plugin-missing",
        fault="Slurm runs without task/cgroup and proctrack/cgroup",
        phase="discovery",
        shape=UNCONFINED,
        environment=(("BRINGUP_PROFILE", "local-cpu"),),
        gate="discovery.slurm.task_plugin",
        subject="job",
        outcome=Outcome.FAIL,
        says="TaskPlugin = …",  # task/none; Slurm 24.11 and later print (null) for it
        also=(("discovery.slurm.proctrack", "job"),),
    ),
    _configured(
        "devices-unconfined",
        "cgroup.conf does not confine devices",
        "s/^ConstrainDevices=.*/ConstrainDevices=no/",
        "cgroup.conf",
        "discovery.slurm.confines_devices",
        Outcome.FAIL,
        "no",
    ),
    _configured(
        "cores-unconfined",
        "cgroup.conf does not confine cores",
        "s/^ConstrainCores=.*/ConstrainCores=no/",
        "cgroup.conf",
        "discovery.slurm.confines_cores",
        Outcome.WARN,
        "no",
    ),
    _configured(
        "memory-unconfined",
        "cgroup.conf does not confine memory",
        "s/^ConstrainRAMSpace=.*/ConstrainRAMSpace=no/",
        "cgroup.conf",
        "discovery.slurm.confines_memory",
        Outcome.WARN,
        "no",
    ),
    _configured(
        "nodes-return-unseen",
        "a node that crashed takes jobs again without a check",
        "s/^ReturnToService=.*/ReturnToService=2/",
        "slurm.conf",
        "discovery.slurm.return_to_service",
        Outcome.WARN,
        "2",
    ),
    _configured(
        "dead-node-kept",
        "a dead node is kept for an hour",
        "s/^SlurmdTimeout=.*/SlurmdTimeout=3600/",
        "slurm.conf",
        "discovery.slurm.slurmd_timeout",
        Outcome.WARN,
        3600,
    ),
    Drill(
        id="controller-down",
        fault="the first controller is down, and another one answers",
        phase="smoke",
        environment=FOLDER,
        inject=_FIRST_CONTROLLER_DOWN,
        undo=_CONTROLLER_BACK,
        gate="smoke.controller",
        subject="job",
        outcome=Outcome.FAIL,
        says="DOWN",
    ),
    Drill(
        id="bad-exit-ignored",
        fault="tasks run on when one task of their step has failed",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "bad-exit-ignored"), *BINDING),
        where="anywhere",
        gate="smoke.bad_exit",
        subject="{n1}",
        outcome=Outcome.FAIL,
        value=2,
        also=(("smoke.bad_exit", "{n0}"),),
    ),
    Drill(
        id="array-task-lost",
        fault="a task of an array never runs",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "array-task-lost"), *_JOBS),
        where="anywhere",
        gate="smoke.array",
        subject="job",
        outcome=Outcome.FAIL,
        says="0 1 2",
    ),
    Drill(
        id="no-dependency",
        fault="dependencies of jobs are dropped",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "no-dependency"), *_JOBS),
        where="anywhere",
        gate="smoke.dependency.waits",
        subject="job",
        outcome=Outcome.FAIL,
        says="s",
        between=(-600, -1),
        also=(("smoke.dependency.never", "job"),),
    ),
    Drill(
        id="no-warning",
        waits=True,
        fault="a job is not warned before its time limit",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "no-warning"), *_WARNING),
        where="anywhere",
        gate="smoke.time_limit.warned",
        subject="job",
        outcome=Outcome.FAIL,
        value=False,
    ),
    Drill(
        id="no-requeue",
        waits=True,
        fault="requeueing is refused",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "no-requeue"), *_REQUEUE),
        where="anywhere",
        gate="smoke.requeue",
        subject="job",
        outcome=Outcome.FAIL,
        value=0,
    ),
    Drill(
        id="no-memory-confined",
        fault="the kernel ends no job that takes too much memory",
        phase="smoke",
        shape=UNCONFINED,
        environment=(("BRINGUP_PROFILE", "local-cpu"), *_JOBS),
        gate="smoke.memory.enforced",
        subject="job",
        outcome=Outcome.FAIL,
        says="COMPLETED",
    ),
    Drill(
        id="task-lost",
        fault="one task fewer than GPUs ran on each node",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "task-lost"), *BINDING),
        where="anywhere",
        gate="smoke.node.ran_tasks",
        subject="{n1}",
        outcome=Outcome.FAIL,
        value="{gpus-1}",
        also=(("smoke.node.ran_tasks", "{n0}"),),
    ),
    Drill(
        id="exit-code-lost",
        fault="the exit code of a failing job is lost",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "exit-code-lost"), *_JOBS),
        where="anywhere",
        gate="smoke.exit_code",
        subject="job",
        outcome=Outcome.FAIL,
        says="0:0",
        consequences=(("smoke.dependency.never", "job"),),
    ),  # it waits for that job to fail
    Drill(
        id="slow-queue",
        waits=True,
        fault="a job waits 40 s on free nodes",
        phase="smoke",
        where="anywhere",
        environment=(("BRINGUP_DRILL", "slow-queue"), *_JOBS),
        gate="smoke.queue.latency",
        subject="job",
        outcome=Outcome.WARN,
        says="s",
        between=(38, 90),
    ),
)

_TEST = "checks/test_slurm.py"
NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(gates=("discovery.slurm.version",), reason="there is no second Slurm here", test=_TEST),
    NoDrill(
        gates=("discovery.slurm.gres_types", "discovery.slurm.mpi_default", "discovery.slurm.pmix"),
        reason="a Slurm in which it is wrong does not start, or has no such plugin",
        test=_TEST,
    ),
    NoDrill(
        gates=(
            "discovery.slurm.kill_on_bad_exit",
            "discovery.slurm.health_check",
            "discovery.slurm.prolog",
            "discovery.slurm.epilog",
        ),
        reason="profile local-cpu says that they are not applicable",
        test=_TEST,
    ),
)
