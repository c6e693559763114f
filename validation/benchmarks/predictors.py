"""Published trainings beside what `bringup advise` says of them: docs/results/predictors.md (`make generated`).

Speed: the tokens/s of a GPU, inside the predicted range or not; and once more with the MFUs of its own source left out
of the range. Memory: what torch reserved, of what is predicted.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bringup.kernel.plan import ceiling
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.ceiling import Mfu
from bringup.kernel.plan.expectation import Share
from bringup.kernel.records import Record, known
from bringup.training.advise import answer
from bringup.training.formulae import memory, models, published
from bringup.training.formulae.models import Job, load
from bringup.training.records import ModelShape, elements

ROOT = Path(__file__).resolve().parents[2]
INTO = ROOT / "docs/results/predictors.md"
PROFILES = {"H100": "h100-8x400g", "H200": "h200-8x400g", "A100": "a100-8x200g", "B200": "b200-8x400g"}
FIELDS = ("num_hidden_layers", "hidden_size", "num_key_value_heads", "intermediate_size", "vocab_size")


def llama(name: str, *sizes: int, tied: bool = False) -> ModelShape:
    """Return the shape of a Llama with heads of 128. sizes: as FIELDS."""
    heads = {"num_attention_heads": sizes[1] // 128, "tie_word_embeddings": tied}
    return models.shape_of({"model_type": "llama", **heads, **dict(zip(FIELDS, sizes, strict=True))}, name)


LLAMA_2 = {
    7: llama("7B", 32, 4096, 32, 11008, 32000),
    13: llama("13B", 40, 5120, 40, 13824, 32000),
    34: llama("34B", 48, 8192, 8, 22016, 32000),
    70: llama("70B", 80, 8192, 8, 28672, 32000),
}
MPT = {  # of llm-foundry: two matrices of 4 x hidden count as the three of a Llama of 8/3
    billions: llama(f"MPT-{billions}B", layers, hidden, hidden // 128, 8 * hidden // 3, 50368, tied=True)
    for billions, layers, hidden in ((3, 32, 2560), (7, 32, 4096), (13, 40, 5120), (30, 48, 7168), (70, 80, 8192))
}
LEAST_APART = 12  # bytes of a logit where the loss is not one kernel: log-softmax, its gradient, that of the logits
Inside = Literal["inside", "below", "above", "unknown"]


class Reserved(Record):
    """A published peak of what torch reserved on a GPU, or of what was active there, in GiB."""

    source: str
    quantity: Literal["reserved", "active"] = "reserved"
    logit_bytes: int  # of the loss, for each logit, as the program of that version computes it
    gpus: int
    model: str
    tokens: int
    rows: int
    context: int = 1  # ranks that share a row
    recomputed: Literal["none", "selective", "full"]
    compiled: bool = False
    gib: float


class BusBandwidth(Record):
    """A published one, GB/s. fabric: what carries it, NVLink inside a node or a rack."""

    source: str
    profile: str
    fabric: Literal["NVLink", "InfiniBand", "RoCE", "EFA", "GCP"]
    operation: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    nodes: int
    size: str
    gb_per_s: float

    @property
    def gate(self) -> str:
        return f"nccl.{self.operation}.busbw"

    @property
    def promised(self) -> object:
        """The limit of the profile for this number of nodes: GB/s, or a share of the ceiling."""
        limit = profiles.load(self.profile).expect[self.gate]
        since = max((count for count in limit.from_nodes or {} if count <= self.nodes), default=None)
        return limit.at_least if since is None else (limit.from_nodes or {})[since]

    def share(self) -> float | None:
        """Of the ceiling that line rates allow, of a ring where the floor is that of one. None: none is known."""
        machine, promised = profiles.load(self.profile).machine, self.promised
        algorithm = promised.algorithm if isinstance(promised, Share) else "best"
        at_most = ceiling.ceiling(self.gate, machine, self.nodes, algorithm)
        return None if isinstance(at_most, str) else self.gb_per_s / at_most.gb_per_s

    def floor(self) -> float:
        """GB/s, of the profile."""
        value = profiles.load(self.profile).limit(self.gate, self.nodes).value
        assert isinstance(value, int | float)
        return float(value)


@dataclass(frozen=True)
class Speed:
    row: published.Published
    low: float | None  # tokens/s of a GPU
    high: float | None
    low_without: float | None  # with its own source left out
    high_without: float | None

    def is_inside(self, low: float | None, high: float | None) -> Inside:
        if low is None or high is None:
            return "unknown"
        rounding = 0.005  # of what was published
        if self.row.tokens_per_s < low * (1 - rounding):
            return "below"
        return "above" if self.row.tokens_per_s > high * (1 + rounding) else "inside"


def shape_of(row: published.Published) -> ModelShape:
    if row.billions == 8 or (row.billions == 70 and row.tokens == 8192):  # Llama 3
        return load(f"llama3-{row.billions:g}b")
    return (MPT if row.source == "llm-foundry" else LLAMA_2)[int(row.billions)]


def speed_of(row: published.Published) -> Speed:
    nodes = max(1, row.gpus // 8)
    job = Job(
        "fsdp" if row.gpus > 1 else "single",
        nodes,
        row.gpus // nodes,
        row.tokens,
        row.rows,
        activation_checkpointing=row.recomputed == "full",
        chunked_loss=row.compiled,  # --recipe fast
    )
    facts = answer.known(profiles.load(PROFILES[row.gpu]), [], None)
    with_all = answer.predict(shape_of(row), job, facts).tokens_per_s
    peak = facts.machine.peak_bf16_tflops
    others = None
    if peak is not None:
        others = published.span(
            peak.source, recomputed=row.recomputed == "full", compiled=row.compiled, without=row.source
        )
    without = None
    if others is not None:
        mfu = Mfu(value=others.low, most=others.high, source=others.source, recomputed=True)
        machine = facts.machine.model_copy(update={"mfu": mfu})
        without = answer.predict(shape_of(row), job, replace(facts, machine=machine)).tokens_per_s
    ends = [None if each is None else [value / row.gpus for value in each] for each in (with_all, without)]
    return Speed(row, *(ends[0] or (None, None)), *(ends[1] or (None, None)))


def memory_of(row: Reserved) -> tuple[float, float]:
    """(GiB that PyTorch allocates at the peak, GiB with what it holds and cannot use). Of torchtitan's program: its
    last block and its embedding stay gathered until the backward pass, and its loss is the one of its version."""
    shape = load(row.model) if row.model.startswith("llama3") else LLAMA_2[int(row.model.removesuffix("b"))]
    nodes = max(1, row.gpus // 8)
    job = Job("fsdp", nodes, row.gpus // nodes, row.tokens // row.context, row.rows, activation_checkpointing=True)
    kept = job.tokens * shape.layers * selective_op(shape) if row.recomputed == "selective" else 0
    gathered = job.compute_bytes * (elements(shape.embedding) + memory.largest_block(shape))
    of_program = [
        replace(
            each,
            activations=each.activations + (kept if each.activations else 0),
            gathered=each.gathered + (gathered if name == "loss" else 0),
            logits=row.logit_bytes * job.tokens * shape.vocabulary if name == "loss" else each.logits,
        )
        for name, each in memory.moments(shape, job).items()
    ]
    parts = max(of_program, key=lambda each: each.total)
    fused = replace(job, chunked_loss=row.logit_bytes < LEAST_APART)  # no logits are freed before the loss
    return parts.total / memory.GIB, (parts.total + memory.fragments(shape, fused, parts)) / memory.GIB


def ratio_of(row: Reserved) -> float:
    """Published / predicted."""
    allocated, gib = memory_of(row)
    return row.gib / (allocated if row.quantity == "active" else gib)


def selective_op(shape: ModelShape) -> int:
    """Bytes of a token and block, bfloat16, beside the block's input: the outputs of attention and of every second
    product of a Llama as torchtitan orders them (q, v, gate, down)."""
    (attention,) = shape.attention
    tensors = shape.blocks[0].tensors
    queries, keys, feed_forward = tensors[0][0], tensors[1][0], tensors[4][0]
    return 2 * (2 * queries + keys + feed_forward + shape.hidden) + 4 * attention.heads


PAGE = """\
# Published trainings beside `bringup advise`

Written by `validation/benchmarks/predictors.py` (`make generated`). None of them was run here.

## Speed

{inside} of {speeds} published speeds lie inside the predicted range; with one assumed MFU for each GPU 1 of the first
19 did. The range is from the lowest MFU that was published for this GPU and setting, where nothing overlaps, to the
highest, where all does. So its own rows are in it: it says how far published trainings lie apart. With the MFUs of its
own source left out, {without} lie inside. On a part of a node no bandwidth is known, and so no speed.

| source | GPUs | model, tokens x rows | recomputed | tokens/s of a GPU | advise | high / low | | without its source |
|---|---|---|---|---|---|---|---|---|
{of_speed}

## Memory

{near} of {reserved} published peaks are within 5 % of the prediction. It is of torchtitan's program as its source was
at that version: what stays gathered, and the tensors of its loss (16 bytes for each logit in March 2024, 12 in
December, 4 since the loss is compiled). *Active* is compared with what is allocated. *Reserved* holds also what the
allocator cannot use: the gradients and logits that were freed before the loss, and {share} of what comes and goes.
Without expandable segments torch reserved 31.0 and 59.4 GiB in the two rows of PR 165: phase scripts set them. Eager
blocks hold more than that, compiled ones less. The share was chosen with these rows in sight.

| source | GPUs | model, tokens x rows (ranks a row) | recomputed | published | | allocated | and held | ratio |
|---|---|---|---|---|---|---|---|---|
{of_memory}

## Bus bandwidth

{published} published results, as shares of
[the ceiling of line rates](../../validation/bringup/kernel/plan/ceiling.py): {spread}.
Each floor is below the worst of its kind.

| source | profile | nodes | operation | over | published, GB/s | share of the ceiling | floor, GB/s |
|---|---|---|---|---|---|---|---|
{of_busbw}
"""


def page(speeds: list[Speed], reserved: list[Reserved], bandwidths: list[BusBandwidth]) -> str:
    inside = [speed.is_inside(speed.low, speed.high) for speed in speeds]
    without = [speed.is_inside(speed.low_without, speed.high_without) for speed in speeds]
    of_speed = [
        f"| {row.source} | {row.gpus} {row.gpu} | {row.billions:g}B, {row.tokens} x {row.rows} | {_how(row)} | "
        f"{row.tokens_per_s:,.0f} | {_range(speed)} | {verdict} | {other} |"
        for speed, verdict, other in zip(speeds, inside, without, strict=True)
        for row in [speed.row]
    ]
    predicted = [memory_of(row) for row in reserved]
    ratios = [ratio_of(row) for row in reserved]
    of_memory = [
        f"| {row.source} | {row.gpus} | {row.model}, {row.tokens} x {row.rows} ({row.context}) | {_how(row)} | "
        f"{row.gib} | {row.quantity} | {allocated:.1f} | {gib:.1f} | {ratio:.2f} |"
        for row, (allocated, gib), ratio in zip(reserved, predicted, ratios, strict=True)
    ]
    shares = [row.share() for row in bandwidths]
    of_busbw = [
        f"| {row.source} | {row.profile} | {row.nodes} | {row.operation} | {row.fabric} | {row.gb_per_s:g} | "
        f"{'' if share is None else f'{share:.2f}'} | {row.floor():.4g} |"
        for row, share in zip(bandwidths, shares, strict=True)
    ]
    of_fabric = {
        fabric: [share for row, share in zip(bandwidths, shares, strict=True) if row.fabric == fabric and share]
        for fabric in dict.fromkeys(row.fabric for row in bandwidths)
    }
    return PAGE.format(
        published=len(bandwidths),
        spread=", ".join(f"{min(each):.2f} to {max(each):.2f} over {fabric}" for fabric, each in of_fabric.items()),
        of_busbw="\n".join(of_busbw),
        inside=inside.count("inside"),
        speeds=len(speeds),
        without=without.count("inside"),
        of_speed="\n".join(of_speed),
        near=sum(0.95 <= ratio <= 1.05 for ratio in ratios),
        reserved=len(reserved),
        share=f"{100 * memory.FRAGMENTED:g} %",
        of_memory="\n".join(of_memory),
    )


def _how(row: published.Published | Reserved) -> str:
    return row.recomputed + (", compiled" if row.compiled else "")


def _range(speed: Speed) -> str:
    if speed.low is None or speed.high is None:
        return "unknown | "
    return f"{speed.low:,.0f} to {speed.high:,.0f} | {speed.high / speed.low:.2f}"


def written() -> str:
    speeds = [speed_of(row) for row in published.all_published()]
    return page(speeds, known("reserved", list[Reserved]), known("busbw", list[BusBandwidth]))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    INTO.write_text(written())
