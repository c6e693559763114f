"""Faults of the evidence itself, made in the copy of a healthy run, and of jobs that ended early. Data only."""

from __future__ import annotations

from bringup.checks.faults import CLOSE_AGAIN, INVENTORY, evidence, login
from bringup.plan.drill import Command, Drill
from bringup.records import Outcome

_JOB = "$(squeue --noheader --states=running --name={phase} --format=%i)"


def _slurmctld(seconds: int) -> Command:
    """Away for so long, and started again as the cluster starts it: by its own name."""
    return login(
        'pid=$(<"$BRINGUP_CLUSTER/run/slurmctld.pid"); kill "$pid"; '
        'while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done; '
        f"sleep {seconds}; setsid slurmctld >/dev/null 2>&1 </dev/null"
    )


# partition `urgent` preempts; slurmctld reads that at its start only
_PREEMPTION = (
    'cp "$SLURM_CONF" "$SLURM_CONF.good"; printf "%s\\n" PreemptType=preempt/partition_prio PreemptMode=REQUEUE '
    '"PartitionName=urgent Nodes=ALL PriorityTier=10 OverSubscribe=NO" >>"$SLURM_CONF"'
)


_NO_PREEMPTION = 'mv "$SLURM_CONF.good" "$SLURM_CONF"'


_ALL_IDLE = login("until [[ $(sinfo --noheader --states=idle --format=%D) == 2 ]]; do sleep 0.2; done")


_PAIRS_BEGIN = "raw/rounds.txt"

# Of a training: its step is running, and has many seconds before it. Slurm can refuse a step that is created while
# slurmctld starts ("Memory required by task is not available"): whether a phase of many steps survives it is chance.
_STEP_RUNS = "raw/rank0.jsonl"


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="node-flaps",
        fault="Slurm marks one node as down in the middle of a job, and as up again at once",
        phase="run_ddp_2node",
        during=(
            login("scontrol update NodeName=n1 State=DOWN Reason=drill"),
            login("scontrol update NodeName=n1 State=RESUME"),
        ),
        when="raw/rank3.jsonl",
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        value=1,
    ),
    Drill(
        id="job-requeued",
        waits=True,
        fault="the job is requeued while it runs",
        phase="nccl_pairwise",
        during=(login(f"scontrol requeue {_JOB}"),),
        when=_PAIRS_BEGIN,
        where="anywhere",
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        value=1,
    ),
    Drill(
        id="job-preempted",
        waits=True,
        fault="a job of another partition takes the nodes away",
        phase="run_1gpu",
        inject=(login(_PREEMPTION), _slurmctld(0), _ALL_IDLE),
        during=(login("srun --partition=urgent --nodes=2 --exclusive --mem=0 true"),),
        when=_STEP_RUNS,
        undo=(login(_NO_PREEMPTION), _slurmctld(0)),
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        value=1,
    ),
    Drill(
        id="job-cancelled",
        fault="the job is cancelled while it runs",
        phase="nccl_pairwise",
        during=(login(f"scancel {_JOB}"),),
        when=_PAIRS_BEGIN,
        where="anywhere",
        gate="run.closed",
        subject="job",
        outcome=Outcome.INCOMPLETE,
        says="CANCELLED",
    ),
    Drill(
        id="job-out-of-time",
        waits=True,
        fault="the job reaches its time limit while it runs",
        phase="run_1gpu",
        environment=(("BRINGUP_DRILL", "hold-at:{rank0}@step"),),
        when="moment",
        during=(login(f"scontrol update JobId={_JOB} EndTime=now+1"),),
        where="anywhere",
        gate="run.closed",
        subject="job",
        outcome=Outcome.INCOMPLETE,
        says="TIMEOUT",
    ),
    Drill(
        id="controller-restarts",
        fault="slurmctld is restarted while a step runs",
        phase="run_1gpu",
        during=(_slurmctld(0),),
        when=_STEP_RUNS,
        gate="run.closed",
        subject="job",
        outcome=Outcome.PASS,
        says="PASS",
    ),
    Drill(
        id="controller-away",
        waits=True,
        fault="slurmctld is stopped for a minute while a step runs",
        phase="run_1gpu",
        during=(_slurmctld(60),),
        when=_STEP_RUNS,
        gate="run.closed",
        subject="job",
        outcome=Outcome.PASS,
        says="no answer",
    ),
    evidence(
        "evidence-of-another-run",
        "the evidence of the nodes belongs to another run",
        f'cp "$OTHER/{INVENTORY}" raw/{CLOSE_AGAIN}',
        "run.evidence",
        "job",
        "wrote it for run",
    ),
    evidence(
        "evidence-from-the-future",
        "the evidence of the nodes has a date in the future",
        f'sed -i \'s/"utc": "2/"utc": "9/\' {INVENTORY}{CLOSE_AGAIN}',
        "run.evidence",
        "job",
        "wrote it at 9…",
    ),
    evidence(
        "evidence-edited",
        "a number is edited after the run",
        f'sed -i \'s/"value": 2,/"value": 3,/\' {INVENTORY}',
        "run.evidence",
        "job",
        "inventory.jsonl was changed after the run was closed",
        consequences=(("discovery.gpu.count", "*"), ("discovery.slurm.gres", "*"), ("discovery.*", "*")),
    ),
    evidence(
        "evidence-added",
        "a file is added after the run",
        f'cp "$OTHER/{INVENTORY}" raw/inventory-n1.jsonl',
        "run.evidence",
        "job",
        "inventory-n1.jsonl came after the run was closed",
    ),
    evidence(
        "evidence-removed",
        "a file is removed after the run",
        "rm raw/clock.jsonl",
        "run.evidence",
        "job",
        "clock.jsonl is gone",
    ),
    evidence(
        "not-closed", "the record that a run ended is missing", "rm closed.json", "run.closed", "job", "no evidence"
    ),
)
