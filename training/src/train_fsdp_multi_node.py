"""FSDP2 across nodes, in two shapes: one shard group of all ranks, or with --hsdp one shard group per node.

                       FSDP                                        HSDP (--hsdp)
What each rank holds   1/(all ranks) of the states                 1/(ranks of its node) of the states
What repeats           nothing                                     every node holds the whole model, cut among its ranks
Inside the node        its part of the collectives                 all-gather of parameters, reduce-scatter of gradients
Between nodes          all-gather and reduce-scatter of all of it  all-reduce of gradient shards, nothing else
Choose it when         the states do not fit into one node         they do, and the fabric is the slower part

What it proves         placements and mesh are as promised, read from the model; for HSDP, no shard group leaves its
                       host, by the names that ranks gave inside the communicator
Does not prove         which of the two is faster here: run both and compare
Read it beside         train_fsdp_single_node.py (the same without the last two rows), train_ddp_multi_node.py
Launch                 sbatch --nodes=2 training/slurm/run_fsdp_2node.sbatch     (any number of nodes from 2)
                       sbatch --nodes=2 training/slurm/run_hsdp_2node.sbatch
"""

from recipe import program
from recipe.strategy import Expected

EXPECTED = Expected("fsdp", min_hosts=2, max_hosts=None)
EXPECTED_HSDP = Expected("hsdp", min_hosts=2, max_hosts=None)

if __name__ == "__main__":
    program.main(EXPECTED, __doc__, expected_hsdp=EXPECTED_HSDP)
