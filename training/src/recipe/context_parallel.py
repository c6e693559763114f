"""Context parallelism: neighbouring ranks share the tokens of a row. Each computes its own part of every layer, and in
attention every rank needs the keys and values of the others (Ring Attention, arXiv 2310.01889).

accelerate cuts each batch and asks torch for the attention, which gathers the keys and values of a layer at once
(accelerate's default) and takes one rank's after the other; torch knows it for the attention kernels of a GPU. Here its
kernel for a CPU joins them, so that the same path is trained and watched where there is no GPU. The names are private.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

from recipe.rank import one_line
from recipe.strategy import Refused

ATEN = torch.ops.aten
SEQUENCE = 2  # the dimension of (batch, heads, tokens, width) that is cut
REFUSAL = "Context parallelism"  # how accelerate and transformers begin what they raise
NOT_FUSED = "mixed torch.Tensor and DTensor"  # torch took none of its fused kernels, and the plain one knows no ring


def forward_on_cpu(
    mesh: Any, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, **named: Any
) -> tuple[torch.Tensor, ...]:
    return ring._templated_ring_attention(
        mesh.get_group(),
        SEQUENCE,
        ATEN._scaled_dot_product_flash_attention_for_cpu,
        query,
        key,
        value,
        is_causal=is_causal,
        dropout_p=dropout_p,
        **named,
    )


def backward_on_cpu(
    mesh: Any,
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    **named: Any,
) -> tuple[torch.Tensor, ...]:
    return ring._templated_ring_attention_backward(
        mesh.get_group(),
        SEQUENCE,
        ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
        gradient,
        "grad_out",
        query,
        key,
        value,
        out,
        logsumexp,
        is_causal=is_causal,
        dropout_p=dropout_p,
        **named,
    )


RINGS = {
    ATEN._scaled_dot_product_flash_attention_for_cpu.default: forward_on_cpu,
    ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default: backward_on_cpu,
}


def _handle(operator: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[DTensor, ...]:
    """As torch's own handler: the ring on local tensors; its results are cut as the arguments are."""
    cut = next(each for each in arguments if isinstance(each, DTensor))
    local = [each.to_local() if isinstance(each, DTensor) else each for each in arguments]
    results = RINGS[operator](cut.device_mesh, *local, **named)
    return tuple(DTensor.from_local(each, cut.device_mesh, cut.placements, run_check=False) for each in results)


def ring_on_cpu() -> None:
    """Let torch pass keys and values around for its attention kernel of a CPU, too."""
    handled: dict[Any, Callable[..., Any]] = dict.fromkeys(RINGS, _handle)
    ring.custom_ops.update(handled)


@contextlib.contextmanager
def refused_in_one_line() -> Iterator[None]:
    """What the libraries refuse for a model (attention over a window, say) is refused by all ranks alike."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if NOT_FUSED in str(error):
            raise Refused(
                "--context-parallel: expected one of torch's fused attention kernels, observed none that takes this "
                "attention (its type, its shapes, a mask, dropout): on a GPU give --bf16"
            ) from error
        if not str(error).startswith(REFUSAL):
            raise
        raise Refused(f"--context-parallel: {one_line(str(error))}") from error
