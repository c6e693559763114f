"""Gates of NCCL's variants: paths that NCCL is restricted to, one at a time. Data only."""

from __future__ import annotations

from bringup.checks.nccl import variant_guides
from bringup.plan.gate import FromProfile, Gate
from bringup.plan.variants import VARIANTS, Variant

_ONLY = ("nccl_scaling",)
_SPEED = ("speed-inside", "speed-between")


def _effect(variant: Variant) -> Gate:
    return Gate(
        id=f"nccl.variant.{variant.name}.effect",
        phases=_ONLY,
        bears_on=_SPEED,
        per="wide_scale",
        max_nodes=variant.most_nodes,
        proves=f"NCCL did what was requested ({variant.says}): {variant.shows} (its log)",
        unit="flag",
        rule="equals",
        expect=FromProfile(),
        stops=(),
        guide=variant_guides.VARIANTS,
    )


def _speed(variant: Variant) -> Gate:
    return Gate(
        id=f"nccl.variant.{variant.name}.busbw",
        phases=_ONLY,
        bears_on=_SPEED,
        per="wide_scale",
        max_nodes=variant.most_nodes,
        proves=f"with {variant.says} all_reduce reaches the bus bandwidth expected of that path",
        unit="GB/s",
        rule="at_least",
        expect=FromProfile(),
        needs=(f"nccl.variant.{variant.name}.effect",),
        stops=(),
        guide=variant_guides.VARIANTS,
    )


GATES: tuple[Gate, ...] = tuple(gate for variant in VARIANTS for gate in (_effect(variant), _speed(variant)))
