"""Memory of one rank, predicted from the shape of the model and the layout of the job. Bytes; of the rank with the
most.

Two quantities that must not be confused:
  states  parameters, gradients and optimizer between optimizer.step() and zero_grad(): what sharding divides. Exact.
  peak    the most that PyTorch allocates during a step (max_memory_allocated). An estimate: a test requires that it is
          within 15 % of torch's MemTracker on the real model with the real fully_shard (training/src/predict.py).
          What blocks keep for the backward pass is a formula, one_block(), which knows those of a Llama.
  least   of the peak: what is there at once in every step, whatever the kernels.
None contains the CUDA context and NCCL's buffers, for which OUTSIDE is left, nor what the allocator holds and cannot
use: fragments().

Sources: 16 bytes per parameter and its division, ZeRO (arXiv 1910.02054, section 3). What autograd saves per layer was
derived from the operations of transformers' Llama; a test compares it with torch.autograd.graph.saved_tensors_hooks.
What FSDP gathers and when: torch.distributed.fsdp, and the groups that accelerate makes (fsdp2_prepare_model).
"""

from dataclasses import dataclass, fields, replace

from bringup.kernel.errors import ModelError
from bringup.training.formulae.models import Job, dense_block, padded
from bringup.training.records import Attention, ModelShape, Tensor, elements

GIB = 2**30
MASTER = 4  # float32 weights and gradients
ADAM = 8  # two float32 moments
CHUNK_TOKENS = 2048  # whose logits are there at once where the loss is computed in chunks (recipe/fast/chunked_loss.py)
WORKSPACE = 32 * 2**20  # cuBLAS on Hopper: CUBLAS_WORKSPACE_CONFIG's default there, allocated through PyTorch
OUTSIDE = {1: int(1.0 * GIB), 2: int(3.0 * GIB)}
"""Context 0.5-0.9 GiB; NCCL 1-2 GiB more (stas00/ml-engineering, training/performance). Key: ranks; 2 is 2 or more."""

FRAGMENTED = 0.04
"""Share of what comes and goes in a step that torch reserves on top of it, beside what fragments() names. Chosen by
what was published: see docs/results/predictors.md."""


@dataclass(frozen=True)
class Parts:
    """Bytes by what they are for."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    gathered: int = 0  # copies to compute with: gathered blocks, autocast's bfloat16 weights
    reduction: int = 0  # gradients on their way: unsharded ones, reduce-scatter buffers, DDP's buckets
    activations: int = 0
    logits: int = 0  # and the loss
    workspace: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


def fragments(shape: ModelShape, job: Job, parts: Parts) -> int:
    """Return bytes that torch holds at that moment and cannot use: the tensors of the loss are too large for what was
    freed before them, the gradients of the last step and the logits as the head computed them."""
    # of a training whose unsharded gradients or buckets stay, none are freed
    freed = 0 if parts.reduction else states(shape, job.shards).gradients - parts.gradients
    if not job.chunked_loss:
        freed += job.compute_bytes * job.tokens * shape.vocabulary
    comes_and_goes = parts.gathered + parts.activations + parts.logits
    return int(FRAGMENTED * comes_and_goes) + (freed if parts.logits else 0)


def states(shape: ModelShape, shards: int) -> Parts:
    """Return float32 master weights, float32 gradients, AdamW, of the rank that holds most of them."""
    held = sum(count * padded(group, shards) for count, group in groups(shape))
    return Parts(parameters=MASTER * held, gradients=MASTER * held, optimizer=ADAM * held)


def groups(shape: ModelShape) -> tuple[tuple[int, tuple[Tensor, ...]], ...]:
    """Return (how many, tensors of one): what is gathered and reduced together."""
    blocks = ((blocks.count, blocks.tensors) for blocks in shape.blocks)
    groups_of_one = ((1, shape.embedding), *blocks, (1, shape.tail), (1, shape.rest))
    return tuple((count, tensors) for count, tensors in groups_of_one if tensors)


def largest_block(shape: ModelShape) -> int:
    """Count the elements of the largest block."""
    return max((elements(blocks.tensors) for blocks in shape.blocks), default=0)


def peak(shape: ModelShape, job: Job) -> Parts:
    """Return the largest of the moments of a step. Raises ModelError."""
    return max(moments(shape, job).values(), key=lambda parts: parts.total)


def moments(shape: ModelShape, job: Job) -> dict[str, Parts]:
    """Return the moments. loss: all activations and the logits are there. head: the LM head's gradient. end of
    backward: all gradients. last and first block: where blocks are recomputed, what one keeps and works on is back.

    Activations fall while gradients grow, both layer by layer, so that the largest is at one of the ends.
    """
    resident = states(shape, job.shards)
    activated = activations(shape, job)
    block = largest_block(shape)
    tail, embedding, rest = (elements(group) for group in (shape.tail, shape.embedding, shape.rest))
    largest = max(embedding, tail if shape.tied else 0, rest)
    compute, wire, tokens = job.compute_bytes, job.reduce_bytes, job.tokens
    later = job.accumulation > 1  # gradients of earlier micro-steps are there from the start of a later one
    if job.sharded:
        everything = compute * shape.parameters if job.kind == "zero2" else 0
        gathered_at_loss = everything or compute * (tail + rest)  # the root stays gathered, as the tail
        # a group is freed before its gradient travels; the next one is gathered by then
        gathered_in_head = everything - compute * tail if everything else compute * (block + rest)
        # accelerate's no_sync keeps gradients unsharded
        waiting = wire * shape.parameters if later and not job.sync_each_batch else 0
        in_head = waiting or (compute + wire) * max(tail, block) + resident.gradients * tail // shape.parameters
        at_end = waiting or (compute + wire) * largest
        early = resident.gradients if later and job.sync_each_batch else 0
    else:
        gathered_at_loss = gathered_in_head = compute * shape.matmul_parameters if compute != MASTER else 0
        # DDP's buckets: a second copy, or the gradients themselves, which are then never dropped
        waiting = MASTER * shape.parameters if job.kind == "ddp" and job.buckets_apart else 0
        in_head = waiting + (0 if job.chunked_loss else compute * tail)
        at_end = waiting + compute * block
        early = resident.gradients if later or (job.kind == "ddp" and not job.buckets_apart) else 0
    held = replace(resident, gradients=early, workspace=WORKSPACE)
    logits = tokens * shape.vocabulary
    # float32: log-softmax, its gradient, the gradient of the logits
    at_loss, in_backward = 12 * logits, 0 if job.sharded else compute * logits
    if job.chunked_loss:  # the gradients of the head from then on. And of a chunk: logits, in float32, log-softmax
        in_backward = MASTER * shape.vocabulary * shape.hidden + compute * tokens * shape.hidden
        chunk = min(CHUNK_TOKENS, tokens) * shape.vocabulary
        at_loss = in_backward + (compute + 2 * MASTER if compute != MASTER else 2 * MASTER) * chunk
    again = _recomputed(shape, job)
    behind = {"last block": tail, "first block": shape.parameters - embedding - block}  # whose gradients are there
    of_blocks = {
        name: replace(
            held,
            gradients=early or resident.gradients * elements_behind // shape.parameters,
            gathered=compute * block,
            reduction=compute * block if job.sharded and not waiting else waiting,
            activations=again + (shape.layers * _block_input(shape, job) if name == "last block" else 0),
        )
        for name, elements_behind in behind.items()
        if again
    }
    return of_blocks | {
        "loss": replace(held, gathered=gathered_at_loss, reduction=waiting, activations=activated, logits=at_loss),
        "head": replace(held, gathered=gathered_in_head, reduction=in_head, activations=activated, logits=in_backward),
        "end of backward": replace(held, gradients=resident.gradients, reduction=at_end),
    }


def activations(shape: ModelShape, job: Job) -> int:
    """Count bytes saved for the backward pass, all layers. With checkpointing: every block's input.

    Raises ModelError where there is no formula."""
    tokens, hidden = job.tokens, shape.hidden
    mixed = job.compute_bytes != MASTER
    # final norm: its input and the normalised input in float32 (FSDP: the latter in bfloat16); and the head's input
    final = tokens * hidden * ((8 if job.sharded else 10) if mixed else 12)
    of_block = _block_input(shape, job) if job.activation_checkpointing else one_block(shape, job)
    return shape.layers * of_block + final


def _block_input(shape: ModelShape, job: Job) -> int:
    return job.tokens * shape.hidden * (job.compute_bytes if job.sharded else MASTER)


def _recomputed(shape: ModelShape, job: Job) -> int:
    """One block in the backward pass, if it is recomputed: what it keeps, and the gradients of three tensors of its
    feed-forward, of its input and its output. Raises ModelError where there is no formula."""
    if not job.activation_checkpointing:
        return 0
    work = 3 * job.compute_bytes * _widths(shape)[3] + 8 * shape.hidden
    return one_block(shape, job) + job.tokens * work


def one_block(shape: ModelShape, job: Job) -> int:
    """Count bytes that a Llama's block saves for its backward pass. Raises ModelError for blocks of other tensors.

    h hidden, a and k: width of queries and of keys, f feed-forward, H heads.

    Per token, bfloat16: norms 2 (4 + 2) h, inputs of q/k/v and of gate/up 2 x 2h, q and attention's output 4a, k and v
    4k, gate, silu, up, product 8f. Under autocast every linear casts its own input, 22 h instead of 16 h, and the
    residual stream is float32, 26 h. In float32: 24 h + 8a + 8k + 16f. Also: two rsqrt, the
    log-sum-exp of each head.
    """
    attention, a, k, f = _widths(shape)
    h, heads, head_size = shape.hidden, attention.heads, attention.head_size
    if job.compute_bytes == MASTER:
        per_token = 24 * h + 8 * a + 8 * k + 16 * f
    elif job.sharded:
        # with its own bfloat16 copy of the rotary cosines and sines
        per_token = 16 * h + 4 * a + 4 * k + 8 * f + 4 * head_size
    else:
        per_token = 26 * h + 4 * a + 4 * k + 8 * f
    per_token += 8 + 4 * heads
    if attention.window is not None and job.sequence_length >= attention.window and not job.eager_attention:
        # a window needs a mask, which every layer keeps, and with a mask sdpa gets keys and values once per head
        per_token += job.compute_bytes * (job.sequence_length + 2 * (a - k))
    if job.eager_attention:  # scores after softmax (float32, and bfloat16 when mixed); keys and values once per head
        width = job.compute_bytes
        per_token += heads * job.sequence_length * (4 if width == MASTER else 6) + 2 * width * (a - k) - 4 * heads
    return job.tokens * per_token


def _widths(shape: ModelShape) -> tuple[Attention, int, int, int]:
    """Of a Llama's blocks: their attention; widths of queries, of keys, of the feed-forward."""
    why = f"model {shape.name}: no formula for what its blocks keep for the backward pass"
    if not len(shape.attention) == len(shape.blocks) == 1:
        raise ModelError(why)
    attention, tensors = shape.attention[0], shape.blocks[0].tensors
    kv_heads, f = attention.kv_heads or attention.heads, tensors[len(tensors) // 2][0]  # f: of gate
    if tensors != dense_block(shape.hidden, attention.heads, kv_heads, attention.head_size, f):
        raise ModelError(why)
    return attention, attention.heads * attention.head_size, kv_heads * attention.head_size, f
