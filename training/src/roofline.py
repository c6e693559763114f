"""The MFU that one Hopper GPU should give, part by part of `--recipe fast`: computed before a GPU was seen.

Every operation of a step on fake tensors takes max(FLOPs / rate, bytes / bandwidth), and the sum is multiplied by what
a measured step took longer than its own sum. It is a prediction. Nothing here was measured by this project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from bringup.formulae.flops import flops_per_token
from bringup.formulae.memory import CHUNK_TOKENS
from bringup.records import ModelShape
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PEAK_TFLOPS = 989.4
BANDWIDTH_TB_PER_S = {"H100": 3.35, "H200": 4.8}
ASSUMED = {
    "matmul": (0.78, "of the peak: 770 to 795 of 989 TFLOP/s reached (stas00/ml-engineering, compute/accelerator)"),
    "attention": (0.35, "of the peak, of the half that a causal kernel computes: FlashAttention-2 (arXiv 2407.08608)"),
    "faster attention": (1.6, "times as fast: FlashAttention-3, 1.5 to 2 forward, 1.5 to 1.75 backward (same)"),
    "memory": (0.9, "of the bandwidth: a copy reaches 4.3 of 4.8 TB/s on H200"),
    "overhead": (
        1.24,
        "times the sum: 637 ms measured for 514 ms, Llama 3.1 8B on one B200 (stas00/ml-engineering, training/"
        "performance)",
    ),
}
ADD_GRADIENT = 12  # bytes per parameter of a micro-step after the first: reads both, writes one, in float32


MOVES_NOTHING = ("prim::device", "aten::_unsafe_view", "aten::empty", "aten::empty_like")
KINDS = ("matmul", "attention", "elementwise", "loss", "weights")
COLUMNS = ("step ms", "tokens/s", "MFU", *(f"{kind} ms" for kind in KINDS))


@dataclass
class Work:
    """Seconds without overhead, by kind: as it is, and with compiled blocks."""

    eager: Counter[str] = field(default_factory=Counter)
    fused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Counted:
    """A step of one GPU: one micro-step of `rows`, made `accumulation` times, and an update."""

    micro: Work
    update: Work
    shape: ModelShape
    rows: int
    sequence_length: int
    accumulation: int
    gpu: str

    def row(self, *, fused: bool, attention: float = 1.0) -> list[str]:
        """As COLUMNS names it. attention: the share of its time that a faster kernel takes."""
        per_token = flops_per_token(self.shape, self.sequence_length)
        assert per_token is not None  # refuse()
        micro, update = (work.fused if fused else work.eager for work in (self.micro, self.update))
        step = {kind: self.accumulation * micro[kind] + update[kind] for kind in KINDS}
        step["attention"] *= attention
        # a gradient of a later micro-step is added to that of the earlier ones
        added = (self.accumulation - 1) * ADD_GRADIENT * self.shape.parameters
        step["weights"] += added / bandwidth_of(self.gpu)
        seconds = {kind: value * ASSUMED["overhead"][0] for kind, value in step.items()}
        whole = sum(seconds.values())
        tokens_per_s = self.accumulation * self.rows * self.sequence_length / whole
        mfu = per_token.full * tokens_per_s / (PEAK_TFLOPS * 1e12)
        return [
            f"{1e3 * whole:,.0f}",
            f"{tokens_per_s:,.0f}",
            f"{mfu:.1%}",
            *(f"{1e3 * seconds[kind]:,.0f}" for kind in KINDS),
        ]


def refuse(model: Any, shape: ModelShape, rows: int, sequence_length: int) -> None:
    """Raises SystemExit where the FLOPs are not known, or activations cannot be told from weights by their shapes."""
    if shape.not_covered is not None:
        raise SystemExit(f"predict.py: the FLOPs of {shape.name} are not covered: {shape.not_covered}")
    same = {sequence_length, rows * sequence_length} & {size for p in model.parameters() for size in p.shape}
    if same:
        raise SystemExit(
            f"predict.py: {same.pop()} tokens are a size of the weights too: take another length for --mfu"
        )


def bandwidth_of(gpu: str) -> float:
    """Bytes per second that a copy reaches."""
    return BANDWIDTH_TB_PER_S[gpu] * 1e12 * ASSUMED["memory"][0]


class Roofline(TorchDispatchMode):
    """Sorts operations by what they do: matmul, attention, elementwise (of activations), loss, weights."""

    def __init__(self, gpu: str, tokens: int, sequence_length: int, vocabulary: int) -> None:
        super().__init__()
        self.bandwidth = bandwidth_of(gpu)
        self.peak = PEAK_TFLOPS * 1e12
        self.lengths, self.vocabulary = {tokens, sequence_length}, vocabulary
        self.work = Work()
        self.logits = self.sums = 0  # bytes: of logits in chunks, of the residual stream after each of its sums
        self.crossing: dict[int, torch.Tensor] = {}  # activations that a product of a block reads or writes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func._schema.name not in MOVES_NOTHING:
            self._count(func, args, out)
        return out

    def _count(self, func: Any, args: Any, out: Any) -> None:
        name, read, written = func._schema.name, list(_tensors(args)), list(_tensors(out))
        changed = [
            tensor
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(value)
        ]
        moved = sum(tensor.numel() * tensor.element_size() for tensor in [*read, *(changed or written)])
        in_memory = moved / self.bandwidth
        if "scaled_dot_product" in name:
            kind, rate = "attention", self.peak * ASSUMED["attention"][0]
            heads, length = read[0].shape[:-1].numel(), read[0].shape[-2]
            products = 5 if "backward" in name else 2
            flops = products * heads * length * read[0].shape[-1]  # 2 x the square / 2, which is causal
        elif name in ("aten::mm", "aten::addmm", "aten::bmm"):
            kind, rate = "matmul", self.peak * ASSUMED["matmul"][0]
            flops = 2 * written[0].numel() * read[-1].shape[-2]
        else:
            kind, rate, flops = self._kind([*read, *written]), self.peak, 0
        seconds = max(flops / rate, in_memory)
        self.work.eager[kind] += seconds
        if kind != "elementwise":
            self.work.fused[kind] += seconds
        if name == "aten::add" and written[0].dim() == 3 and self._is_activation(written[0]):
            self.sums += written[0].numel() * written[0].element_size()
        if flops and self._is_chunk(written[0]):
            self.logits += written[0].numel() * written[0].element_size()
        if flops and not self._of_loss([*read, *written]):
            for tensor in [*read, *written]:
                if self._is_activation(tensor):
                    self.crossing.setdefault(tensor.untyped_storage()._cdata, tensor)

    def _kind(self, tensors: list[torch.Tensor]) -> str:
        if self._of_loss(tensors):
            return "loss"
        return "elementwise" if any(map(self._is_activation, tensors)) else "weights"

    def _of_loss(self, tensors: list[torch.Tensor]) -> bool:
        return any(self.vocabulary in tensor.shape for tensor in tensors) and any(map(self._is_activation, tensors))

    def _is_activation(self, tensor: torch.Tensor) -> bool:
        return bool(self.lengths & set(tensor.shape)) or self._is_chunk(tensor)

    def _is_chunk(self, tensor: torch.Tensor) -> bool:
        return tuple(tensor.shape) == (CHUNK_TOKENS, self.vocabulary)

    def done(self) -> Work:
        """What was counted, and from now on anew. Fused kernels read or write each activation of a product once, and
        the residual stream twice after each sum; logits in chunks are read twice, and their gradient is written."""
        moved = 2 * self.sums + sum(tensor.numel() * tensor.element_size() for tensor in self.crossing.values())
        self.work.fused["elementwise"] = min(moved / self.bandwidth, self.work.eager["elementwise"])
        if self.logits:
            self.work.fused["loss"] = min(3 * self.logits / self.bandwidth, self.work.eager["loss"])
        done, self.work, self.crossing, self.logits, self.sums = self.work, Work(), {}, 0, 0
        return done


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
