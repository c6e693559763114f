"""DDP across nodes: the same all-reduce, now over the network between them.

What each rank holds   everything that a single GPU holds; its rows are 1/N of the global batch
What moves per step    gradients, 4 bytes per parameter; each node's share crosses the fabric once in each direction
What it proves         ranks of 2 or more hosts train as one; hosts are counted by the names that ranks gave inside the
                       communicator
Does not prove         that the fabric is used at full speed: compare tokens/s per rank with the single-node run
Read it beside         train_ddp_single_node.py, whose train() this is: it differs in the promise below only
Launch                 sbatch --nodes=2 training/slurm/run_ddp_2node.sbatch     (any number of nodes from 2)
"""

from recipe import program
from recipe.strategy import Expected
from train_ddp_single_node import train

# What must be observed, or the program refuses: ranks on 2 hosts or more, the wrapper DistributedDataParallel, and
# whole parameters on every rank.
EXPECTED = Expected("ddp", min_hosts=2, max_hosts=None)

if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED)
