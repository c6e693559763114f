"""What is really about to train, or has trained: read from the model, its process groups, and its first step.

Structure (wrapper, placements, mesh, the policies that fully_shard keeps) is there before the first step. Behaviour is
seen in it: the data type out of a matrix product, and which decoder layers run a second time. An option proves neither.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import cuda_start
import torch
from bringup.training.records import ObservedStrategy
from facts import node_name
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import Trainer, TrainerCallback
from transformers.pytorch_utils import Conv1D

from recipe import group
from recipe.strategy import PLAIN, kind_of

LINEAR = (torch.nn.Linear, Conv1D)  # Conv1D: GPT-2's linear layer, whose weight is transposed


def name_of(dtype: torch.dtype) -> str:
    """Name a type: float32, bfloat16, ..."""
    return str(dtype).removeprefix("torch.")


def decoder_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the blocks that FSDP groups and checkpointing recomputes, by class names that the model declares."""
    return [module for module, _ in _blocks(model)]


def _blocks(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Each with its class. fully_shard makes a subclass of each class, so the whole line of ancestors is searched."""
    names = set(next((m._no_split_modules for m in model.modules() if getattr(m, "_no_split_modules", None)), ()))  # type: ignore[misc]
    of_model = ((module, names & {cls.__name__ for cls in type(module).__mro__}) for module in model.modules())
    return [(module, own.pop()) for module, own in of_model if own]


class FirstStep(TrainerCallback):
    """Watches the first linear module of each decoder layer during the first optimizer step, then removes its hooks:
    its result has the compute type (the sum around it may not), and it runs again when a layer is recomputed.
    `check` is called on every rank when the model is wrapped and not yet trained, and after the first step."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check
        self.handles: list[Any] = []
        self.forwards: list[int] = []  # index = decoder layer
        self.compute_dtypes: set[str] = set()
        self.reduced_at_once: bool | None = None  # whether the first backward pass reduced its gradients

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:  # type: ignore[override]
        self.check()
        layers = decoder_layers(model)
        self.forwards = [0] * len(layers)
        for index, layer in enumerate(layers):
            linear = next(module for module in layer.modules() if isinstance(module, LINEAR))
            self.handles.append(linear.register_forward_hook(functools.partial(self._note, index)))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.handles:
            for handle in self.handles:
                handle.remove()
            self.handles.clear()
            self.check()

    def after_micro_step(self, model: Any) -> None:
        """Take a note after each backward pass."""
        if self.handles and self.reduced_at_once is None:
            # DDP's wrapper keeps whether its reducer was on. Under FSDP a shard has a gradient only when it was reduced
            has_gradients = any(p.grad is not None for p in model.parameters())
            self.reduced_at_once = getattr(model, "require_backward_grad_sync", has_gradients)

    def recomputed(self, micro_steps: int) -> int | None:
        """Count decoder layers that ran more than once per micro-step; None before the end of the first step."""
        if self.handles or not self.forwards:
            return None
        return sum(count > micro_steps for count in self.forwards)

    def _note(self, index: int, module: Any, inputs: Any, output: torch.Tensor) -> None:
        self.forwards[index] += 1
        self.compute_dtypes.add(name_of(output.dtype))


def observe(trainer: Trainer, first_step: FirstStep, loss_dtype: torch.dtype | None) -> ObservedStrategy:
    """Return what the wrapped model is, agreed on by all ranks. A collective: every rank calls it.

    parameters counts elements of the whole model, parameters_local_max those that one rank stores.
    """
    model = trainer.model_wrapped
    parameters = list(model.parameters())
    placements = sorted({str(tuple(p.placements)) if isinstance(p, DTensor) else PLAIN for p in parameters})
    meshes = [p.device_mesh for p in parameters if isinstance(p, DTensor)]
    mesh = torch.atleast_2d(meshes[0].mesh).tolist() if meshes else None  # one row: one shard group of all ranks
    wrapper = type(model).__name__
    plainly_wrapped = wrapper in ("DistributedDataParallel", "DataParallel")
    stepped = first_step.recomputed(trainer.args.gradient_accumulation_steps)
    several = group.WORLD > 1 and trainer.args.gradient_accumulation_steps > 1
    mine: dict[str, Any] = {
        "kind": kind_of(wrapper if plainly_wrapped else "", placements, mesh, group.WORLD),
        "distributed_type": trainer.accelerator.distributed_type.name,
        "wrapper": wrapper,
        "placements": placements,
        "mesh": mesh,
        "master_dtype": _only({name_of(p.dtype) for p in parameters}),
        "compute_dtype": None if stepped is None else _only(first_step.compute_dtypes),
        "sync_each_batch": None if stepped is None or not several else first_step.reduced_at_once,
        "loss_dtype": None if stepped is None or loss_dtype is None else name_of(loss_dtype),
        "decoder_layers": len(decoder_layers(model)),
        "layer_class": _only({name for _, name in _blocks(model)}) or None,
        "recomputed_layers": stepped,
        **_policies(model),
    }
    local = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in parameters)
    everyone = group.gather((mine, node_name(), device_name(), local))
    if any(theirs[0] != everyone[0][0] for theirs in everyone):
        mine["kind"] = "unknown"  # ranks that train different things are not a strategy
    return ObservedStrategy(
        **mine,
        parameters=sum(p.numel() for p in parameters),
        parameters_local_max=max(theirs[3] for theirs in everyone),
        backend=group.backend(),
        hosts=[theirs[1] for theirs in everyone],
        devices=[theirs[2] for theirs in everyone],
    )


def _policies(model: torch.nn.Module) -> dict[str, Any]:
    """Return what fully_shard was told, as its groups keep it (private names: it has no public ones). Only the decoder
    layers answer for reshard_after_forward: embedding and head are treated otherwise on purpose."""
    groups, layers = _groups(model.modules()), _groups(decoder_layers(model))
    if not groups:
        gradients = {name_of(p.dtype) for p in model.parameters()}  # a gradient has the type of its parameter
        return {"reshard_after_forward": None, "reduce_dtype": _only(gradients)}
    reshard = {unit.post_forward_mesh_info is not None for unit in layers}
    reduce = {
        unit.mp_policy.reduce_dtype or unit.mp_policy.param_dtype or param.sharded_param.dtype
        for unit in groups
        for param in unit.fsdp_params
    }
    return {
        "reshard_after_forward": reshard.pop() if len(reshard) == 1 else None,
        "reduce_dtype": _only({name_of(dtype) for dtype in reduce}),
    }


def _groups(modules: Iterable[torch.nn.Module]) -> list[Any]:
    """Parameter groups of the fully_shard calls among them: of each, torch 2.13 has a list, 2.11 one or none."""
    states = [module._get_fsdp_state() for module in modules if isinstance(module, FSDPModule)]
    groups = [getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group] for state in states]
    return [each for some in groups for each in some if each is not None]


def _only(names: set[str]) -> str:
    return " and ".join(sorted(names))


def device_name() -> str:
    """Return the UUID of this rank's GPU as nvidia-smi prints it, or cpu."""
    return str(cuda_start.uuid(torch, group.DEVICE)) if group.CUDA else "cpu"
