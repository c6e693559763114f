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
    inject: tuple[tuple[str, ...], ...]
    undo: tuple[tuple[str, ...], ...]
    gate: str
    subject: str
    outcome: Outcome
    cause: str  # words that the verdict must hold
    environment: tuple[tuple[str, str], ...] = ()
    silent: tuple[str, ...] = ()  # subjects on which no gate may fail
    where: str = "local-cluster"


DRILLS: tuple[Drill, ...] = (
    Drill(id="node-off", fault="one node is powered off", phase="discovery",
          inject=(("off", "n1"),), undo=(("boot", "n1"),),
          gate="discovery.node.state", subject="n1", outcome=Outcome.FAIL, cause="NOT_RESPONDING", silent=("n0",)),
    Drill(id="gpu-missing", fault="one node has a GPU fewer than configured", phase="discovery",
          inject=(("on", "n1", "rm", "/dev/nvidia1"),), undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
          gate="discovery.gpu.count", subject="n1", outcome=Outcome.FAIL, cause="1", silent=("n0",)),
    Drill(id="path-not-shared", fault="the shared path is not shared on one node", phase="smoke",
          inject=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),), undo=(("on", "n1", "umount", "{results}"),),
          gate="smoke.fs.reads_submit_host", subject="n1", outcome=Outcome.FAIL, cause="no", silent=("n0",)),
    Drill(id="rank-killed", fault="a rank is killed in the middle of DDP", phase="run_ddp_2node", inject=(), undo=(),
          environment=(("BRINGUP_DRILL", "kill-rank:3@4"),),
          gate="train.rank.finished", subject="n1/rank3", outcome=Outcome.FAIL, cause="killed by signal 9", where="anywhere"),
    Drill(id="fsdp-not-applied", fault="an FSDP entrypoint is started without FSDP", phase="run_fsdp_1node", inject=(), undo=(),
          environment=(("BRINGUP_DRILL", "no-fsdp"),),
          gate="train.strategy", subject="job", outcome=Outcome.FAIL, cause="ddp", where="anywhere"),
    Drill(id="results-truncated", fault="a results file is cut off in the middle", phase="discovery",
          inject=(), undo=(), gate="discovery.node.answered", subject="n1", outcome=Outcome.INCOMPLETE,
          cause="no evidence", silent=("n0",), where="anywhere"),
)


def listed() -> str:
    """The catalogue, a line each."""
    width = max(len(drill.id) for drill in DRILLS)
    return "\n".join(f"{drill.id:<{width}}  {drill.where:<13}  {drill.phase}: {drill.fault} -> "
                     f"{drill.gate} [{drill.subject}] {drill.outcome}" for drill in DRILLS)
