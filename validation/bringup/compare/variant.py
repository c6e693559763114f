"""What a training was beside its strategy, in a few words, as it was observed."""

from __future__ import annotations

from bringup.records import ObservedStrategy, RunArgs


def variant_of(args: RunArgs, observed: ObservedStrategy) -> str:
    """`ZeRO-2, accumulation 2`. What only the arguments say is taken from them: the others are observed.

    ZeRO-3 gathers the parameters again for the backward pass, ZeRO-2 keeps them gathered from forward to backward
    (Rajbhandari et al., ZeRO, SC 2020; PyTorch: reshard_after_forward).
    """
    words = {
        "ZeRO-3": observed.reshard_after_forward is True,
        "ZeRO-2": observed.reshard_after_forward is False,
        f"accumulation {args.gradient_accumulation}": args.gradient_accumulation > 1,
        f"shard groups of {args.hsdp_group}": args.hsdp_group != args.ranks_per_node,
        "gradients reduced in every micro-step": observed.sync_each_batch is True,
        f"gradients reduced in {observed.reduce_dtype}": observed.reduce_dtype != "float32",
        "recomputation": bool(observed.recomputed_layers),
        "offload": observed.cpu_offload,
        f"attention {args.attention}": args.attention != "sdpa",
        "compiled": args.compile,
        f"recipe {args.recipe}": args.recipe != "plain" and not args.compile,
    }
    return ", ".join(word for word, holds in words.items() if holds) or "plain"
