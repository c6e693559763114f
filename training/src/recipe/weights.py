"""The weights that a training starts from. A sharded model gets them when it is sharded, and never whole.

First the model is made on torch's meta device. Then FSDP cuts it. Then every rank fills its shard, one part of the
model at a time: a decoder block, or all outside of the blocks. Random numbers of a part follow from the seed and its
name alone, so all strategies start from equal weights. Of a hub model a rank reads only the rows of its shard.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from accelerate import init_empty_weights
from huggingface_hub import snapshot_download
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.initialization import no_init_weights

from recipe import group
from recipe.arguments import Args
from recipe.data import DataError, require_same, together
from recipe.observed_strategy import decoder_layers

OUTSIDE_BLOCKS = ""  # the name of the part outside of the blocks
_CHECKPOINTED = "_checkpoint_wrapped_module."  # in names, where activation checkpointing wraps a block


def without_memory(args: Args) -> Any:
    """Make the model in float32, its parameters on the meta device. Its buffers are real: no checkpoint has them."""
    config = AutoConfig.from_pretrained(args.model_config or args.model)
    with no_init_weights(), init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=args.attention)
    model.tie_weights()
    return model


def on_meta(model: Any) -> list[str]:
    """Name parameters and buffers that have no memory."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, tensor in tensors if tensor.device.type == "meta"]


def fill_alike(model: Any, args: Args) -> None:
    """Fill in the weights of a model that has none yet, the same on every rank. A collective."""
    if not on_meta(model):
        return
    if args.model_config is None:
        require_same("files of the model", together(lambda: identity(args.model, model), args))
    # FSDP would mix different starts, HSDP keep them apart, and DDP hide them; none of them reports it
    require_same("weights", together(lambda: fill(model, args), args))


def fill(model: Any, args: Args) -> float:
    """Give memory and first values to what is on the meta device: whole tensors, or the shards of this rank. Returns
    the sum of all that this rank drew, of which it may keep a shard only. Raises DataError."""
    # as to_empty(), which would empty the buffers too; FSDP follows where its shards go
    model._apply(lambda t: torch.empty_like(t, device=group.DEVICE) if t.device.type == "meta" else t)
    model.tie_weights()
    if args.model_config is not None:
        return draw(model, args.seed)
    read(model, args.model)
    return 0.0


def parts(model: Any) -> dict[str, list[torch.nn.Module]]:
    """Name of a block -> all modules in it. OUTSIDE_BLOCKS -> the others. The same names however it is wrapped."""
    blocks = {id(block) for block in decoder_layers(model)}
    modules_of: dict[str, list[torch.nn.Module]] = {OUTSIDE_BLOCKS: []}
    block = None
    for wrapped_name, module in model.named_modules():  # a block is followed by what is in it
        name = plain_name(f"{wrapped_name}.")
        if block is None or not name.startswith(block):
            block = name if id(module) in blocks else None
        modules_of.setdefault(OUTSIDE_BLOCKS if block is None else block, []).append(module)
    return modules_of


def draw(model: Any, seed: int) -> float:
    """Draw random weights by the model's own rules, part by part. The random state afterwards is that of before."""
    names = {id(p): name for name, p in model.named_parameters()}
    total = 0.0
    with torch.no_grad(), torch.random.fork_rng([group.DEVICE] if group.CUDA else []):
        for part, modules in parts(model).items():
            with _whole(modules) as tensors:
                for tensor in tensors.values():
                    tensor.fill_(torch.nan)
                # the same in every strategy, different for every part
                torch.manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {part}".encode()).digest()[:4], "big"))
                _initialise(model, modules)
                for number, tensor in tensors.items():
                    if tensor.numel() and tensor.amin().isnan():
                        raise DataError(
                            f"{names[number]} of {type(model).__name__} is left without a first value: the model's own "
                            "_init_weights does not name it; take another model"
                        )
                    total += float(tensor.sum())
    return total


def plain_name(name: str) -> str:
    """Return the name of a parameter, as if nothing wrapped its block."""
    return name.replace(_CHECKPOINTED, "")


@contextlib.contextmanager
def _whole(modules: list[torch.nn.Module]) -> Iterator[dict[int, torch.Tensor]]:
    """Inside, the modules hold whole tensors on this rank's device, given by the id of the parameter that they stand
    for. Afterwards each shard has its rows of them."""
    places = [(module, key, p) for module in modules for key, p in module._parameters.items() if p is not None]
    sharded = {id(p): p for _, _, p in places if isinstance(p, DTensor)}
    whole: dict[int, Any] = {
        number: torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device=group.DEVICE))
        for number, p in sharded.items()
    }
    for module, key, p in places:
        module._parameters[key] = whole.get(id(p), p)
    try:
        yield {id(p): whole.get(id(p), p) for _, _, p in places}
    finally:
        for module, key, p in places:
            module._parameters[key] = p
    for number, p in sharded.items():
        p.to_local().copy_(whole.pop(number)[rows_of(p)])


def rows_of(p: DTensor) -> tuple[slice, ...]:
    """Return where this rank's shard lies in the whole tensor."""
    shape, offset = compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
    return tuple(slice(start, start + length) for start, length in zip(offset, shape, strict=True))


def _initialise(model: Any, modules: list[torch.nn.Module]) -> None:
    """Initialise these modules alone, as transformers does. A tied parameter belongs to its first module."""
    for module in model.modules():
        module._is_hf_initialized = True
    seen: set[int] = set()
    for module in modules:
        own = {id(p) for p in module.parameters(recurse=False)}
        module._is_hf_initialized = bool(own) and own <= seen  # type: ignore[assignment]
        seen |= own
    model.initialize_weights()


def read(model: Any, name: str) -> None:
    """Read the shards (or whole tensors) of this rank, from the safetensors files of a hub model or folder."""
    parameters = {plain_name(key): p for key, p in model.named_parameters()}
    with torch.no_grad():
        dcp.load(parameters, storage_reader=dcp.HuggingFaceStorageReader(str(folder_of(name, model))), no_dist=True)
    for key, p in parameters.items():  # else the first step blames a GPU
        if not (p.to_local() if isinstance(p, DTensor) else p).isfinite().all():
            raise DataError(f"weights of {name} hold NaN or Inf ({key}): take an earlier copy of it")


def identity(name: str, model: Any) -> list[tuple[str, int, str]]:
    """Name, bytes and checksum of each file of a hub model: of bytes evenly spread through it, because other weights
    differ nearly everywhere. In a folder another copy may have the same name and size."""
    files = {path.name: np.memmap(path, mode="r") for path in sorted(folder_of(name, model).glob("*.safetensors"))}
    samples = {file: content[:: len(content) // 1024 + 1].tobytes() for file, content in files.items()}
    return [(file, len(files[file]), hashlib.sha256(sample).hexdigest()[:16]) for file, sample in samples.items()]


def folder_of(name: str, model: Any) -> Path:
    """Return the folder of its safetensors files. Raises DataError where parameters are stored otherwise: only
    transformers' from_pretrained can load such a model, and makes it whole on every rank."""
    folder = Path(name) if Path(name).is_dir() else Path(snapshot_download(name, allow_patterns="model*.safetensors"))
    held = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    if not held:
        raise DataError(f"{name} has no safetensors files; look at what lies there")
    wanted = {plain_name(key) for key in model.state_dict()} - set(model.all_tied_weights_keys)
    stored = wanted <= held.keys() and not any(key in wanted for key, _ in model.named_buffers())
    if not stored or get_model_conversion_mapping(model, add_legacy=False):
        raise DataError(
            f"the safetensors files of {name} do not hold every parameter under its own name: save it with the "
            "save_pretrained() of its causal LM, or take another model"
        )
    return folder
