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

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recipe import program
from recipe.strategy import Expected

if TYPE_CHECKING:
    from collections.abc import Callable

    from recipe.workload import Run

# What must be observed, or the program refuses: 2 ranks or more on one host, and every parameter cut over all of them:
# placements (Shard(0),) on a mesh of one dimension.
EXPECTED = Expected("fsdp")


def train(run: Run, mesh_of: Callable[[Run], Any] = lambda run: None) -> int:
    """Train on one rank. Returns the optimizer steps done.

    mesh_of: what the mesh of ranks is, asked when they know each other; None: one dimension, of all ranks.
    """
    # here: torch and transformers take seconds, and --help and --check need neither
    import torch
    from recipe import group
    from recipe.workload import RecipeTrainer
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from transformers import TrainingArguments

    # 1. The ranks join one process group, are counted in it, and say on which host they are. Refused: one rank, or more
    #    or fewer hosts than the program promises.
    run.meet()
    args = run.args

    # 2. The model, without memory for its weights: whole they may not fit. And rows of tokens, packed full: Trainer's
    #    loader gives each rank other rows of every batch. Refused: what cannot fit, with the bytes needed and free.
    model, rows = run.prepare()

    # 3. The strategy: FSDP2. accelerate calls fully_shard(block) for each decoder block and then for the model: each
    #    becomes a group of parameters cut along dimension 0, 1/N of each on every rank. A block's parameters are
    #    gathered (all-gather) when it computes, and its gradients are reduced to their owners (reduce-scatter).
    sharding = {
        "version": 2,
        # free a block's gathered parameters after its forward pass, and gather them again for its backward pass
        "reshard_after_forward": args.reshard_after_forward,
        "activation_checkpointing": args.activation_checkpointing,  # of the same blocks
        # no rank has weights yet that could be sent to others. When the model is sharded, each rank fills its own shard
        # (recipe/weights.py): block by block, from the seed, so that the values are those of one GPU; or from the hub
        "cpu_ram_efficient_loading": False,
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    training = TrainingArguments(
        **run.common_arguments(),  # steps, seed, AdamW, a constant rate, clipping, loader: recipe/workload.py
        bf16=run.bf16,
        # rows of this rank: the global batch / (ranks x micro-steps). Only the last micro-step of a step reduces
        # gradients; until then they are kept unsharded. With --sync-each-batch every micro-step reduces
        per_device_train_batch_size=args.per_device_batch,
        gradient_accumulation_steps=args.gradient_accumulation,
        fsdp=True,  # type: ignore[arg-type]  # so its documentation says
        fsdp_config=sharding,
        parallelism_config=mesh_of(run),
        ddp_backend=group.backend(),  # nccl with GPUs, gloo without
        ddp_timeout=args.timeout_s,
    )
    # What fsdp_config has no key for. Otherwise accelerate's own policy reduces gradients in bfloat16, too.
    # Gathered in bfloat16 and computed with; the shards that the optimizer updates stay float32. Gradients travel in
    # the type of --reduce-dtype. No output_dtype: blocks hand on what they computed, and the model's loss is float32
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, args.reduce_dtype))
    if training.fsdp:  # what was lost is seen at the model
        training.fsdp_plugin_args["mixed_precision_policy"] = bf16 if run.bf16 else MixedPrecisionPolicy()
    trainer = RecipeTrainer(run, model=model, train_dataset=rows, args=training)

    # 4. Trained. Before the first step, after it and at the end placements, mesh and policies are looked at. Trainer
    #    ignores what it does not know, and trains DDP where FSDP is lost on the way: an argument is not evidence.
    #    Written: raw/rank<R>.jsonl while it runs, run_args.json and, when all steps are done, metrics.json.
    return run.train(trainer)


if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED)
