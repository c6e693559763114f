"""The process group: start it with a timeout that holds, count its members, end it cleanly.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; without them a program is the only rank, and there is
no group: every function here does nothing or returns a list of one. The backend is nccl with a GPU, else gloo.
"""

import contextlib
import datetime
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import arrival
import cuda_start
import exchange
import torch
import torch.distributed as dist
from pydantic import TypeAdapter
from pydantic_core import to_json

from recipe.rank import LOCAL_RANK, RANK, WORLD, node_name

T = TypeVar("T")

LOCAL_WORLD = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", LOCAL_RANK) if CUDA else torch.device("cpu")


def record_flight(raw: Path) -> None:
    """Have torch keep this rank's last collectives (nccl, before start()), for raw/flight when one times out. One rank
    per node writes NCCL's log, which names the transport, to raw/nccl-<nodes>, unless NCCL_DEBUG was set by hand."""
    kept = {}
    if CUDA:
        (raw / "flight").mkdir(exist_ok=True)
        kept = {  # names since torch 2.9: newer ones warn on every rank about the older names (versions.LEAST is 2.10)
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_FR_DUMP_TEMP_FILE": f"{raw}/flight/rank_",
        }
        if LOCAL_RANK == 0 and WORLD > 1 and os.environ.get("NCCL_DEBUG", "WARN") == "WARN":
            logs = raw / f"nccl-{WORLD // LOCAL_WORLD}"
            logs.mkdir(exist_ok=True)
            os.environ["NCCL_DEBUG"] = "INFO"
            kept |= {"NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH", "NCCL_DEBUG_FILE": f"{logs}/nccl.%h.%p.log"}
    for name, value in kept.items():
        os.environ.setdefault(name, value)


def start(patience_s: int) -> None:
    """Wait until all ranks are there, and join the group. Raises arrival.Late, and arrival.Shared on all ranks alike.

    Call it before TrainingArguments exist, which drop ddp_timeout with use_cpu=True: the timeout would be 30 minutes.
    """
    if CUDA:
        torch.cuda.set_device(DEVICE)
    if WORLD == 1:
        return
    listens = RANK == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun serves the store
    gpu = cuda_start.uuid(torch, DEVICE) if CUDA else None
    store = arrival.meet(dist, RANK, WORLD, LOCAL_WORLD, node_name(), listens, patience_s, gpu)
    dist.init_process_group(
        "nccl" if CUDA else "gloo",
        store=store,
        rank=RANK,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=patience_s),
        device_id=DEVICE if CUDA else None,
    )


def collectives_begun() -> int:
    """Count on all groups of this rank. Who has begun fewer than the others is the one that they wait for."""
    if not dist.is_initialized():
        return 0
    return sum(group._get_sequence_number_for_group() for group in list(dist.distributed_c10d._world.pg_map))  # type: ignore[attr-defined]


def backend() -> str:
    """Name what carries this rank's tensors: gloo, nccl, or none with one rank."""
    return dist.get_backend() if dist.is_initialized() else "none"


def set_timeouts(timeout_s: int) -> None:
    """Give every group the same timeout: the sub-groups of a device mesh start with 10 (nccl) or 30 (gloo) minutes. And
    the store, where ranks meet to make such a group."""
    if dist.is_initialized():
        dist.distributed_c10d._get_default_store().set_timeout(datetime.timedelta(seconds=timeout_s))
        for group in list(dist.distributed_c10d._world.pg_map):  # torch has no public way
            dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=timeout_s), group)


def meet_at_the_end(seconds: int) -> None:
    """Wait until all ranks have come here, or so long. No collective: a rank may be in another one, or gone."""
    if not dist.is_initialized():
        return
    store = dist.distributed_c10d._get_default_store()
    with contextlib.suppress(dist.DistError):  # it was too long; or the rank that has the store has left, as the last
        if store.add("ranks at the end", 1) == WORLD:
            store.set("all at the end", "")
        store.wait(["all at the end"], datetime.timedelta(seconds=seconds))


@contextlib.contextmanager
def patience(seconds: int, then_s: int) -> Iterator[None]:
    """Let ranks wait `seconds` for one another inside: one rank of a node may work for the others. Then `then_s`."""
    set_timeouts(seconds)
    try:
        yield
    finally:
        set_timeouts(then_s)


def wait_for_device() -> None:
    """Wait until this rank's GPU has done all that it was given. A CPU has."""
    if CUDA:
        torch.cuda.synchronize()


def count_members() -> int:
    """Count ranks that answer in an all_reduce. The first collective: a broken transport shows here, not in step 1."""
    if not dist.is_initialized():
        return 1
    members = torch.ones(1, device=DEVICE)
    dist.all_reduce(members)
    return int(members.item())


def has_bf16() -> bool:
    """Say whether the GPU of every rank computes in bfloat16: torch emulates it before Ampere. A collective."""
    return all(gather(CUDA and torch.cuda.is_bf16_supported(including_emulation=False)))


def gather(value: T, kind: Any = Any) -> list[T]:
    """Return one value per rank, index = rank, on every rank. For small values, outside timed windows. They travel as
    JSON; `kind` is their type, needed where JSON has no such: a tuple, a path, a dataclass, a key that is no text."""
    if not dist.is_initialized():
        return [value]
    read = TypeAdapter(kind).validate_json
    return [read(theirs) for theirs in exchange.gather(torch, dist, DEVICE, _json(value))]


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="constants")


def close() -> None:
    if dist.is_initialized():
        dist.barrier()
        time.sleep(0.3)  # a gloo thread that drops its last tensor while the interpreter shuts down aborts the process
        dist.destroy_process_group()
