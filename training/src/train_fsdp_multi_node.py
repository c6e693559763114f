"""FSDP2 across nodes, in two shapes: one shard group of all ranks, or with --hsdp one shard group per node.

                       FSDP                                        HSDP (--hsdp)
What each rank holds   1/(all ranks) of the states                 1/(ranks of its node) of the states
What repeats           nothing                                     every node holds the whole model, cut among its ranks
Inside the node        its part of the collectives                 all-gather of parameters, reduce-scatter of gradients
Between nodes          all-gather and reduce-scatter of all of it  all-reduce of gradient shards, nothing else
Choose it when         the states do not fit into one node         they do, and the fabric is the slower part

Variants               --hsdp --shard-size N: shard groups of N ranks, a part of a node or several whole nodes
What it proves         placements and mesh are as promised, read from the model; for HSDP, no shard group leaves its
                       host (or its N ranks' hosts), by the names that ranks gave inside the communicator
Does not prove         which of the two is faster here: run both and compare
Read it beside         train_fsdp_single_node.py (the same without the last two rows), train_ddp_multi_node.py
Launch                 sbatch --nodes=2 training/slurm/run_fsdp_2node.sbatch     (any number of nodes from 2)
                       sbatch --nodes=2 training/slurm/run_hsdp_2node.sbatch
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recipe import program
from recipe.strategy import Expected
from train_fsdp_single_node import train as train_on

if TYPE_CHECKING:
    from recipe.workload import Run

# What must be observed, or the program refuses: 2 hosts or more, and every parameter cut over all ranks: placements
# (Shard(0),) on a mesh of one dimension. With --hsdp: (Replicate(), Shard(0)) on a mesh of two, rows inside a host
# (or of --shard-size ranks).
EXPECTED = Expected("fsdp", min_hosts=2, max_hosts=None)
EXPECTED_HSDP = Expected("hsdp", min_hosts=2, max_hosts=None)


def mesh_of(run: Run) -> Any:
    """Make the mesh, the only difference to one node. FSDP: one mesh of all ranks, which accelerate makes by itself.
    HSDP: a mesh of (hosts, ranks of a host). Its rows are shard groups, which gather and reduce-scatter inside a host;
    its columns hold the same shard and all-reduce the gradients of that shard. --shard-size cuts it otherwise: rows of
    half a host (less is gathered, more is held), or of several hosts.
    """
    if run.expected is not EXPECTED_HSDP:
        return None
    from accelerate import ParallelismConfig

    shards = run.resolved.hsdp_group
    return ParallelismConfig(dp_replicate_size=len(run.hosts) // shards, dp_shard_size=shards)


def train(run: Run) -> int:
    """Train on one rank. Returns the optimizer steps done."""
    return train_on(run, mesh_of)


if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED, expected_hsdp=EXPECTED_HSDP)
