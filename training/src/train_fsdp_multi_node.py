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

from typing import TYPE_CHECKING

from recipe import program
from recipe.strategy import Expected

if TYPE_CHECKING:
    from recipe.workload import Run

# What must be observed, or the program refuses: 2 hosts or more, and every parameter cut over all ranks: placements
# (Shard(0),) on a mesh of one dimension. With --hsdp: (Replicate(), Shard(0)) on a mesh of two, rows inside a host
# (or of --shard-size ranks).
EXPECTED = Expected("fsdp", min_hosts=2, max_hosts=None)
EXPECTED_HSDP = Expected("hsdp", min_hosts=2, max_hosts=None)


def train(run: Run) -> int:
    """The life of one rank. Returns the optimizer steps done."""
    # here: torch and transformers take seconds, and --help and --check need neither
    import torch
    from accelerate import ParallelismConfig
    from recipe import group, strategy
    from recipe.trainer import RecipeTrainer
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
    from transformers import TrainingArguments

    # 1. The ranks join one process group, are counted in it, and say on which host they are. Refused: fewer than two
    #    hosts.
    run.meet()
    args = run.args

    # 2. The model, without memory for its weights: whole they may not fit. And rows of tokens, packed full: Trainer's
    #    loader gives each rank other rows of every batch. Refused: what cannot fit, with the bytes needed and free.
    model, rows = run.prepare()

    # 3. The strategy: FSDP2. accelerate calls fully_shard(block) for each decoder block and then for the model: each
    #    becomes a group of parameters cut along dimension 0, and gathered when it computes.
    #    FSDP: one mesh of all ranks. HSDP: a mesh of (hosts, ranks of a host). Its rows are shard groups, which gather
    #    and reduce-scatter inside a host; its columns hold the same shard and all-reduce the gradients of that shard.
    #    --shard-size cuts it otherwise: rows of half a host (less is gathered, more is held), or of several hosts.
    mesh = None
    if run.expected is EXPECTED_HSDP:
        shards = strategy.shard_group(run.hosts, args.shard_size)
        mesh = ParallelismConfig(dp_replicate_size=len(run.hosts) // shards, dp_shard_size=shards)
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
    # Gathered in bfloat16 and computed with; the shards that the optimizer updates stay float32. Gradients travel in
    # the type of --reduce-dtype. No output_dtype: blocks hand on what they computed, and the model's loss is float32
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, args.reduce_dtype))
    trainer = RecipeTrainer(
        run,
        model=model,
        train_dataset=rows,
        mixed_precision=bf16 if run.bf16 else MixedPrecisionPolicy(),
        # shards, gradients and optimizer states in host memory; without a GPU torch refuses to pin it
        offload=CPUOffloadPolicy(pin_memory=group.CUDA) if args.cpu_offload else OffloadPolicy(),
        args=TrainingArguments(
            **run.common_arguments(),  # steps, seed, AdamW, learning rate, clipping, data loading: as in all programs
            bf16=run.bf16,
            # rows of this rank: the global batch / (ranks x micro-steps). Only the last micro-step of a step reduces
            # gradients; until then they are kept unsharded. With --sync-each-batch every micro-step reduces
            per_device_train_batch_size=args.per_device_batch,
            gradient_accumulation_steps=args.gradient_accumulation,
            fsdp=True,
            fsdp_config=sharding,
            parallelism_config=mesh,
            ddp_backend=group.backend(),  # of the group that is there: nccl with GPUs, gloo without
            ddp_timeout=args.timeout_s,
        ),
    )

    # 4. Trained. Before the first step, after it and at the end placements, mesh and policies are looked at. Trainer
    #    ignores what it does not know, and trains DDP where FSDP is lost on the way: an argument is not evidence.
    #    Written: raw/rank<R>.jsonl while it runs, run_args.json and, when all steps are done, metrics.json.
    return run.train(trainer)


if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED, expected_hsdp=EXPECTED_HSDP)
