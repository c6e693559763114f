"""The six questions as claims, one sentence each, and the real hardware that their evidence needs. Data only.

The gates name the claims that they prove (`claims`, `bears_on`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bringup.plan.phases import PHASES

QUESTIONS = {
    1: "Are GPUs visible, correctly bound, and isolated per task?",
    2: "Does Slurm schedule GPUs, CPUs and memory correctly?",
    3: "Is the shared filesystem truly shared across nodes?",
    4: "Does NCCL really use the interconnect, at full speed?",
    5: "Can PyTorch train on 1 GPU, on one node, and across nodes, and how well does it scale?",
    6: "Are failure modes observable and diagnosable?",
}
QUESTION_NAMES = {  # where there is room for five words
    1: "GPUs present, bound, isolated",
    2: "Slurm schedules as requested",
    3: "The filesystem is shared",
    4: "NCCL uses the interconnect",
    5: "Training works and scales",
    6: "Failures are noticed",
}

Real = Literal["gpu", "nccl", "fabric"]
"""Hardware or software that must be real: not a placeholder for a GPU, gloo for NCCL or TCP for a fabric."""
REAL_NAMES: dict[Real, str] = {"gpu": "GPU", "nccl": "NCCL", "fabric": "fabric"}


@dataclass(frozen=True)
class Claim:
    id: str
    question: int
    says: str
    phases: tuple[str, ...] = ()  # only verdicts of these phases; empty: of all phases
    least_nodes: int = 1  # of the run, and of a scale: on fewer nodes the claim is not asked
    most_nodes: int | None = None  # of a scale
    real: tuple[Real, ...] = ()
    shows: tuple[str, ...] = ()  # gates whose values are the answer's numbers
    drills: bool = False  # proved by the drills of this report
    optional: bool = False  # where it is not asked, its question is answered all the same
    of_sharing: bool = False  # it matters where two jobs run on one node


_TRAINING = tuple(phase.stem for phase in PHASES.values() if phase.is_training)
_SINGLE = tuple(stem for stem in _TRAINING if PHASES[stem].one_gpu)
_ACROSS = tuple(stem for stem in _TRAINING if PHASES[stem].min_nodes > 1)
_ONE_NODE = tuple(stem for stem in _TRAINING if stem not in (*_SINGLE, *_ACROSS))
CLAIMS: tuple[Claim, ...] = (
    Claim("gpus-present", 1, "every configured GPU is there and answers", real=("gpu",)),
    Claim("gpus-alike", 1, "GPUs and their drivers are the same on all nodes, and no GPU is divided", real=("gpu",)),
    Claim("gpus-bound", 1, "each task has GPUs of its own; together they are the allocation", real=("gpu",)),
    Claim("gpus-isolated", 1, "a job cannot open another job's GPU", real=("gpu",), of_sharing=True),
    Claim("gpus-healthy", 1, "GPUs and kernel log report no fault (looked at once, before the load)", real=("gpu",)),
    Claim("gpus-compute", 1, "every GPU computes correctly, and about as fast as its peers",
        real=("gpu",), shows=("smoke.compute.tflops",)),
    Claim("gpus-hold", 1, "under a sustained load GPUs compute correctly and keep their speed",
        real=("gpu",), shows=("sweep.load.drift",)),
    Claim("quiet-under-load", 1, "under load no GPU, no link and no memory counted an error", real=("gpu",)),
    Claim("nodes-ran", 2, "every requested node ran a job through the scheduler"),
    Claim("jobs-confined", 2, "cores and memory are confined to what was granted", of_sharing=True),
    Claim("jobs-kept", 2, "exit codes, arrays, dependencies, time limits and requeues work"),
    Claim("nodes-alike", 2, "nodes that should be equal are equal", least_nodes=2),
    Claim("slurm-fit", 2, "Slurm can launch MPI programs"),
    Claim("own-checks", 2, "the site's own checks passed", optional=True),
    Claim("one-folder", 3, "the results folder is one folder on all nodes", least_nodes=2),
    Claim("coherent", 3, "the other nodes see what one node writes, renames, appends, removes or locks", least_nodes=2),
    Claim("storage-fast", 3, "it is fast enough, also for all nodes at once",
        least_nodes=2, shows=("smoke.storage.write_together",)),
    Claim("one-communicator", 4, "one communicator spans all ranks and computes correctly", real=("nccl",)),
    Claim("inside-every-node", 4, "inside every node collectives are correct, and about as fast as inside the others",
        real=("nccl",)),
    Claim("speed-inside", 4, "inside a node collectives go over NVLink and reach the expected bandwidth",
        most_nodes=1, real=("nccl",), shows=("nccl.all_reduce.busbw",)),
    Claim("over-the-fabric", 4, "between nodes the bytes go over the fabric, without a copy in host memory",
        least_nodes=2, real=("nccl", "fabric"), shows=("nccl.transport", "nccl.gdr")),
    Claim("speed-between", 4, "between nodes collectives reach the expected bandwidth and latency",
        least_nodes=2, real=("nccl", "fabric"), shows=("nccl.all_reduce.busbw",)),
    Claim("no-slow-link", 4, "no node and no link is slower than its peers",
        least_nodes=2, real=("nccl", "fabric"), shows=("nccl.pair.slowest",)),
    Claim("same-bits", 5, "a seeded training step gives the same bits on all devices of one kind", real=("gpu",)),
    Claim("trains-alone", 5, "one GPU trains", phases=_SINGLE, real=("gpu",)),
    Claim("trains-on-a-node", 5, "DDP and FSDP really run as such on one node, and match the losses of one GPU",
        phases=_ONE_NODE, real=("gpu",)),
    Claim("trains-across", 5, "DDP, FSDP and HSDP really run as such across nodes, and match the losses of one GPU",
        phases=_ACROSS, least_nodes=2, real=("gpu",)),
    Claim("checkpoints", 5, "a checkpoint is complete and resumes", real=("gpu",)),
    Claim("scales", 5, "tokens/s per GPU stay near those of one GPU", real=("gpu",), shows=("train.scaling",)),
    Claim("observable", 6, "every run's and every rank's end is recorded, and the evidence is complete"),
    Claim("slurm-notices", 6, "Slurm notices dead nodes, and nothing outlives its job"),
    Claim("diagnosable", 6, "faults made here were found, in the right place, with the right cause", drills=True),
)  # fmt: skip
