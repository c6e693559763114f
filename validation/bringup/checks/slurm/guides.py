"""What to know about gates of Slurm that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_ENV = "01-environment"
_INFRA = "02-infrastructure-validation"
_CONFIG = "scontrol show config | grep -iE "

# ---- how Slurm is configured

CONFINED = Guide(
    title="cgroups do not confine jobs",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "`ConstrainDevices`, `ConstrainCores` and `ConstrainRAMSpace` in `cgroup.conf` beside `slurm.conf`, and in "
        "`scontrol show config` where it prints them. `TaskPlugin` must list `task/cgroup`, without which these "
        "lines do nothing. These gates read the configuration; `smoke.gpu.isolated`, `smoke.cpu.confined` and "
        "`smoke.memory.enforced` try it."
    ),
    why=(
        "Slurm's default for all three is `no`. `CUDA_VISIBLE_DEVICES` is then a request that any job may ignore: a"
        " job that sets it computes on the GPU of another job. The loader workers of one job run on the cores of "
        "the next, and a memory leak takes the whole node."
    ),
    usually_means=(
        "cgroups were never configured. *Incomplete*: neither source could be read, for instance on a cluster "
        "without local configuration files. A miss of cores or memory only warns."
    ),
    next=(
        _CONFIG + "'TaskPlugin|ProctrackType|Constrain'",
        'cat "$(dirname "${SLURM_CONF:-/etc/slurm/slurm.conf}")/cgroup.conf"',
    ),
    by_hand=(
        "In `cgroup.conf`: `ConstrainDevices=yes`, `ConstrainCores=yes`, `ConstrainRAMSpace=yes`. In `slurm.conf`: "
        "`TaskPlugin=task/cgroup,task/affinity`. In `gres.conf`: `AutoDetect=nvml`, or a `File=` for each GPU; a "
        "device without one is not confined. Then restart slurmctld and slurmd."
    ),
)

PROCTRACK = Guide(
    title="Processes can outlive their job",
    page=_ENV,
    action=Action.CONFIGURE,
    observes="`ProctrackType` in `scontrol show config`.",
    why=(
        "Only `proctrack/cgroup` finds a process that has left its session. With another plugin such a process "
        "lives on after its job and keeps its GPU memory."
    ),
    usually_means=("The line is missing or names another plugin. *Incomplete*: `scontrol show config` gave no answer."),
    next=(_CONFIG + "ProctrackType",),
    by_hand="In `slurm.conf`: `ProctrackType=proctrack/cgroup`. Then restart slurmctld and slurmd.",
)

GRES = Guide(
    title="Slurm and the node disagree about GPUs",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "`GresTypes` must list `gpu`. For every node: how many GPUs its `Gres=` promises, less the devices that "
        "were found."
    ),
    why="Slurm gives a job what `Gres=` promises, and not what the node has.",
    usually_means=(
        "A positive number: Slurm hands out a GPU that is not there. A negative number: one of the GPUs cannot be "
        "requested. *Incomplete*: the node did not answer, or `scontrol` gave no answer."
    ),
    next=(
        "scontrol show node {node} | grep -E 'Gres|CfgTRES'",
        "srun --nodes=1 --nodelist={node} bash -c 'ls /dev/nvidia[0-9]*'",
        "ssh {node} slurmd -G",
        _CONFIG + "GresTypes",
    ),
    by_hand=(
        "In `slurm.conf`: `GresTypes=gpu`, and `Gres=gpu:8` (with the real number) on the line of the node. In "
        "`gres.conf`: `AutoDetect=nvml`. `slurmd -G` shows what the node would register."
    ),
)

VERSION = Guide(
    title="slurmd has several versions",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "The `Version` that each node registered with, in `scontrol show node`. The value of the majority is taken "
        "as right."
    ),
    why="Slurm works with slurmd of two older releases, but options and plugins differ between them.",
    usually_means=(
        "The verdict is a warning: a node missed an update. *Incomplete*: a node never registered, or there is "
        "nothing to compare it with."
    ),
    next=("scontrol show node {nodes} | grep -oE 'NodeName=[^ ]+|Version=[^ ]+'", "sinfo --version"),
)

MPI = Guide(
    title="MPI programs cannot start under srun",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "`MpiDefault` must be `none` or one of the plugins that `srun --mpi=list` names. `discovery.slurm.pmix` "
        "asks whether a `pmix` plugin is among them; a miss only warns."
    ),
    why=(
        "`torchrun` needs neither. nccl-tests and other programs built with MPI do: without the plugin they start "
        "as one rank in each of N separate worlds."
    ),
    usually_means=(
        "`MpiDefault` names a plugin that is not installed, or Slurm was built without PMIx. *Incomplete*: one of "
        "the two commands gave no answer."
    ),
    next=("srun --mpi=list", _CONFIG + "MpiDefault"),
    by_hand=(
        "Install Slurm's PMIx plugin and set `MpiDefault=pmix` in `slurm.conf`. Or start such programs with `mpirun`."
    ),
)

KILL_ON_BAD_EXIT = Guide(
    title="A step outlives its first failure",
    page=_ENV,
    action=Action.CONFIGURE,
    observes="`KillOnBadExit` in `scontrol show config`.",
    why=(
        "With 0, the other ranks wait for the timeout of their collective when one rank ends: 10 minutes under "
        "NCCL, 30 under gloo and with transformers' Trainer by default. The scripts here request it themselves "
        "(`--kill-on-bad-exit`). Other jobs get what this line says."
    ),
    usually_means=(
        "The verdict is a warning: the line has its default. *Incomplete*: `scontrol show config` gave no answer."
    ),
    next=(_CONFIG + "KillOnBadExit",),
    by_hand="In `slurm.conf`: `KillOnBadExit=1`.",
)

HEALTH = Guide(
    title="Slurm does not check its nodes",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "Whether `HealthCheckProgram`, `Prolog` and `Epilog` are set in `scontrol show config`. What they do is not "
        "checked."
    ),
    why=(
        "Without a health check, a node whose GPU is lost is given to job after job. A prolog finds a bad node "
        "before a job does. An epilog removes what a job left in `/dev/shm` and `/tmp`, and its processes."
    ),
    usually_means=(
        "The verdict is a warning: the line is not set. *Incomplete*: `scontrol show config` gave no answer."
    ),
    next=(_CONFIG + "'HealthCheck|Prolog|Epilog'",),
    by_hand=(
        "In `slurm.conf`: `HealthCheckProgram=` with the path of a program, `HealthCheckInterval=300`, `Prolog=`, "
        "`Epilog=` and `PrologFlags=Alloc,Contain`. `infrastructure-validation/slurm/install` installs such programs "
        "(docs/08-daily-life.md)."
    ),
)

LOST_NODES = Guide(
    title="Slurm keeps dead nodes, or returns them to service unchecked",
    page=_ENV,
    action=Action.CONFIGURE,
    observes=(
        "`SlurmdTimeout`: how long slurmctld waits for a silent node before it marks it `DOWN` (0: never). "
        "`ReturnToService`: with 2, a node that went down for any reason returns without an administrator."
    ),
    why=(
        "A dead node holds its job until Slurm calls it `DOWN`. A node that crashes and reboots is given the next "
        "job, and the next."
    ),
    usually_means="The verdict is a warning. *Incomplete*: `scontrol show config` gave no answer.",
    next=(_CONFIG + "'SlurmdTimeout|ReturnToService'",),
    by_hand="In `slurm.conf`: `SlurmdTimeout=300`, `ReturnToService=1`.",
)

# ---- what Slurm does with jobs

CONTROLLER = Guide(
    title="The primary controller does not answer",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes="The line `Slurmctld(primary) at … is UP` in the answer of `scontrol ping`.",
    why="A backup controller can serve for a while. With the primary down, a failure of the backup stops Slurm.",
    usually_means="The primary is down, and a backup may be serving. *Incomplete*: `scontrol` gave no answer.",
    next=("scontrol ping",),
    by_hand="On the host of the controller: `systemctl status slurmctld`, and its log.",
)

RAN_TASKS = Guide(
    title="Tasks of a node did not run",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "The tasks of the binding step that reported from this node. Expected is one for each GPU that Slurm has "
        "configured."
    ),
    why="A rank that is missing makes all other ranks wait for it.",
    usually_means=(
        "Some tasks ended before they reported, or the nodes have different numbers of GPUs. *Incomplete*: nothing "
        "ran on the node. It was not usable and was left out of the step, or the step was not granted in time "
        "(`BRINGUP_WAIT_S`)."
    ),
    next=(
        "cat {run}/raw/binding.err",
        "sinfo -N -l --nodes={node}",
        "squeue --nodelist={node}",
        "srun --nodes=1 --nodelist={node} --ntasks={gpus} --gpus-per-task=1 --label hostname",
    ),
)

CPUS = Guide(
    title="A task gets more cores than it requested",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "The CPU mask of every task that requested one CPU, counted in cores: two hardware threads of a core are one."
    ),
    why="Ranks and data loaders of one job disturb those of another.",
    usually_means=(
        "More than 1: `TaskPlugin` lacks `task/affinity` or `task/cgroup`, or `ConstrainCores` is off. "
        "*Incomplete*: the task did not run."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} --cpus-per-task=1 grep Cpus_allowed_list /proc/self/status",
        _CONFIG + "'TaskPlugin|ConstrainCores|SelectType'",
    ),
)

EXIT_CODE = Guide(
    title="The exit code of a job is lost",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes="`ExitCode` of a batch job that ran `exit 7`. Expected is `7:0`.",
    why="A training that failed looks finished, and the next job of its chain starts.",
    usually_means=(
        "A wrapper of the site, a submit plugin or an epilog replaces exit codes. *Incomplete*: `sbatch` refused the "
        "job, or it did not end within the 90 s that are waited after the other steps."
    ),
    next=(
        "cat {run}/raw/job-exit-code.txt {run}/raw/job-exit-code.log",
        "sbatch --wait --wrap 'exit 7'; echo $?",
    ),
)

MEMORY = Guide(
    title="A job can take more memory than it requested",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes="`JobState` of a batch job that requested 100 MiB and touched 300 MiB. Expected is `OUT_OF_MEMORY`.",
    why="One job can take all memory of a node, and the kernel then ends processes of other jobs.",
    usually_means=(
        "`COMPLETED`: memory is not confined (`ConstrainRAMSpace`) or not scheduled (`SelectTypeParameters` without"
        " memory). `FAILED` or `CANCELLED`: the job was ended, but the reason is lost. *Incomplete*: the job did "
        "not end in time."
    ),
    next=(
        "cat {run}/raw/job-memory.txt {run}/raw/job-memory.log",
        _CONFIG + "'SelectTypeParameters|ConstrainRAM|ConstrainSwap|JobAcctGather'",
    ),
)

BAD_EXIT = Guide(
    title="Tasks run on when one has failed",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "A step of two tasks on each node with `--kill-on-bad-exit=1`. Task 0 ends with code 3 after a second. The "
        "value is the number of tasks on the node that still run 9 s later."
    ),
    why="When a rank fails, the others hang in a collective until its timeout, and the job holds its GPUs.",
    usually_means=(
        "More than 0: Slurm did not end the step, or a process escaped from it. *Incomplete*: not both tasks of the"
        " node began."
    ),
    next=(
        "cat {run}/raw/bad-exit.txt {run}/raw/bad-exit.stderr",
        _CONFIG + "'KillOnBadExit|KillWait|UnkillableStepTimeout'",
    ),
)

ARRAY = Guide(
    title="Tasks of a job array are missing",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "The index that each task of `--array=0-3` found in its environment, from one output file for each task."
    ),
    why="Sweeps and preparation of data use arrays. A missing task leaves a gap in the results without any message.",
    usually_means=(
        "An index is missing: the task failed before it began (its `array-*.jsonl` holds the error), or the output "
        "folder is not there on its node. *Incomplete*: `sbatch` refused the array (`MaxArraySize`), or no task "
        "ran."
    ),
    next=(
        "cat {run}/raw/jobs.err",
        "head {run}/raw/array-*.jsonl",
        _CONFIG + "MaxArraySize",
    ),
)

DEPENDENCIES = Guide(
    title="Dependencies between jobs are not kept",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "Three jobs. *before* sleeps 2 s. *after* depends on it (`afterok`). *never* depends on the job that exits "
        "with 7, with `--kill-on-invalid-dep=yes`. `smoke.dependency.waits`: seconds from the end of *before* to "
        "the start of *after*, 0 or more. `smoke.dependency.never`: the state of *never*, which must be "
        "`CANCELLED`."
    ),
    why="Chained trainings start on checkpoints that are not there yet, or that a failed job left behind.",
    usually_means=(
        "A submit plugin or a wrapper drops dependencies. *Incomplete*: a job did not end in time; the cluster is busy."
    ),
    next=(
        "cat {run}/raw/job-before.txt {run}/raw/job-after.txt {run}/raw/job-never.txt",
        _CONFIG + "'JobSubmitPlugins|DependencyParameters'",
    ),
)

TIME_LIMIT = Guide(
    title="A job is not warned before its time limit",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "Whether `USR1` reached a batch script that requested `--time=1 --signal=B:USR1@55`. The signal may come up "
        "to 60 s early (sbatch(1)) and, because Slurm checks time limits every 30 s, up to 30 s late. The seconds "
        "are in `smoke.time_limit.warned_after_s`."
    ),
    why="A training that saves its state on the signal is killed without it, and its last steps are lost.",
    usually_means=(
        "The signal was not sent, or did not reach the script. *Incomplete*: the job did not begin, or it was ended"
        " before it could wait for the signal."
    ),
    next=(
        "cat {run}/raw/warning.jsonl {run}/raw/job-warning.txt",
        "sbatch --time=1 --signal=B:USR1@55 --wrap 'trap \"echo warned\" USR1; sleep 60 & wait'",
    ),
)

REQUEUE = Guide(
    title="A job cannot be requeued",
    page=_INFRA,
    action=Action.CONFIGURE,
    observes=(
        "A batch job that requeues itself on its first attempt: the highest `SLURM_RESTART_COUNT` that it saw. "
        "Expected is 1. Slurm holds a requeued job back for two minutes by default (`cred_expire` in `AuthInfo`), "
        "and the phase waits for it."
    ),
    why="Without requeueing, the loss of a node ends a training.",
    usually_means=(
        "0: requeueing is refused (`--no-requeue`, `JobRequeue=0`, or a partition or QOS that forbids it). "
        "*Incomplete*: the second attempt did not begin within 180 s."
    ),
    next=(
        "cat {run}/raw/requeue.txt {run}/raw/job-requeue.txt",
        _CONFIG + "'JobRequeue|AuthInfo'",
    ),
)

LATENCY = Guide(
    title="A small job waits long",
    page=_INFRA,
    action=Action.WATCH,
    observes="The seconds from submit to start of the small job that exits with 7, as Slurm writes them down.",
    why="Every phase, and every restart of a training, waits that long.",
    usually_means=(
        "The verdict is a warning, because the load of other users is not a fault. Too long on free nodes: a slow "
        "or overloaded controller, `defer` or long intervals in `SchedulerParameters`, or a slow prolog. "
        "*Incomplete*: the job never started."
    ),
    next=(
        "sdiag | head -40",
        _CONFIG + "'SchedulerParameters|SchedulerType|Prolog'",
    ),
)
