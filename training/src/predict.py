"""One training step of a model on any number of ranks, computed in one process without a GPU, a cluster or weights.

torch's "fake" process group lets this process be rank 0 of N. Fake tensors have shape and type but no storage. The
model is sharded by the code of a real run (accelerate's fsdp2_prepare_model, so fully_shard). The results are computed,
not measured: the bytes that rank 0 holds after a step, the peak of the step by torch's MemTracker, and every collective
with its bytes.

It does not include: time; the CUDA context and NCCL's buffers; fragmentation; kernels' workspaces; DDP's buckets,
because the reducer does not run on fake collectives. It also answers for a model that bringup advise has no formula
for.

    python training/src/predict.py --model llama3-8b --strategy fsdp --nodes 2 --gpus-per-node 8 --sequence-length 8192
"""

import argparse
import collections
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import transformers
from accelerate.utils import FullyShardedDataParallelPlugin, convert_outputs_to_fp32
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_model
from recipe.arguments import MODELS
from recipe.fast import without_waits
from recipe.fast.chunked_loss import ChunkedLoss
from recipe.memory import states_bytes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

STEMS = sorted(path.stem for path in MODELS.glob("*.json"))


@dataclass(frozen=True)
class Step:
    """What is computed. rows: per rank and micro-step."""

    model: str  # stem of training/models/*.json, or the path of a config.json
    strategy: str  # single, fsdp, zero2, hsdp
    nodes: int
    gpus_per_node: int
    sequence_length: int
    shard_size: int | None = None  # of hsdp; None: a node
    rows: int = 1
    accumulation: int = 1
    sync_each_batch: bool = False
    bf16: bool = True
    reduce_dtype: str = "float32"
    activation_checkpointing: bool = False
    attention: str = "sdpa"
    chunked_loss: bool = False

    @property
    def world(self) -> int:
        return 1 if self.strategy == "single" else self.nodes * self.gpus_per_node


def computed(step: Step) -> dict[str, Any]:
    """Return states, peak and traffic of rank 0 in a steady step. Bytes. Uses a fake process group of its own."""
    started = time.perf_counter()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=step.world)
    try:
        mesh = mesh_of(step)  # its ranks are real numbers
        with FakeTensorMode(allow_non_fake_inputs=True), without_waits():  # fake tensors have no values to look at
            model = _model(step, mesh)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # as results.OPTIMIZER
            one_step = _step(step, model, optimizer)
            one_step()  # makes the optimizer's states, and warms the caches of DTensor
            states: dict[str, int] = {}
            with CollectiveBytes() as traffic:
                one_step(before_zero_grad=lambda: states.update(states_bytes(model, optimizer)))
            tracker = MemTracker()  # after the collectives were counted: trackers touch FSDP's hooks
            tracker.track_external(model, optimizer)
            with tracker:
                one_step(after_backward=tracker.reset_mod_stats)  # it refuses a second forward pass otherwise
            peak = tracker.get_tracker_snapshot("peak")
        device = max(peak, key=lambda device: peak[device].get("Total", 0))
        return {
            **asdict(step),
            "world": step.world,
            "torch": torch.__version__,
            "parameters": sum(p.numel() for p in model.parameters()),
            "states_bytes": states,
            "peak_bytes": {
                str(getattr(part, "value", part)).lower(): size for part, size in peak[device].items() if size
            },
            "collectives": traffic.rows(),
            "seconds": round(time.perf_counter() - started, 1),
        }
    finally:
        dist.destroy_process_group()


def mesh_of(step: Step) -> DeviceMesh | None:
    if step.strategy == "single":
        return None
    if step.strategy == "hsdp":
        shards = step.shard_size or step.gpus_per_node
        return init_device_mesh("cpu", (step.world // shards, shards), mesh_dim_names=("dp_replicate", "dp_shard_cp"))
    return init_device_mesh("cpu", (step.world,), mesh_dim_names=("dp_shard_cp",))


def _model(step: Step, mesh: DeviceMesh | None) -> Any:
    """Return the model with float32 master weights, sharded as a run would shard it."""
    path = MODELS / f"{step.model}.json" if step.model in STEMS else Path(step.model)
    config = AutoConfig.for_model(**transformers.PreTrainedConfig.get_config_dict(str(path))[0])
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=step.attention)
    model.train()
    if step.chunked_loss:
        ChunkedLoss(model)
    if mesh is not None:
        return sharded(step, model, mesh)
    if step.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if step.bf16:
        model.forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(model.forward))
    return model


def sharded(step: Step, model: Any, mesh: DeviceMesh) -> Any:
    policy = MixedPrecisionPolicy()
    if step.bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, step.reduce_dtype))
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=step.strategy != "zero2",
        auto_wrap_policy="transformer_based_wrap",
        activation_checkpointing=step.activation_checkpointing,
        cpu_ram_efficient_loading=False,
        mixed_precision_policy=policy,
    )
    accelerator: Any = SimpleNamespace(  # as much of an Accelerator as the two functions read
        state=SimpleNamespace(fsdp_plugin=plugin),
        torch_device_mesh=mesh,
        mixed_precision="bf16" if step.bf16 else "no",
        parallelism_config=SimpleNamespace(fsdp_dim_names=mesh.mesh_dim_names),
        is_main_process=False,
        device=torch.device("cpu"),
    )
    plugin.set_auto_wrap_policy(model)
    if plugin.activation_checkpointing:
        model = fsdp2_apply_ac(accelerator, model)
    return fsdp2_prepare_model(accelerator, model)


def _nothing() -> None:
    pass


def _step(step: Step, model: Any, optimizer: Any) -> Callable[..., None]:
    """Return an optimizer step as Trainer makes it, with `before_zero_grad` called while there are gradients."""
    ids = torch.randint(0, model.config.vocab_size, (step.rows, step.sequence_length))

    def one_step(
        before_zero_grad: Callable[[], None] = _nothing, after_backward: Callable[[], None] = _nothing
    ) -> None:
        for micro in range(step.accumulation):
            if step.accumulation > 1 and step.strategy != "single":
                model.set_requires_gradient_sync(step.sync_each_batch or micro == step.accumulation - 1)
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            del loss
            after_backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        before_zero_grad()
        optimizer.zero_grad()

    return one_step


class CollectiveBytes(TorchDispatchMode):
    """Calls and bytes of the collectives of FSDP2, by (operation, group size, dtype).

    Bytes are those of the full tensor, as nccl-tests counts. Norms are reduced by functional collectives of a few
    bytes, which are not counted.
    """

    FULL_TENSOR_AND_GROUP: ClassVar[dict[str, tuple[str, int, int]]] = {
        "c10d::_allgather_base_": ("all_gather", 0, 2),
        "c10d::_reduce_scatter_base_": ("reduce_scatter", 1, 2),
        "c10d::allreduce_": ("all_reduce", 0, 1),
    }

    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[tuple[str, int, str]] = collections.Counter()
        self.bytes: collections.Counter[tuple[str, int, str]] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func._schema.name in self.FULL_TENSOR_AND_GROUP:
            operation, tensors, group = self.FULL_TENSOR_AND_GROUP[func._schema.name]
            members = (
                args[group].size() if hasattr(args[group], "size") else dist.ProcessGroup.unbox(args[group]).size()
            )
            for tensor in args[tensors] if isinstance(args[tensors], list | tuple) else [args[tensors]]:
                key = (operation, members, str(tensor.dtype).removeprefix("torch."))
                self.calls[key] += 1
                self.bytes[key] += tensor.numel() * tensor.element_size()
        return out

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"operation": key[0], "group_size": key[1], "dtype": key[2], "calls": calls, "bytes": self.bytes[key]}
            for key, calls in self.calls.items()
        ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default="tiny", help=f"{', '.join(STEMS)}, or the path of any model's config.json")
    add("--strategy", default="fsdp", choices=("single", "fsdp", "zero2", "hsdp"))
    add("--nodes", type=int, default=2)
    add("--gpus-per-node", type=int, default=8)
    add("--shard-size", type=int, help="of hsdp (default: --gpus-per-node)")
    add("--sequence-length", type=int, default=128)
    add("--rows", type=int, default=1, help="per rank and micro-step (default: %(default)s)")
    add("--accumulation", type=int, default=1)
    add("--sync-each-batch", action="store_true", help="reduce gradients in every micro-step")
    add("--bf16", action=argparse.BooleanOptionalAction, default=True)
    add("--reduce-dtype", choices=("float32", "bfloat16"), default="float32")
    add("--activation-checkpointing", action="store_true")
    add("--attention", choices=("eager", "sdpa"), default="sdpa")
    add("--chunked-loss", action="store_true", help="as --recipe fast computes the loss")
    step = Step(**vars(parser.parse_args(argv)))
    if step.model not in STEMS and not Path(step.model).is_file():
        parser.error(f"--model {step.model}: there are {', '.join(STEMS)}, and it is not the path of a config.json")
    print(json.dumps(computed(step), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
