"""What the stand-in for CUDA does, against what torch documents. test_cuda_stand_in.py runs each in a process of its
own, in which torch has CUDA; those that begin with `ranks_` in two, which are the ranks of a process group named nccl.

Started as a program it reads NAME RANKS from stdin, a check a line, and answers with a line: nothing, or what went
wrong. Its processes are forked, so that torch is imported once.
"""

import contextlib
import datetime
import io
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import compute
import torch
import torch.distributed as dist
from facts import Facts

STATE = Path(os.environ.get("BRINGUP_SIMULATED_STATE", "/nonexistent"))
MIB = 2**20
GPU = torch.device("cuda", 0)


@contextlib.contextmanager
def refused(*words: str, kind: type[Exception] = RuntimeError) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError(f"nothing was refused; expected {words}")


def a_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))


def change(*lines: str) -> None:
    """Of the node's state, as `cluster gpu` makes it: in one step."""
    part = STATE.with_suffix(".part")
    part.write_text(STATE.read_text() + "".join(f"{line}\n" for line in lines))
    part.replace(STATE)
    time.sleep(0.05)  # longer than the native part goes without looking


# --- devices and tensors


def results_are_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(33, 65, dtype=torch.bfloat16), torch.randn(65, 17, dtype=torch.bfloat16)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)
    view = torch.zeros(4, 4, device="cuda")
    view.t()[1] += 1
    assert view[:, 1].sum().item() == 4 and view.sum().item() == 4
    out = torch.empty(0, device="cuda")
    torch.arange(6, device="cuda", dtype=torch.float32, out=out)
    assert out.device == GPU and out.tolist() == [0, 1, 2, 3, 4, 5]
    storage = out.untyped_storage()
    storage.resize_(0)
    storage.resize_(8)
    assert storage.nbytes() == 8 and storage.device == GPU


def training_is_that_of_the_cpu() -> None:
    losses = {}
    for kind in ("cpu", "cuda"):
        torch.manual_seed(3)
        model = a_model().to(kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        data = torch.randn(32, 8, generator=torch.Generator().manual_seed(1)).to(kind)
        for _ in range(3):
            loss = model(data).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses[kind] = loss.item()
    assert losses["cpu"] == losses["cuda"] > 0
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model(data).dtype == torch.bfloat16


# --- streams, events and waits


def an_event_passes_after_it_was_recorded() -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with refused("must be recorded before"):
        begin.elapsed_time(end)
    begin.record()
    torch.ones(300, 300, device="cuda") @ torch.ones(300, 300, device="cuda")
    end.record()
    assert not end.query()
    with refused("must be completed before"):
        begin.elapsed_time(end)
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) > 0
    with refused("enable_timing=True"):
        begin.elapsed_time(torch.cuda.Event())


def a_copy_that_nobody_waited_for_has_not_arrived() -> None:
    def later() -> torch.Tensor:
        host = torch.empty(4, pin_memory=True)
        assert host.is_pinned() and not torch.empty(4).is_pinned()
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        assert host.isnan().all()
        return host

    def recorded() -> None:
        event = torch.cuda.Event()
        event.record()
        event.synchronize()

    for wait in (recorded, torch.cuda.synchronize, torch.ones(1, device="cuda").item):
        host = later()
        wait()
        assert host.tolist() == [1, 1, 1, 1]
    assert torch.empty(4, pin_memory=True).copy_(torch.ones(4, device="cuda")).tolist() == [1, 1, 1, 1]
    assert torch.empty(4).copy_(torch.ones(4, device="cuda"), non_blocking=True).tolist() == [1, 1, 1, 1]


def a_hidden_wait_is_an_error_where_that_was_asked_for() -> None:
    on, host = torch.ones(4, device="cuda"), torch.empty(4, pin_memory=True)
    event = torch.cuda.Event()
    torch.cuda.set_sync_debug_mode("error")
    assert torch.cuda.get_sync_debug_mode() == 2
    waits = (on.sum().item, on.cpu, on.nonzero, torch.cuda.current_stream().synchronize)
    for wait in (*waits, lambda: on[on > 0], lambda: torch.ones(2).cuda(), lambda: bool(on.any())):
        with refused("called a synchronizing CUDA operation"):
            wait()
    on.copy_(host, non_blocking=True)
    host.copy_(on, non_blocking=True)
    event.record()
    event.synchronize()
    torch.cuda.synchronize()
    (on * 2).clamp_(max=3).add_(1)


# --- memory


def memory_is_counted() -> None:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    large = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 8 * MIB <= torch.cuda.memory_reserved()
    free, total = torch.cuda.mem_get_info()
    assert total == torch.cuda.get_device_properties(0).total_memory and total - free >= 8 * MIB
    del large
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() - before == 8 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 8 * MIB and torch.cuda.memory_stats()["num_ooms"] == 0
    assert torch.empty(2, device="cuda").tolist() != [0, 0]


def memory_has_an_end() -> None:
    with refused("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0", kind=torch.OutOfMemoryError):
        torch.empty(4096 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    torch.cuda.set_per_process_memory_fraction(0.01)
    with refused("CUDA out of memory", kind=torch.OutOfMemoryError):
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    total = torch.cuda.mem_get_info()[1]
    change("gpu0.memory_used=77000000000")  # of 85.5 GB: 0.9
    assert torch.cuda.mem_get_info()[0] < total / 8 and torch.cuda.mem_get_info(1)[0] > total / 2
    with refused("CUDA out of memory", kind=torch.OutOfMemoryError):
        torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")


# --- a GPU that fails


def a_lost_gpu_fails_in_the_middle() -> None:
    on = torch.ones(4, device="cuda")
    change("gpu0.lost=1")
    for use in (lambda: on + 1, on.cpu, torch.cuda.synchronize, lambda: torch.cuda.mem_get_info(0)):
        with refused("CUDA error: unspecified launch failure", kind=torch.AcceleratorError):
            use()
    assert torch.ones(2, device="cuda:1").sum().item() == 2


def a_gpu_that_hangs_keeps_those_who_wait() -> None:
    event = torch.cuda.Event()
    change("gpu0.hang=86400")
    event.record()
    waits = threading.Thread(target=torch.cuda.synchronize, daemon=True)
    waits.start()
    waits.join(0.3)
    assert waits.is_alive() and not event.query()
    torch.cuda.synchronize(1)
    change("gpu0.hang=0")
    waits.join(10)
    assert not waits.is_alive() and event.query()


def a_sick_gpu_computes_wrongly_or_slowly() -> None:
    factor, host = torch.ones(300, 300, device="cuda"), torch.zeros(64)
    change("gpu0.cuda.product=wrong", "gpu0.cuda.copy=wrong")
    assert int((factor @ factor != 300).sum()) == 1
    assert int((host.cuda().cpu() != host).sum()) == 1
    change("gpu0.cuda.product=right", "gpu0.cuda.copy=right")
    assert int((factor @ factor != 300).sum()) == 0

    def seconds() -> float:
        begun = time.perf_counter()
        for _ in range(20):
            factor @ factor
        return time.perf_counter() - begun

    usual, slow = [], []
    for _ in range(8):  # in turn, and the best of each: a machine that is busy slows both
        change("gpu0.throttle=idle", "gpu0.cuda.slow=1")
        usual.append(seconds())
        change("gpu0.throttle=hw_thermal", "gpu0.cuda.slow=20")
        slow.append(seconds())
    assert min(slow) > 5 * min(usual), (usual, slow)


def copies_are_compared_with_what_was_sent() -> None:
    """The probe's own: what a GPU spoils on the way to it is counted, and blamed on no copy that carried it on."""
    compute.COPY_BYTES = 1000
    devices, who = [torch.device("cuda", index) for index in range(2)], ["GPU-a", "GPU-b"]
    into = "wrong bytes copied to {} and back"
    between = [("wrong bytes copied from GPU-a to GPU-b", 0), ("wrong bytes copied from GPU-b to GPU-a", 0)]
    for change_of, wrong in ((), (0, 0)), (("gpu1.cuda.copy=wrong",), (0, 1)):
        change(*change_of)
        expected = [(into.format(each), count) for each, count in zip(who, wrong, strict=True)]
        assert compute.copies(torch, devices, who, Facts("compute", io.StringIO())) == expected + between
    change("gpu1.cuda.copy=right")


# --- two ranks


def ranks_get_what_each_collective_promises() -> None:
    rank = dist.get_rank()
    mine = torch.full((4,), float(rank + 1), device="cuda")
    for op, result in ((dist.ReduceOp.SUM, 3), (dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.MAX, 2)):
        reduced = mine.clone()
        dist.all_reduce(reduced, op=op)
        assert reduced.tolist() == [result] * 4, op
    gathered = torch.empty(8, device="cuda")
    dist.all_gather_single(gathered, mine)
    assert gathered.tolist() == [1] * 4 + [2] * 4
    parts = [torch.empty(4, device="cuda") for _ in range(2)]
    dist.all_gather(parts, mine)
    assert [part[0].item() for part in parts] == [1, 2]
    part = torch.empty(2, device="cuda")
    dist.reduce_scatter_single(part, torch.arange(4.0, device="cuda"), op=dist.ReduceOp.AVG)
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    exchanged = torch.empty(4, device="cuda")
    dist.all_to_all_single(exchanged, mine)
    assert exchanged.tolist() == [1, 1, 2, 2]
    dist.broadcast(mine, src=1)
    assert mine.tolist() == [2] * 4
    received = torch.empty(4, device="cuda")
    sent = torch.full((4,), float(rank), device="cuda")
    both = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert received.tolist() == [1 - rank] * 4
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    dist.barrier()
    assert dist.get_backend() == "nccl" and str(reduced.device) == f"cuda:{rank}"
    with refused("No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1))


# --- the program


def _meet(rank: int, ranks: int, file: Path) -> None:
    torch.cuda.set_device(rank)
    how = {"timeout": datetime.timedelta(seconds=60), "device_id": torch.device("cuda", rank)}
    dist.init_process_group("nccl", store=dist.FileStore(str(file), ranks), rank=rank, world_size=ranks, **how)


def _run(name: str, ranks: int, folder: Path) -> str:
    """In forked processes; what went wrong."""
    healthy = STATE.read_text()
    children = []
    for rank in range(ranks):
        output = folder / f"{name}.{rank}"
        child = os.fork()
        if child == 0:
            words = ""
            try:
                if name.startswith("ranks_"):
                    _meet(rank, ranks, folder / f"{name}.store")
                globals()[name]()
            except BaseException:  # noqa: BLE001  # whatever it is, the test shows it
                words = traceback.format_exc()
            output.write_text(words)
            os._exit(0)  # without the destructors of gloo's threads
        children.append((child, output))
    wrong = []
    for child, output in children:
        status = os.waitpid(child, 0)[1]
        wrong.append(output.read_text() if output.exists() else f"the process ended with status {status}")
    STATE.write_text(healthy)
    return "".join(wrong)


def main() -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            name, ranks = line.split()
            print(json.dumps(_run(name, int(ranks), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
