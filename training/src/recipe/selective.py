"""Selective recomputation: of a block that is recomputed in the backward pass, the products are kept from the forward
pass, and only what stands between them is computed again.

A product takes almost all time of a block, and its result a part of the memory. So the third of the work that
recomputation adds is saved, for some of the memory that it frees (Korthikanti et al., arXiv 2205.05198, section 5).
"""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

KEPT = ("aten::mm", "aten::addmm")
KEPT_ATTENTION = ("scaled_dot_product", "flash_attn")  # a part of the names: of torch's kernels, of packages


def is_kept(name: str) -> bool:
    """name: of an operation, as aten::mm."""
    return name in KEPT or any(part in name for part in KEPT_ATTENTION)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if is_kept(operation.name()) else CheckpointPolicy.PREFER_RECOMPUTE


CONTEXTS = functools.partial(create_selective_checkpoint_contexts, _policy)
"""What torch.utils.checkpoint takes as context_fn."""
