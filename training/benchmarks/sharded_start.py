"""How much host memory one rank needs to start a sharded training: the model of one rank of N, built on this machine.

torch's "fake" process group lets this process be rank 0 of N. The model is made, sharded and filled by the code of a
real run (weights.py, and accelerate's fsdp2_prepare_model). The peak is what the kernel counted (ru_maxrss). On a GPU
the same bytes are device memory, except for `process`.

With --blocks only so many blocks are drawn, and the shards of the others are zeros: the memory is the same, and a CPU
does not have to draw billions of random numbers.

    python training/benchmarks/sharded_start.py --model llama3-70b --ranks 64 --blocks 2
"""

import argparse
import functools
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "src"))

import predict
import torch
import torch.distributed as dist
from recipe import GIB, weights
from torch.testing._internal.distributed.fake_pg import FakeStore


def started(model_name: str, ranks: int, blocks: int | None) -> dict[str, Any]:
    """GiB: of the process before the model, of the shard, of the largest part, and the peak."""
    path = predict.MODELS / f"{model_name}.json"
    # as much of Args as weights.py reads
    args: Any = SimpleNamespace(model_config=path, model=model_name, attention="sdpa", seed=42)
    weights.draw = functools.partial(draw_some, weights.draw, blocks)
    step = predict.Step(model_name, "fsdp", ranks, 1, sequence_length=1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        begun, process = time.perf_counter(), peak_gib()
        model = weights.without_memory(args)
        parameters = sum(p.numel() for p in model.parameters())
        model = predict.sharded(step, model, predict.mesh_of(step))
        weights.fill(model, args)
        whole = [
            sum(p.numel() for m in part for p in m.parameters(recurse=False)) for part in weights.parts(model).values()
        ]
        shard = sum(p.to_local().numel() * p.element_size() for p in model.parameters())
        return {
            "model": model_name,
            "parameters": parameters,
            "ranks": ranks,
            "blocks_drawn": blocks,
            "process_gib": round(process, 2),
            "shard_gib": round(shard / GIB, 2),
            "largest_part_gib": round(4 * max(whole) / GIB, 2),
            "peak_gib": round(peak_gib(), 2),
            "whole_gib": round(4 * parameters / GIB, 2),
            "seconds": round(time.perf_counter() - begun, 1),
            "torch": torch.__version__,
        }
    finally:
        dist.destroy_process_group()


def draw_some(draw: Callable[..., float], blocks: int | None, model: Any, seed: int) -> float:
    """weights.draw, of everything outside of the blocks and of the first `blocks`; all of them with None."""
    if blocks is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.to_local().zero_()
        first = dict(itertools.islice(weights.parts(model).items(), 1 + blocks))
        weights.parts = lambda model: first
    return draw(model, seed)


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama3-70b", choices=predict.STEMS)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--blocks", type=int, help="blocks whose weights are drawn (default: all)")
    arguments = parser.parse_args()
    print(json.dumps(started(arguments.model, arguments.ranks, arguments.blocks), indent=1))


if __name__ == "__main__":
    main()
