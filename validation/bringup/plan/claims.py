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


@dataclass(frozen=True, kw_only=True)
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
    Claim(
        id="gpus-present",
        question=1,
        says="every configured GPU is there and answers",
        real=("gpu",),
    ),
    Claim(
        id="gpus-alike",
        question=1,
        says="GPUs and their drivers are the same on all nodes, and no GPU is divided",
        real=("gpu",),
    ),
    Claim(
        id="gpus-bound",
        question=1,
        says="each task has GPUs of its own; together they are the allocation",
        real=("gpu",),
    ),
    Claim(
        id="gpus-isolated",
        question=1,
        says="a job cannot open another job's GPU",
        real=("gpu",),
        of_sharing=True,
    ),
    Claim(
        id="gpus-healthy",
        question=1,
        says="GPUs and kernel log report no fault (looked at once, before the load)",
        real=("gpu",),
    ),
    Claim(
        id="gpus-compute",
        question=1,
        says="every GPU computes correctly, and about as fast as its peers",
        real=("gpu",),
        shows=("smoke.compute.tflops",),
    ),
    Claim(
        id="gpus-hold",
        question=1,
        says="under a sustained load GPUs compute correctly and keep their speed",
        real=("gpu",),
        shows=("sweep.load.drift",),
    ),
    Claim(
        id="quiet-under-load",
        question=1,
        says="under load no GPU, no link and no memory counted an error",
        real=("gpu",),
    ),
    Claim(
        id="nodes-ran",
        question=2,
        says="every requested node ran a job through the scheduler",
    ),
    Claim(
        id="jobs-confined",
        question=2,
        says="cores and memory are confined to what was granted",
        of_sharing=True,
    ),
    Claim(
        id="jobs-kept",
        question=2,
        says="exit codes, arrays, dependencies, time limits and requeues work",
    ),
    Claim(
        id="nodes-alike",
        question=2,
        says="nodes that should be equal are equal",
        least_nodes=2,
    ),
    Claim(
        id="slurm-fit",
        question=2,
        says="Slurm can launch MPI programs",
    ),
    Claim(
        id="own-checks",
        question=2,
        says="the site's own checks passed",
        optional=True,
    ),
    Claim(
        id="one-folder",
        question=3,
        says="the results folder is one folder on all nodes",
        least_nodes=2,
    ),
    Claim(
        id="coherent",
        question=3,
        says="the other nodes see what one node writes, renames, appends, removes or locks",
        least_nodes=2,
    ),
    Claim(
        id="storage-fast",
        question=3,
        says="it is fast enough, also for all nodes at once",
        least_nodes=2,
        shows=("smoke.storage.write_together",),
    ),
    Claim(
        id="one-communicator",
        question=4,
        says="one communicator spans all ranks and computes correctly",
        real=("nccl",),
    ),
    Claim(
        id="inside-every-node",
        question=4,
        says="inside every node collectives are correct, and about as fast as inside the others",
        real=("nccl",),
    ),
    Claim(
        id="speed-inside",
        question=4,
        says="inside a node collectives go over NVLink and reach the expected bandwidth",
        most_nodes=1,
        real=("nccl",),
        shows=("nccl.all_reduce.busbw",),
    ),
    Claim(
        id="over-the-fabric",
        question=4,
        says="between nodes the bytes go over the fabric, without a copy in host memory",
        least_nodes=2,
        real=("nccl", "fabric"),
        shows=("nccl.transport", "nccl.gdr"),
    ),
    Claim(
        id="speed-between",
        question=4,
        says="between nodes collectives reach the expected bandwidth and latency",
        least_nodes=2,
        real=("nccl", "fabric"),
        shows=("nccl.all_reduce.busbw",),
    ),
    Claim(
        id="no-slow-link",
        question=4,
        says="no node and no link is slower than its peers",
        least_nodes=2,
        real=("nccl", "fabric"),
        shows=("nccl.pair.slowest",),
    ),
    Claim(
        id="same-bits",
        question=5,
        says="a seeded training step gives the same bits on all devices of one kind",
        real=("gpu",),
    ),
    Claim(
        id="trains-alone",
        question=5,
        says="one GPU trains",
        phases=_SINGLE,
        real=("gpu",),
    ),
    Claim(
        id="trains-on-a-node",
        question=5,
        says="DDP and FSDP really run as such on one node, and match the losses of one GPU",
        phases=_ONE_NODE,
        real=("gpu",),
    ),
    Claim(
        id="trains-across",
        question=5,
        says="DDP, FSDP and HSDP really run as such across nodes, and match the losses of one GPU",
        phases=_ACROSS,
        least_nodes=2,
        real=("gpu",),
    ),
    Claim(
        id="checkpoints",
        question=5,
        says="a checkpoint is complete and resumes",
        real=("gpu",),
    ),
    Claim(
        id="scales",
        question=5,
        says="tokens/s per GPU stay near those of one GPU",
        real=("gpu",),
        shows=("train.scaling",),
    ),
    Claim(
        id="observable",
        question=6,
        says="every run's and every rank's end is recorded, and the evidence is complete",
    ),
    Claim(
        id="slurm-notices",
        question=6,
        says="Slurm notices dead nodes, and nothing outlives its job",
    ),
    Claim(
        id="diagnosable",
        question=6,
        says="faults made here were found, on the right subject, with the right cause",
        drills=True,
    ),
)
