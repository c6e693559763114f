"""The head of metrics.json: the numbers that people compare, each taken from the field that holds it.

The only code that says what a training was in a word or two, and what its scaling is: the program writes it, and
`bringup compare` shows the same.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bringup.kernel.records.base import NonNegative, Record

ON = "on"  # a change of the recipe (RunArgs.tuning)

if TYPE_CHECKING:
    from bringup.training.records.training import ObservedStrategy, RunArgs, TrainMetrics

REFERENCE_ARGS, REFERENCE_METRICS = "raw/reference.run_args.json", "raw/reference.metrics.json"
"""In a run's folder: the records of the run on one GPU that it is compared with, copied when it was opened."""


class Summary(Record):
    """Of all ranks, in the steady window, unless a name says otherwise. null: not known, and a `_reason` says why."""

    strategy: str  # observed
    variant: str
    recipe: str
    device: str  # model of rank 0's GPU, or cpu
    ranks: int = Field(ge=1)
    nodes: int = Field(ge=1)
    tokens_per_s: float = Field(gt=0)
    tokens_per_s_per_gpu: float = Field(gt=0)  # of a rank: it has one GPU, or on a CPU its share of the cores
    mfu: NonNegative | None
    mfu_reason: str | None
    step_s_p50: float = Field(gt=0)
    step_s_p95: float = Field(gt=0)
    peak_memory_gib: NonNegative  # of the fullest rank
    peak_memory_of: Literal["device", "host"]  # reserved by PyTorch on its GPU; without a GPU resident on the host
    communication_share: float | None = Field(ge=0, le=1)  # of a step, that nothing overlapped
    communication_reason: str | None
    scaling: NonNegative | None  # tokens/s of a rank over those of the run on one GPU that was kept with this one
    scaling_reason: str | None
    loss_first: float | None  # nats; null: no losses
    loss_last: float | None


def summary_of(args: RunArgs, metrics: TrainMetrics, scaled: tuple[float | None, str | None]) -> Summary:
    """Sum up a training. scaled: (scaling, None), or (None, why it is not known)."""
    memory, observed = metrics.memory, metrics.observed
    of_device = memory.device_allocated_gib if memory.device_reserved_gib is None else memory.device_reserved_gib
    both = {"tokens_per_s", "mfu", "mfu_reason", "communication_share", "communication_reason"}
    return Summary(
        **metrics.model_dump(include=both),
        strategy=observed.kind,
        variant=variant_of(args, observed),
        recipe=args.recipe,
        device=metrics.gpu0 or args.device,
        ranks=metrics.world_size,
        nodes=len(set(observed.hosts)),
        tokens_per_s_per_gpu=metrics.tokens_per_s_per_rank,
        step_s_p50=metrics.step_time_s.p50,
        step_s_p95=metrics.step_time_s.p95,
        peak_memory_gib=memory.host_rss_gib if of_device is None else of_device,
        peak_memory_of="host" if of_device is None else "device",
        scaling=scaled[0],
        scaling_reason=scaled[1],
        loss_first=metrics.loss[0] if metrics.loss else None,
        loss_last=metrics.loss[-1] if metrics.loss else None,
    )


def scaling(metrics: TrainMetrics, base: TrainMetrics) -> float:
    """Divide tokens/s of a rank by those of a rank of the base."""
    return metrics.tokens_per_s_per_rank / base.tokens_per_s_per_rank


def scaling_against(
    args: RunArgs, metrics: TrainMetrics, reference: tuple[RunArgs, TrainMetrics] | None
) -> tuple[float | None, str | None]:
    """Return (scaling against the run on one GPU, None), or (None, why it is not known)."""
    if metrics.world_size == 1:
        return None, "one rank: others are compared with it"
    if reference is None:
        return None, "no run on one GPU was kept with this run"
    of_reference, base = reference
    differing = differing_fields(of_reference, args)
    if base.world_size != 1:
        differing.append(f"it had {base.world_size} ranks")
    if differing:
        return None, f"the run on one GPU is not comparable: {'; '.join(differing)}"
    return scaling(metrics, base), None


def differing_fields(first: RunArgs, second: RunArgs, allowed: Container[str] | None = None) -> list[str]:
    """Return fields in which two runs differ and may not: `learning_rate 0.001 vs 0.01`. Empty: comparable.

    allowed: may differ; default: what strategies differ in.
    """
    left, right = first.model_dump(), second.model_dump()
    may_differ = first.STRATEGY if allowed is None else allowed
    for fields in (left, right):  # why one is off is prose: another wording is the same training
        fields["tuning"] = {what: state if state == ON else "off" for what, state in fields["tuning"].items()}
    named = [name for name in left if name not in may_differ and left[name] != right[name]]
    return [f"{name} {_differing(left[name], right[name])}" for name in named]


def _differing(left: Any, right: Any) -> str:
    """Return `1 vs 2`; of what has several parts, only those that differ."""
    if not isinstance(left, dict):
        return f"{left} vs {right}"
    parts = [part for part in {**left, **right} if left.get(part) != right.get(part)]
    return ", ".join(f"{part}: {left.get(part, 'not there')} vs {right.get(part, 'not there')}" for part in parts)


def variant_of(args: RunArgs, observed: ObservedStrategy) -> str:
    """Say what a training was beside its strategy: `ZeRO-2, accumulation 2`; as observed, where that is known.

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
        f"buckets of {args.ddp_bucket_cap_mb} MiB": args.ddp_bucket_cap_mb is not None,
        "recomputation": bool(observed.recomputed_layers),
        f"attention {args.attention}": args.attention != "sdpa",
        "compiled": args.compile,
        f"recipe {args.recipe}": args.recipe != "plain" and not args.compile,
    }
    return ", ".join(word for word, holds in words.items() if holds) or "plain"
