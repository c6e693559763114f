"""DDP on one node: every rank holds the whole model and reads its own rows.

What each rank holds   everything that a single GPU holds; its rows are 1/N of the global batch
What moves per step    gradients, 4 bytes per parameter, all-reduced over NVLink while the backward pass still runs
What it proves         N processes find each other, see different rows, keep equal replicas, and reproduce the loss of
                       one GPU
Does not prove         that a model larger than one GPU can be trained, nor anything between nodes
Read it beside         train_single_gpu.py (without the all-reduce), train_fsdp_single_node.py (without the copies)
Launch                 sbatch training/slurm/run_ddp_1node.sbatch
                       torchrun --standalone --nproc-per-node 2 training/src/train_ddp_single_node.py --run-dir RUN_DIR
"""

from recipe import program
from recipe.strategy import Expected

EXPECTED = Expected("ddp")

if __name__ == "__main__":
    program.main(EXPECTED, __doc__)
