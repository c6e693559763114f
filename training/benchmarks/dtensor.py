"""What fully_shard() makes of a parameter, and why the optimizer comes after it. On a CPU:

torchrun --standalone --nproc-per-node 4 training/benchmarks/dtensor.py
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    block = torch.nn.Linear(2048, 2048, bias=False)
    early = torch.optim.AdamW(block.parameters())
    show("before", block.weight)
    fully_shard(block, mesh=mesh)
    show("after", block.weight)
    late = torch.optim.AdamW(block.parameters())
    block(torch.ones(1, 2048)).sum().backward()  # all-gather, product; product, reduce-scatter
    show("its gradient", block.weight.grad)
    late.step()
    show("made after: first moment", late.state[block.weight]["exp_avg"])
    early.step()
    show(f"made before: {len(early.state)} states", early.param_groups[0]["params"][0])
    show("full_tensor()", block.weight.full_tensor())  # by all ranks: an all-gather
    dist.barrier()
    time.sleep(0.3)  # see recipe/group.py
    dist.destroy_process_group()


def show(what: str, tensor: Any) -> None:
    """One line, of rank 0."""
    whole = f"{type(tensor).__name__:9} {list(tensor.shape)}"
    part = f"{tensor.placements}, here {list(tensor.to_local().shape)}" if hasattr(tensor, "to_local") else ""
    if dist.get_rank() == 0:
        print(f"{what:25} {whole} {part}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
