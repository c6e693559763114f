"""The declared faults: what is broken, how, on which subject which gate must say so. pytest runs them on the live cluster.

Commands are verbs of infrastructure-validation/local-cluster/cluster, or `env NAME=VALUE` for the phase that is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.records import Outcome


@dataclass(frozen=True, kw_only=True)
class Drill:
    id: str
    fault: str
    phase: str  # that is run while the fault is in place
    gate: str
    subject: str
    outcome: Outcome
    says: str  # words that the verdict must hold, as observed or as cause
    inject: tuple[tuple[str, ...], ...] = ()  # {results}: the folder of all runs
    undo: tuple[tuple[str, ...], ...] = ()
    wait_for: tuple[str, str] | None = None  # node and Slurm state, before the phase starts
    environment: tuple[tuple[str, str], ...] = ()
    truncate: str | None = None  # a file of the finished run that loses its second half
    silent: tuple[str, ...] = ()  # subjects on which every gate must pass
    where: str = "local-cluster"  # or anywhere: safe inside a job of one's own on a production cluster


DRILLS: tuple[Drill, ...] = (
    Drill(id="node-off", fault="one node is powered off, and Slurm has noticed", phase="discovery",
          inject=(("off", "n1"),), undo=(("boot", "n1"),), wait_for=("n1", "down*"),
          gate="discovery.node.state", subject="n1", outcome=Outcome.FAIL, says="NOT_RESPONDING", silent=("n0",)),
    Drill(id="node-off-unnoticed", fault="one node is powered off, and Slurm still calls it idle", phase="discovery",
          inject=(("off", "n1"),), undo=(("boot", "n1"),),
          gate="discovery.node.answered", subject="n1", outcome=Outcome.FAIL, says="no", silent=("n0",)),
    Drill(id="gpu-missing", fault="one node has a GPU fewer than configured", phase="discovery",
          inject=(("on", "n1", "rm", "/dev/nvidia1"),), undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
          gate="discovery.gpu.count", subject="n1", outcome=Outcome.FAIL, says="1", silent=("n0",)),
    Drill(id="path-not-shared", fault="the results folder is not shared on one node", phase="smoke",
          inject=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),), undo=(("on", "n1", "umount", "{results}"),),
          gate="smoke.fs.reads_submit_host", subject="n1", outcome=Outcome.FAIL, says="no", silent=("n0",)),
    Drill(id="slow-link", fault="one node's link carries 100 Mbit/s", phase="nccl_monitoring",
          inject=(("on", "n1", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb",
                   "latency", "50ms"),),
          undo=(("on", "n1", "tc", "qdisc", "del", "dev", "eth0", "root"),),
          gate="nccl.all_reduce.busbw", subject="2-nodes", outcome=Outcome.FAIL, says="GB/s"),
    Drill(id="rank-killed", fault="a rank is killed in the middle of DDP", phase="run_ddp_2node",
          environment=(("BRINGUP_DRILL", "kill-rank:3@4"),), where="anywhere",
          gate="train.rank.finished", subject="n1/rank3", outcome=Outcome.FAIL, says="killed by signal 9"),
    Drill(id="fsdp-not-applied", fault="an FSDP entrypoint is started without FSDP", phase="run_fsdp_1node",
          environment=(("BRINGUP_DRILL", "no-fsdp"),), where="anywhere",
          gate="train.strategy", subject="job", outcome=Outcome.FAIL, says="ddp"),
    Drill(id="results-truncated", fault="a results file is cut off in the middle", phase="run_1gpu",
          truncate="metrics.json", where="anywhere", silent=("n0/rank0",),
          gate="train.world_size", subject="job", outcome=Outcome.INCOMPLETE, says="no evidence"),
)


def listed() -> str:
    """The catalogue, a line each."""
    width = max(len(drill.id) for drill in DRILLS)
    return "\n".join(f"{drill.id:<{width}}  {drill.where:<13}  {drill.phase}: {drill.fault} -> "
                     f"{drill.gate} [{drill.subject}] {drill.outcome}" for drill in DRILLS)
