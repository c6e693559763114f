"""Faults of Slurm, its daemons and the jobs themselves, in whatever phase shows them soonest. Data only.

Outcome.PASS: the fault is survived. Then the words of `says` must be on the screen while the phase waits, and nothing may fail.
"""

from __future__ import annotations

from bringup.drills.drill import Command, Drill
from bringup.records import Outcome

_OTHERS = ("n0", "n2", "n3")  # of two nodes, the other one would have nobody to be compared with
_JOB = "$(squeue --noheader --states=running --name={phase} --format=%i)"


def _login(script: str) -> Command:
    return ("sh", "bash", "-euc", script)


def _slurmctld(seconds: int) -> Command:
    """Away for so long, and started again as the cluster starts it: by its own name."""
    return _login(
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

_ALL_IDLE = _login("until [[ $(sinfo --noheader --states=idle --format=%D) == 2 ]]; do sleep 0.2; done")

_OTHER_KEY = (
    "mkdir -m 700 /tmp/m && head -c 1024 /dev/urandom >/tmp/m/key && chmod 600 /tmp/m/key && "
    "munged --force --socket=/tmp/m/s --key-file=/tmp/m/key --pid-file=/tmp/m/pid --log-file=/tmp/m/log "
    '--seed-file=/tmp/m/seed && mount --bind /tmp/m/s "$BRINGUP_CLUSTER/run/munge.sock"'
)
_NO_GPU = ': >/tmp/gres.conf && mount --bind /tmp/gres.conf "$BRINGUP_CLUSTER/gres.conf"'

SCHEDULER: tuple[Drill, ...] = (
    Drill(
        id="node-drained",
        fault="one node is drained",
        phase="discovery",
        nodes=4,
        inject=(_login("scontrol update NodeName=n1 State=DRAIN Reason=drill"),),
        undo=(_login("scontrol update NodeName=n1 State=RESUME"),),
        wait_for=("n1", "drained"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="DRAIN",
        silent=_OTHERS,
    ),
    Drill(
        id="slurmd-hangs",
        waits=True,
        fault="slurmd of one node is stopped (SIGSTOP), and Slurm has noticed",
        phase="discovery",
        nodes=4,
        inject=(("slurmd", "n1", "pause"),),
        undo=(("slurmd", "n1", "cont"),),
        wait_for=("n1", "down*"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="NOT_RESPONDING",
        silent=_OTHERS,
    ),
    Drill(
        id="munge-key",
        waits=True,
        fault="one node has another munge key",
        phase="discovery",
        inject=(("on", "n1", "bash", "-c", _OTHER_KEY),),
        undo=(
            ("on", "n1", "bash", "-c", 'umount "$BRINGUP_CLUSTER/run/munge.sock"; kill "$(</tmp/m/pid)"; rm -r /tmp/m'),
        ),
        gate="discovery.node.answered",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Zero Bytes",
        consequences=(("discovery.node.state", "n1"),),
    ),  # slurmctld cannot reach it either
    Drill(
        id="gres-mismatch",
        fault="slurmd of one node reports no GPU, and slurm.conf says one",
        phase="discovery",
        nodes=4,
        inject=(("on", "n1", "bash", "-c", _NO_GPU), ("slurmd", "n1", "stop"), ("slurmd", "n1", "start")),
        wait_for=("n1", "inval"),
        undo=(
            ("on", "n1", "bash", "-c", 'umount "$BRINGUP_CLUSTER/gres.conf"'),
            ("slurmd", "n1", "stop"),
            ("slurmd", "n1", "start"),
            _login("scontrol update NodeName=n1 State=RESUME"),
        ),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="INVALID_REG",
        silent=_OTHERS,
    ),
    Drill(
        id="node-flaps",
        fault="Slurm takes one node for down in the middle of a job, and for up again at once",
        phase="run_ddp_2node",
        during=(
            _login("scontrol update NodeName=n1 State=DOWN Reason=drill"),
            _login("scontrol update NodeName=n1 State=RESUME"),
        ),
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        says="1",
    ),
    Drill(
        id="job-requeued",
        waits=True,
        fault="the job is requeued while it runs",
        phase="nccl_pairwise",
        during=(_login(f"scontrol requeue {_JOB}"),),
        where="anywhere",
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        says="1",
    ),
    Drill(
        id="job-preempted",
        waits=True,
        fault="a job of another partition takes the nodes away",
        phase="run_1gpu",
        inject=(_login(_PREEMPTION), _slurmctld(0), _ALL_IDLE),
        during=(_login("srun --partition=urgent --nodes=2 --exclusive --mem=0 true"),),
        undo=(_login(_NO_PREEMPTION), _slurmctld(0)),
        gate="run.restarts",
        subject="job",
        outcome=Outcome.WARN,
        says="1",
    ),
    Drill(
        id="job-cancelled",
        fault="the job is cancelled while it runs",
        phase="nccl_pairwise",
        during=(_login(f"scancel {_JOB}"),),
        where="anywhere",
        gate="run.closed",
        subject="job",
        outcome=Outcome.INCOMPLETE,
        says="CANCELLED",
    ),
    Drill(
        id="job-out-of-time",
        waits=True,
        fault="the time of the job is over while it runs",
        phase="run_1gpu",
        environment=(("BRINGUP_DRILL", "hang-rank:0@2"),),
        during=(_login(f"scontrol update JobId={_JOB} EndTime=now+1"),),
        where="anywhere",
        gate="run.closed",
        subject="job",
        outcome=Outcome.INCOMPLETE,
        says="TIMEOUT",
    ),
    Drill(
        id="job-out-of-memory",
        fault="the job was granted too little memory",
        phase="run_1gpu",
        where="anywhere",
        environment=(("SBATCH_MEM_PER_NODE", "200M"),),
        gate="train.exit_code",
        subject="job",
        outcome=Outcome.FAIL,
        says="slurm.out-of-memory",
    ),
    Drill(
        id="controller-restarts",
        fault="slurmctld is restarted while a job runs",
        phase="nccl_pairwise",
        during=(_slurmctld(0),),
        gate="run.closed",
        subject="job",
        outcome=Outcome.PASS,
        says="PASS",
    ),
    Drill(
        id="controller-away",
        waits=True,
        fault="slurmctld is away for a minute while a job runs",
        phase="nccl_pairwise",
        during=(_slurmctld(60),),
        gate="run.closed",
        subject="job",
        outcome=Outcome.PASS,
        says="no answer",
    ),
    Drill(
        id="name-leads-elsewhere",
        waits=True,
        fault="on one node the name of another one has a wrong address",
        phase="nccl_pairwise",
        nodes=4,
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                "sed 's/^10.77.1.10 /10.77.1.99 /' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts",
            ),
        ),
        undo=(("on", "n1", "umount", "/etc/hosts"),),
        gate="nccl.pair.link",
        subject="n0--n1",
        outcome=Outcome.FAIL,
        says="no answer",
        consequences=(("nccl.pair.slowest", "job"),),
    ),
    Drill(
        id="one-way-loss",
        waits=True,
        fault="one node loses 15 of 100 packets that it sends, and none that it gets",
        phase="nccl_pairwise",
        nodes=4,
        inject=(
            (
                "on",
                "n1",
                "nft",
                "table inet drill { chain out { type filter hook output priority 0; "
                'oif "eth0" numgen random mod 100 < 15 drop; }; }',
            ),
        ),
        undo=(("on", "n1", "nft", "delete", "table", "inet", "drill"),),
        gate="nccl.pair.node.latency",
        subject="n1",
        outcome=Outcome.FAIL,
        says="us",
        between=(1e5, 2e6),
        consequences=(("nccl.pair.node", "n1"), ("nccl.pair.slowest", "job"), ("nccl.pair.link*", "*n1*")),
    ),
    Drill(
        id="path-full",
        waits=True,
        fault="the results folder is full for one node",
        phase="smoke",
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-euc",
                "mkdir -p /tmp/full && mount -t tmpfs -o size=64k,nr_inodes=64 tmpfs /tmp/full && "
                "mkdir /tmp/full/upper /tmp/full/work && { head -c 1M /dev/zero >/tmp/full/upper/fill || true; } 2>/dev/null && "
                'mount -t overlay -o "lowerdir=$0,upperdir=/tmp/full/upper,workdir=/tmp/full/work" overlay "$0"',
                "{results}",
            ),
        ),
        undo=(("on", "n1", "umount", "{results}"), ("on", "n1", "umount", "/tmp/full")),
        environment=(("BRINGUP_SMOKE_PARTS", "folder"),),
        # nothing of its own is seen by others; and the overlay, which stands for a full filesystem, keeps what it once looked up
        gate="smoke.fs.writes",
        subject="n1",
        outcome=Outcome.FAIL,
        says="No space left",
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "n?->n?")),
    ),
    # with a fabric: seen nowhere yet, there was none
    Drill(
        id="infiniband-left-out",
        fault="NCCL is told to leave InfiniBand alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_IB_DISABLE", "1"),),
        needs_expected=("nccl.transport", "IB"),
        gate="nccl.transport",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="Socket",
        consequences=(("nccl.*", "*"),),
    ),
    Drill(
        id="nvlink-left-out",
        fault="NCCL is told to leave the direct way between GPUs alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_P2P_DISABLE", "1"),),
        needs_expected=("discovery.gpu.nvlinks", "[1-9]"),
        gate="nccl.all_reduce.busbw",
        subject="1-node",
        outcome=Outcome.FAIL,
        says="GB/s",
        consequences=(("nccl.*", "*"),),
    ),
    Drill(
        id="nic-left-out",
        fault="NCCL is told to leave one NIC alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_IB_HCA", "^=mlx5_0"),),
        needs_expected=("nccl.transport", "IB"),
        gate="nccl.nics",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="",
        between=(1, 64),
        consequences=(("nccl.*", "2-nodes"),),
    ),
)
