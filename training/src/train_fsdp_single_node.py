"""FSDP2 on one node: parameters, gradients and optimizer states are cut into N shards, one per rank.

What each rank holds   1/N of parameters, gradients and optimizer states; while a layer computes, that layer whole
What moves per step    all-gather of parameters in the forward pass and again in the backward pass, reduce-scatter of
                       gradients
What it proves         the parameters really are sharded (their placements are read before the first step and after the
                       last), memory falls with N, and the loss stays that of one GPU
Does not prove         anything between nodes
Variants               --no-reshard-after-forward gathers once per step and keeps the parameters in between (the
                       traffic of ZeRO-2); --activation-checkpointing; --reduce-dtype bfloat16
Read it beside         train_ddp_single_node.py (every rank holds everything, moves gradients only)
Launch                 sbatch training/slurm/run_fsdp_1node.sbatch
                       torchrun --standalone --nproc-per-node 2 training/src/train_fsdp_single_node.py --run-dir RUN_DIR
"""

from recipe import program
from recipe.strategy import Expected

EXPECTED = Expected("fsdp")

if __name__ == "__main__":
    program.main(EXPECTED, __doc__)
