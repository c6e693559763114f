"""The same training without Trainer: model, rows, precision, optimizer and clipping of the recipe, in each strategy.

It is the shortest statement of what the five programs compute, and the yardstick for them: a test holds their losses
and gradient norms to those of this loop, and overhead.py their speed. The options are those of the programs.

    python training/benchmarks/bare_loop.py --run-dir RUN
    torchrun --nproc-per-node 8 training/benchmarks/bare_loop.py --strategy ddp --run-dir RUN       (or fsdp, hsdp)

Rank 0 writes RUN/bare_loop.json: loss and grad_norm of every step, and the speed of the steady window.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "src"))

from recipe import arguments
from recipe.rank import node_name

STRATEGIES = ("single", "ddp", "fsdp", "hsdp")


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--strategy", choices=STRATEGIES, default="single")
    options, sys.argv[1:] = parser.parse_known_args()
    sharded = options.strategy in ("fsdp", "hsdp")
    args = arguments.parse(__doc__ or "", takes_hsdp=False, sharded=sharded)

    import torch
    from bringup.training.formulae import pace
    from recipe import data, group, meter, results, weights
    from recipe.fast import without_waits

    group.start(args.start_s)
    bf16 = group.has_bf16() if args.bf16 is None else args.bf16
    hosts = group.gather(node_name())
    model = weights.without_memory(args)
    rows = data.open_rows(args, model.config, hosts)
    if not sharded:
        weights.fill_alike(model, args)
    model = in_parallel(model.train() if sharded else model.to(group.DEVICE).train(), options.strategy, args, bf16)
    if sharded:
        weights.fill_alike(model, args)  # of which each rank keeps its shard
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    batches = iter(batches_of_rank(rows, args))
    ends, losses, norms = [meter.now()], [], []
    with without_waits():  # like the programs
        for _ in range(args.steps):
            total = torch.zeros((), device=group.DEVICE)
            for micro_step in range(args.gradient_accumulation):
                batch = next(batches)
                ids, labels = (batch[name].to(group.DEVICE, non_blocking=True) for name in ("input_ids", "labels"))
                reduce_after(model, args.sync_each_batch or micro_step == args.gradient_accumulation - 1)
                with torch.autocast(group.DEVICE.type, dtype=torch.bfloat16, enabled=bf16 and not sharded):
                    loss = model(input_ids=ids, labels=labels).loss / args.gradient_accumulation
                loss.backward()
                total += loss.detach()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), results.MAX_GRAD_NORM))
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
            ends.append(meter.now())
    group.wait_for_device()

    step_times_s = group.gather([meter.seconds(begin, end) for begin, end in itertools.pairwise(ends)])
    losses_of_ranks = torch.tensor(group.gather(torch.stack(losses).tolist()), dtype=torch.float64)
    whole_norms = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]  # a collective
    tokens_per_step = args.global_batch * args.sequence_length
    steady = pace.steady_window(step_times_s, hosts, args.warmup_steps, tokens_per_step)
    record = {
        "strategy": options.strategy,
        "world_size": group.WORLD,
        "tokens_per_s": steady.tokens_per_s,
        "step_p50_s": steady.step_time_s.p50,
        "fastest_step_s": min(steady.steps_s),
        "loss": losses_of_ranks.mean(dim=0).tolist(),
        "grad_norm": torch.stack(whole_norms).tolist(),
    }
    if group.RANK == 0:
        (args.run_dir / "bare_loop.json").write_text(json.dumps(record) + "\n")
        print(f"{options.strategy} on {group.WORLD} rank(s): {steady.tokens_per_s:,.0f} tokens/s", flush=True)
    group.close()


def in_parallel(model: Any, strategy: str, args: arguments.Args, bf16: bool) -> Any:
    """The four strategies. What a rank holds, and what is sent, follows from these lines."""
    import torch
    from recipe import group
    from recipe.observed_strategy import decoder_layers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if strategy == "single":
        return model
    if strategy == "ddp":  # everything on every rank; gradients are averaged while the backward pass computes others
        devices = [group.DEVICE.index] if group.CUDA else None
        return DistributedDataParallel(model, device_ids=devices, broadcast_buffers=False)  # they are constants
    if strategy == "fsdp":  # one shard group of all ranks
        mesh = init_device_mesh(group.DEVICE.type, (group.WORLD,), mesh_dim_names=("shard",))
    else:  # a shard group per node; the nodes are replicas of each other
        nodes = (group.WORLD // group.LOCAL_WORLD, group.LOCAL_WORLD)
        mesh = init_device_mesh(group.DEVICE.type, nodes, mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy()
    if bf16:  # gathered and computed in bfloat16, the residual stream too; stored, and by default reduced, in float32
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, args.reduce_dtype))
    sharded: dict[str, Any] = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": args.reshard_after_forward}
    for block in decoder_layers(model):  # gathered before it computes, freed after it
        fully_shard(block, **sharded)
    if model.get_input_embeddings().weight is not model.get_output_embeddings().weight:
        fully_shard(model.get_input_embeddings(), **sharded)
    return fully_shard(model, **sharded | {"reshard_after_forward": False})  # the rest: final norm and head


def reduce_after(model: Any, last: bool) -> None:
    """Gradients of earlier micro-steps stay where they are; those of the last one are reduced with them."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)  # FSDP
    elif hasattr(model, "require_backward_grad_sync"):
        model.require_backward_grad_sync = last  # DDP: what its no_sync() sets


def batches_of_rank(rows: Any, args: arguments.Args) -> Any:
    """The order of accelerate's sampler; micro-batches go to the ranks in turn, so a step has the same rows for all."""
    import torch
    from recipe import group

    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(args.seed))
    rows_of_rank = order.view(-1, args.per_device_batch)[group.RANK :: group.WORLD].flatten().tolist()
    return torch.utils.data.DataLoader(
        torch.utils.data.Subset(rows, rows_of_rank),
        batch_size=args.per_device_batch,
        num_workers=args.dataloader_workers,
        pin_memory=group.CUDA,
    )


if __name__ == "__main__":
    main()
