"""Faults of the smoke phase. Data only.

Without a drill: smoke.compute.host_to_device, .device_to_device and .gpu_peers need GPUs, smoke.cpu.near_gpu a GPU at a NUMA
node; a unit test shows each failing on bad evidence.
"""

from __future__ import annotations

from bringup.drills.drill import Command, Drill
from bringup.records import Outcome

_UMOUNT = (("on", "n1", "umount", "{results}"),)


def _own_file(drill: str, name: str, text: str) -> tuple[Command, ...]:
    """n1 sees a file of its own under the name that n0 writes to, as soon as the folder is there and before n0 does."""
    return (
        (
            "on",
            "n1",
            "bash",
            "-euc",
            f"""until folder=$(ls -dt "$0"/smoke/*-{drill}*/raw/shared_fs | head -n 1)
        [[ -n $folder ]]; do sleep 0.05; done 2>/dev/null
        touch "$folder/{name}"
        printf '{text}' >/tmp/{name} && touch -d '1 hour ago' /tmp/{name}
        mount --bind /tmp/{name} "$folder/{name}\"""",
            "{results}",
        ),
    )


_NO_OWN_FILE = (
    (
        "on",
        "n1",
        "bash",
        "-euc",
        """awk '$2 ~ "/raw/shared_fs/" { print $2 }' /proc/mounts |
        while read -r point; do umount "$(printf %b "$point")"; done""",
    ),
)  # a space is written \040 there
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

# the other parts of the phase are left out, and incomplete
_BINDING = (("BRINGUP_SMOKE_PARTS", "binding"),)
_JOBS = (("BRINGUP_SMOKE_PARTS", "jobs"),)
_WARNING = (("BRINGUP_SMOKE_PARTS", "warning"),)
_REQUEUE = (("BRINGUP_SMOKE_PARTS", "requeue"),)
_NO_JOBS = (("BRINGUP_SMOKE_PARTS", "binding folder compute storage"),)
_FOLDER = (("BRINGUP_SMOKE_PARTS", "folder"),)
_COMPUTE = (("BRINGUP_SMOKE_PARTS", "compute"),)
_STORAGE = (("BRINGUP_SMOKE_PARTS", "storage"), ("BRINGUP_STORAGE_MIB", "8"))

SMOKE: tuple[Drill, ...] = (
    Drill(
        id="path-not-shared",
        waits=True,
        fault="the results folder is not shared on one node",
        phase="smoke",
        inject=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),),
        undo=_UMOUNT,
        environment=_FOLDER,
        gate="smoke.fs.reads_submit_host",
        subject="n1",
        outcome=Outcome.FAIL,
        says="no",
        # on two nodes both pairs hold the bad node
        also=(
            ("smoke.fs.seen_by_submit_host", "n1"),
            ("smoke.fs.writes", "n1"),
            ("smoke.fs.pair.write", "n0->n1"),
            ("smoke.fs.pair.write", "n1->n0"),
            ("smoke.fs.pair.same_type", "n0->n1"),
            ("smoke.fs.pair.same_type", "n1->n0"),
        ),
    ),
    Drill(
        id="path-not-shared-of-four",
        fault="the results folder is not shared on one node of four",
        phase="smoke",
        nodes=4,
        inject=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),),
        undo=_UMOUNT,
        environment=_NO_JOBS,
        gate="smoke.fs.pair.write",
        subject="n1->n2",
        outcome=Outcome.FAIL,
        says="no",
        also=(("smoke.fs.pair.write", "n0->n1"),),
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "*n1*")),
        silent=("n0", "n2", "n3", "n2->n3", "n3->n0", "n0->n2", "n3->n2"),
    ),
    Drill(
        id="path-read-only",
        waits=True,
        fault="the results folder is mounted read-only on one node",
        phase="smoke",
        inject=(
            ("on", "n1", "mount", "--bind", "{results}", "{results}"),
            ("on", "n1", "mount", "-o", "remount,bind,ro", "{results}"),
        ),
        undo=_UMOUNT,
        environment=_FOLDER,
        gate="smoke.fs.writes",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Read-only",
        consequences=(("smoke.fs.seen_by_submit_host", "n1"), ("smoke.fs.pair.write", "n1->n0")),
    ),
    Drill(
        id="no-room",
        fault="one node can put no byte into its files",
        phase="smoke",
        where="anywhere",
        environment=(("BRINGUP_DRILL", "no-room:n1"), *_FOLDER),
        gate="smoke.fs.writes",
        subject="n1",
        outcome=Outcome.FAIL,
        says="File too large",
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "*n1*")),
    ),
    # An overlay over the folder shows what was there, and keeps what it once looked up, as a stale attribute cache does: changes
    # that n0 makes stay unseen on n1, and what n1 makes stays there.
    Drill(
        id="stale-lookups",
        waits=True,
        fault="one node keeps what it once looked up",
        phase="smoke",
        inject=(
            ("on", "n1", "mkdir", "-p", "/tmp/upper", "/tmp/work"),
            (
                "on",
                "n1",
                "mount",
                "-t",
                "overlay",
                "-o",
                "lowerdir={results},upperdir=/tmp/upper,workdir=/tmp/work",
                "overlay",
                "{results}",
            ),
        ),
        undo=_UMOUNT,
        environment=_FOLDER,
        gate="smoke.fs.pair.late_lookup",
        subject="n0->n1",
        outcome=Outcome.FAIL,
        says="s",
        between=(5, 6),
        also=(
            ("smoke.fs.pair.rename", "n0->n1"),
            ("smoke.fs.pair.unlink", "n0->n1"),
            ("smoke.fs.pair.exclusive", "n0->n1"),
        ),
        consequences=(
            ("smoke.fs.reads_submit_host", "n1"),
            ("smoke.fs.seen_by_submit_host", "n1"),
            ("smoke.fs.pair.*", "n*"),
        ),
    ),
    Drill(
        id="stale-copy",
        fault="one node keeps an old copy of a file",
        phase="smoke",
        environment=_FOLDER,
        during=_own_file("stale-copy", "n0.data", r"first\n"),
        undo=_NO_OWN_FILE,
        gate="smoke.fs.pair.attributes",
        subject="n0->n1",
        outcome=Outcome.FAIL,
        says="no",
        also=(("smoke.fs.pair.append", "n0->n1"),),
    ),
    Drill(
        id="local-locks",
        fault="the locks of one node are its own",
        phase="smoke",
        environment=_FOLDER,
        during=_own_file("local-locks", "n0.lock", ""),
        undo=_NO_OWN_FILE,
        gate="smoke.fs.pair.lock_refused",
        subject="n0->n1",
        outcome=Outcome.FAIL,
        says="no",
    ),
    Drill(
        id="looked-late",
        fault="the nodes look for a file when it is there already",
        phase="smoke",
        where="anywhere",
        environment=(("BRINGUP_DRILL", "looked-late"), *_FOLDER),
        gate="smoke.fs.looked",
        subject="n1",
        outcome=Outcome.FAIL,
        says="no",
        also=(("smoke.fs.looked", "n0"),),
    ),
    Drill(
        id="controller-down",
        fault="the first controller is down, and another one answers",
        phase="smoke",
        environment=_FOLDER,
        inject=_FIRST_CONTROLLER_DOWN,
        undo=_CONTROLLER_BACK,
        gate="smoke.controller",
        subject="job",
        outcome=Outcome.FAIL,
        says="DOWN",
    ),
    Drill(
        id="two-tasks-one-gpu",
        fault="all tasks of a node are bound to one GPU",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "two-tasks-one-gpu"), *_BINDING),
        where="anywhere",
        gate="smoke.gpu.bound",
        subject="n1",
        outcome=Outcome.FAIL,
        says="1",
        also=(("smoke.gpu.bound", "n0"),),
    ),
    Drill(
        id="bad-exit-ignored",
        fault="tasks live on when one of their step has failed",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "bad-exit-ignored"), *_BINDING),
        where="anywhere",
        gate="smoke.bad_exit",
        subject="n1",
        outcome=Outcome.FAIL,
        says="2",
        also=(("smoke.bad_exit", "n0"),),
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
        says="no",
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
        says="0",
    ),
    Drill(
        id="no-devices-confined",
        fault="the kernel keeps no job from another's GPU",
        phase="smoke",
        unconfined=True,
        environment=(("BRINGUP_PROFILE", "local-cpu"), *_BINDING),
        gate="smoke.jobs.refused_gpus",
        subject="n1",
        outcome=Outcome.FAIL,
        says="0 (none)",
        also=(
            ("smoke.gpu.isolated", "n1"),
            ("smoke.cpu.confined", "n1"),
            ("smoke.jobs.refused_gpus", "n0"),
            ("smoke.gpu.isolated", "n0"),
            ("smoke.cpu.confined", "n0"),
        ),
    ),
    Drill(
        id="no-memory-confined",
        fault="the kernel ends no job that takes too much memory",
        phase="smoke",
        unconfined=True,
        environment=(("BRINGUP_PROFILE", "local-cpu"), *_JOBS),
        gate="smoke.memory.enforced",
        subject="job",
        outcome=Outcome.FAIL,
        says="COMPLETED",
    ),
    Drill(
        id="two-jobs-one-gpu",
        fault="two jobs at the same time compute on one GPU",
        phase="smoke",
        unconfined=True,
        environment=(("BRINGUP_DRILL", "two-jobs-one-gpu"), ("BRINGUP_PROFILE", "local-cpu"), *_BINDING),
        gate="smoke.jobs.distinct_gpus",
        subject="n1",
        outcome=Outcome.FAIL,
        says="1",
        also=(("smoke.jobs.distinct_gpus", "n0"),),
        consequences=(("smoke.gpu.isolated", "n?"), ("smoke.cpu.confined", "n?"), ("smoke.jobs.refused_gpus", "n?")),
    ),
    Drill(
        id="task-lost",
        fault="one task fewer than GPUs ran on each node",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "task-lost"), *_BINDING),
        where="anywhere",
        gate="smoke.node.ran_tasks",
        subject="n1",
        outcome=Outcome.FAIL,
        says="1",
        also=(("smoke.node.ran_tasks", "n0"),),
    ),
    Drill(
        id="exit-code-lost",
        fault="the exit code of a failing job is swallowed",
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
    Drill(
        id="wrong-matmul",
        fault="one element of a product is wrong on one node",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "wrong-matmul:n1"), *_COMPUTE),
        where="anywhere",
        gate="smoke.compute.wrong_values",
        subject="n1",
        outcome=Outcome.FAIL,
        says="wrong values on",
        between=(1, 64),
    ),
    Drill(
        id="slow-matmul",
        fault="one node of four computes slowly",
        phase="smoke",
        nodes=4,
        environment=(("BRINGUP_DRILL", "slow-matmul:n1"), *_COMPUTE),
        where="anywhere",
        gate="smoke.compute.peers",
        subject="n1",
        outcome=Outcome.FAIL,
        says="the median of",
        also=(("smoke.compute.tflops", "n1"),),
        consequences=(("smoke.compute.gpu_peers", "n1"),),
    ),
    # 4 % of a core: torch takes most of a minute to start there, and the products are those of a node that is throttled to nothing
    Drill(
        id="cpu-throttled",
        fault="the kernel gives one node of four a fraction of a core",
        phase="smoke",
        nodes=4,
        inject=(("throttle", "n1", "4"),),
        undo=(("throttle", "n1", "off"),),
        environment=_COMPUTE,
        gate="smoke.compute.peers",
        subject="n1",
        outcome=Outcome.FAIL,
        says="the median of",
        consequences=(("smoke.compute.tflops", "n1"),),
    ),
    Drill(
        id="slow-storage",
        fault="one node reads and writes slowly",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "slow-storage:n0"), *_STORAGE),
        where="anywhere",
        gate="smoke.storage.files",
        subject="n0",
        outcome=Outcome.FAIL,
        says="1/s",
        between=(4, 11),
        also=(("smoke.storage.write_together", "n0"), ("smoke.storage.write", "job"), ("smoke.storage.read", "job")),
    ),
)
