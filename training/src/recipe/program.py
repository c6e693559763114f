"""How a training program begins and ends.

An entrypoint hands over its train(run), which is the life of one rank. Exit codes of a rank: 0 trained to the end; 1 an
error while training, or another strategy than the promised one; 2 refused (wrong arguments, data, memory).
"""

import contextlib
import importlib.metadata
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NoReturn

import binding
import gpus
from imports import large_imports

from recipe import arguments
from recipe.rank import LOCAL_RANK, SAVES_AT_SIGTERM, STOP, WORLD, RankFacts, one_line, open_facts, raised, refused, say
from recipe.strategy import Expected

STARTED_S = time.perf_counter()
# The oldest that the recipe works with; in a container they are the image's. Asked before they are imported: another
# transformers ends in an ImportError that says nothing of versions. Older torch sums gradients instead of averaging
# them (2.7, 2.8) or reports a wrong norm (2.9); the recipe overrides parts of transformers' Trainer.
LEAST = {"torch": (2, 10), "transformers": (5, 23), "accelerate": (1, 12)}
# transformers imports them for data sets of its own kind, for losses of images, and for quantised weights
UNUSED = ("datasets", "scipy", "torchao")


def main(
    train: Callable[[Any], int], doc: str | None, expected: Expected, *, expected_hsdp: Expected | None = None
) -> NoReturn:
    """Call train(run) as `expected`, or as `expected_hsdp` when --hsdp is given; then exit. doc: what --help prints."""
    args = arguments.parse(doc or "", takes_hsdp=expected_hsdp is not None, sharded=expected.sharded)
    if args.hsdp and expected_hsdp is not None:
        expected = expected_hsdp
    if args.check:
        sys.exit(0)
    save_at_sigterm(args.run_dir / STOP)
    facts = open_facts(args.run_dir)
    if (old := lacking()) is not None:
        refused(facts, old)
        sys.exit(2)
    try:
        place(facts)  # before torch makes threads, which inherit it
        with large_imports(UNUSED):  # torch and transformers take seconds, and more over a shared filesystem
            from recipe import workload

        # @record makes the return type optional
        code = int(workload.run_rank(train, workload.Run(args, expected, facts, STARTED_S)))  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001  # whatever ended this rank is recorded
        message = one_line(f"{type(error).__name__}: {error}")
        say(f"raised {message}", stream=sys.stderr)
        # a disk that is full was the reason, perhaps; torchrun's error file says it too
        with contextlib.suppress(OSError):
            raised(facts, "raised", message)
        # otherwise torchrun prints what is in there
        if not Path(os.environ.get("TORCHELASTIC_ERROR_FILE", "")).is_file():
            traceback.print_exc()
        if hasattr(error, "wait_for_others"):  # trajectory.NotFinite, which cannot be imported where torch cannot
            error.wait_for_others()
        code = 1
    if code == 0:
        sys.exit(0)
    # Not exit(): a gloo thread whose peers are gone can turn it into SIGABRT, which reads like a crash. And torchrun
    # ends a rank that takes long to shut down as soon as another rank has ended, which hides its own exit code.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def save_at_sigterm(stop_file: Path) -> None:
    """Ask all ranks for a checkpoint when Slurm sends SIGTERM. Alone, torchrun ends ranks that lost a peer with it."""
    if WORLD == 1 or SAVES_AT_SIGTERM in os.environ:
        own = os.getpid()  # processes of the loader inherit it
        signal.signal(signal.SIGTERM, lambda *_: stop_file.touch() if os.getpid() == own else os._exit(143))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # launcher.py ends ranks with it, and nohup had it ignored


def lacking() -> str | None:
    """Say in one line what is older than it has to be; None: nothing is."""
    wrong = []
    for name, least in LEAST.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "none"
        if tuple(map(int, re.findall(r"\d+", installed)[:2])) < least:
            wrong.append(f"{name} {'.'.join(map(str, least))} or newer, observed {installed}")
    if not wrong:
        return None
    return f"expected {'; '.join(wrong)}: run `make venv`, or install them in the image"


def place(facts: RankFacts, numa: Path = binding.NUMA) -> None:
    """Bind this rank to the CPUs at the NUMA node of its GPU, and record where they are. Call it while this process has
    one thread: later ones inherit the CPUs. What cannot be read or set is recorded, and training goes on.

    Under torchrun a rank starts with all CPUs that the job has on its node. Not `torchrun --numa-binding`: torch 2.13
    raises where the command numactl is missing. A rank that it bound has CPUs at one node only, and is left as it is.
    """
    # else CUDA may give the rank another GPU than is read here
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        gpu, nodes = gpu_of_rank(), binding.numa_nodes(numa)
        near, why = choose(os.sched_getaffinity(0), nodes, binding.node_of(gpu, nodes)[0])
        if near is not None:
            try:
                os.sched_setaffinity(0, near)
            except OSError as error:
                near, why = None, f"the kernel refused: {error.strerror}"
        facts.saw("train.rank.numa_bound", near is not None, "bool", remark=why)
        binding.near_gpu(facts, gpu, numa, "train.cpu.near_gpu")
    except OSError as error:
        facts.unknown("train.cpu.near_gpu", "share", f"CPUs and GPUs of this node cannot be read: {error}")


def choose(allowed: Set[int], nodes: Mapping[str, Set[int]], at: str | None) -> tuple[Set[int] | None, str]:
    """Return (the CPUs to bind to, or None to leave it, and why). nodes: NUMA node -> its CPUs; at: the GPU's node."""
    if at is None:
        return None, "the NUMA node of the GPU is not known"
    spanned = [node for node, cpus in nodes.items() if allowed & cpus]
    if len(spanned) < 2:
        return None, f"the CPUs lie at one NUMA node: {', '.join(spanned) or 'unknown'}"
    near = allowed & nodes[at]
    if not near:
        return None, f"no CPU of the rank lies at NUMA node {at} of its GPU"
    return near, f"{len(near)} of {len(allowed)} CPUs lie at NUMA node {at} of its GPU"


def gpu_of_rank(local_rank: int = LOCAL_RANK) -> str | None:
    """Return the GPU that CUDA gives to this rank, without CUDA: by UUID; None when it is not known.

    It counts as CUDA does among the entries of CUDA_VISIBLE_DEVICES, and among all GPUs that can be opened without it.
    """
    allowed: list[str] = gpus.openable()[0]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [str(index) for index in range(len(allowed))] if visible is None else visible.split(",")
    entry = entries[local_rank].strip() if local_rank < len(entries) else ""
    if entry.isdecimal():
        return allowed[int(entry)] if int(entry) < len(allowed) else None
    return entry if entry in allowed else None
