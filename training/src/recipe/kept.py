"""What the blocks of a model keep for the backward pass: counted in one forward pass of tensors without memory.

Fake tensors have shape and type and no storage, so this costs some seconds of a host even for a large model. The model
computes as it is going to: under autocast, or with the casts that FSDP's mixed precision makes around each group. The
kernels are those of a CPU. Of attention they keep what those of a GPU keep (queries, keys, values, result, one number
per head).
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any

import torch
from bringup.formulae.models import Job
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from recipe.fast.no_device_waits import without_waits
from recipe.observed_strategy import LINEAR, decoder_layers
from recipe.rank import one_line


def by_blocks(model: Any, job: Job) -> tuple[int | None, str | None]:
    """(bytes of all blocks together in a micro-step, None) or (None, why they could not be counted). Where they are
    recomputed it is nothing but their inputs, which a formula has.

    model: on the meta device, before anything wraps it. It is not changed."""
    if job.activation_checkpointing:
        return 0, None
    try:
        twin = copy.deepcopy(model)
        with _quiet(), FakeTensorMode(allow_non_fake_inputs=True), without_waits():
            _make_fake(twin, bfloat16=job.sharded and job.compute_bytes == 2)
            return _counted(twin, job), None
    except Exception as error:  # noqa: BLE001  # a model may look at values, which fake tensors do not have
        return None, f"what its blocks keep could not be counted: {one_line(f'{type(error).__name__}: {error}')}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch logs the traces of what is caught here."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def _make_fake(model: Any, *, bfloat16: bool) -> None:
    """Its tensors. bfloat16: the weights, as FSDP gathers them; buffers stay as they are."""
    model._apply(lambda tensor: torch.empty_like(tensor, device="cpu"))
    model.tie_weights()
    if bfloat16:
        for p in model.parameters():
            p.data = p.data.to(torch.bfloat16)
    model.config.use_cache = False
    model.train()


def _counted(model: Any, job: Job) -> int:
    autocast = job.compute_bytes == 2 and not job.sharded
    blocks = decoder_layers(model)
    kept: dict[int, torch.Tensor] = {}
    inside = [False]

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if inside[0]:
            kept.setdefault(tensor.untyped_storage()._cdata, tensor)  # holding it keeps the number its own
        return tensor

    def enter(block: Any, inputs: Any, named: Any) -> Any:
        inside[0] = True
        return (_cast(inputs, torch.bfloat16), _cast(named, torch.bfloat16)) if mixed else None

    def leave(block: Any, inputs: Any, output: Any) -> Any:
        inside[0] = False
        return _cast(output, torch.float32) if mixed else None

    mixed = job.sharded and job.compute_bytes == 2
    for block in blocks:
        block.register_forward_pre_hook(enter, with_kwargs=True)
        block.register_forward_hook(leave)
    if mixed:  # the embedding is a group of its own too
        model.get_input_embeddings().register_forward_hook(lambda *seen: _cast(seen[-1], torch.float32))
    ids = torch.zeros(job.rows, job.tokens // job.rows, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext(),
    ):
        model.base_model(input_ids=ids, use_cache=False)
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    kept_bytes = sum(tensor.untyped_storage().nbytes() for number, tensor in kept.items() if number not in weights)
    if autocast:  # its copies of the weights are kept as well, and counted as gathered elsewhere
        linear = {id(m.weight): m.weight for block in blocks for m in block.modules() if isinstance(m, LINEAR)}
        kept_bytes -= sum(2 * weight.numel() for weight in linear.values())
    return kept_bytes


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """As fully_shard casts: floating tensors, wherever they are."""
    return tree_map(lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v, value)
