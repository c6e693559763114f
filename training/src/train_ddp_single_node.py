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

from __future__ import annotations

from typing import TYPE_CHECKING

from recipe import program
from recipe.strategy import Expected

if TYPE_CHECKING:
    from recipe.workload import Run

# What must be observed, or the program refuses: 2 ranks or more on one host, the wrapper DistributedDataParallel, and
# whole parameters on every rank.
EXPECTED = Expected("ddp")


def train(run: Run) -> int:
    """Train on one rank. Returns the optimizer steps done."""
    # here: torch and transformers take seconds, and --help and --check need neither
    from recipe import group
    from recipe.workload import RecipeTrainer
    from transformers import TrainingArguments

    # 1. The ranks join one process group, are counted in it, and say on which host they are. Refused: one rank, or more
    #    or fewer hosts than the program promises.
    run.meet()
    args = run.args

    # 2. The model, in float32 from one seed on every rank: nothing broadcasts it, so its values are compared over the
    #    ranks. And rows of tokens, packed full: Trainer's loader gives each rank other rows of every batch.
    model, rows = run.prepare()

    # 3. The strategy: DDP. When training begins, accelerate wraps the model in
    #    torch.nn.parallel.DistributedDataParallel(model, device_ids=[LOCAL_RANK]). Every rank keeps weights, gradients
    #    and optimizer states whole. In the backward pass, gradients are all-reduced bucket by bucket, as soon as a
    #    bucket is full, while the layers before it still compute: inside a node over NVLink, between nodes over the
    #    fabric. Their average is the same on all ranks, so the replicas stay equal. The gradients are views of these
    #    buckets, in one copy (recipe/workload.py).
    trainer = RecipeTrainer(
        run,
        model=model,
        train_dataset=rows,
        args=TrainingArguments(
            **run.common_arguments(),  # steps, seed, AdamW, a constant rate, clipping, loader: recipe/workload.py
            # autocast: products in bfloat16, everything else and the weights in float32; gradients travel in float32
            bf16=run.bf16,
            # rows of this rank: the global batch / (ranks x micro-steps). Only the last micro-step of a step
            # communicates: before it, Trainer is inside DDP's no_sync(), unless --sync-each-batch is given
            per_device_train_batch_size=args.per_device_batch,
            gradient_accumulation_steps=args.gradient_accumulation,
            # recomputed in the backward pass, block by block: a third more work, activations of one block at a time
            activation_checkpointing=args.activation_checkpointing,
            ddp_backend=group.backend(),  # nccl with GPUs, gloo without
            ddp_timeout=args.timeout_s,
        ),
    )

    # 4. Trained. Before the first step, after it and at the end the wrapper and the parameters are looked at.
    #    Afterwards the checksums of all replicas have to be equal.
    #    Written: raw/rank<R>.jsonl while it runs, run_args.json and, when all steps are done, metrics.json.
    return run.train(trainer)


if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED)
