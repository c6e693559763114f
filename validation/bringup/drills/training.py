"""Faults of the training phases. Data only."""

from __future__ import annotations

from bringup.drills.drill import Drill
from bringup.records import Outcome

TRAINING: tuple[Drill, ...] = (
    Drill(id="rank-killed", fault="a rank is killed in the middle of DDP", phase="run_ddp_2node",
          environment=(("BRINGUP_DRILL", "kill-rank:3@4"),), where="anywhere",
          gate="train.rank.finished", subject="n1/rank3", outcome=Outcome.FAIL, says="killed by signal 9"),
    Drill(id="fsdp-not-applied", fault="an FSDP entrypoint is started without FSDP", phase="run_fsdp_1node",
          environment=(("BRINGUP_DRILL", "no-fsdp"),), where="anywhere",
          gate="train.strategy", subject="job", outcome=Outcome.FAIL, says="ddp"),
    Drill(id="optimizer-unsharded", fault="the optimizer keeps whole copies of parameters that are sharded", phase="run_fsdp_1node",
          environment=(("BRINGUP_DRILL", "unsharded-optimizer"),), where="anywhere",
          gate="train.memory.states", subject="job", outcome=Outcome.FAIL, says="predicted"),
    Drill(id="results-truncated", fault="a results file is cut off in the middle", phase="run_1gpu",
          truncate="metrics.json", where="anywhere", silent=("n0/rank0",),
          gate="train.world_size", subject="job", outcome=Outcome.INCOMPLETE, says="no evidence"),
)
