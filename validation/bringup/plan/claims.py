"""The six questions as claims, one sentence each: the gates that prove a claim, and what its evidence has to be of. Data only."""

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

Real = Literal["gpu", "nccl", "fabric"]
"""What must not be a stand-in: a placeholder for a GPU, gloo for NCCL, TCP for a fabric."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    id: str
    question: int
    says: str
    gates: tuple[str, ...]  # a claim of which none was judged is not asked
    also: tuple[str, ...] = ()  # a miss here speaks against the claim; a pass alone does not ask it
    phases: tuple[str, ...] = ()  # only verdicts of these phases; none: of all
    least_nodes: int = 1  # of the run, and of a scale: on fewer nodes the claim is not asked
    most_nodes: int | None = None  # of a scale
    real: tuple[Real, ...] = ()
    shows: tuple[str, ...] = ()  # gates whose values are the answer's numbers
    drills: bool = False  # proved by the drills of this report


_TRAINING = tuple(phase.stem for phase in PHASES.values() if phase.is_training)
_SINGLE = tuple(stem for stem in _TRAINING if PHASES[stem].one_gpu)
_ACROSS = tuple(stem for stem in _TRAINING if PHASES[stem].min_nodes > 1)
_ONE_NODE = tuple(stem for stem in _TRAINING if stem not in (*_SINGLE, *_ACROSS))
_RUNS = ("train.exit_code", "train.world_size", "train.strategy", "train.variant", "train.loss.fell")
_EQUAL = ("train.loss.agrees", "train.grad_norm.agrees", "train.samples.repeated", "train.replicas.difference")
_DEVICE = ("train.device", "train.device.fallback")
_MEMORY = ("train.memory.states", "train.memory.peak", "train.shard.size", "train.shard.inside_node")
_SPEED = (
    "nccl.all_reduce.busbw",
    "nccl.all_gather.busbw",
    "nccl.reduce_scatter.busbw",
    "nccl.all_to_all.busbw",
    "nccl.all_reduce.latency",
)
_CURVE = ("nccl.curve.dip", "nccl.curve.plateau")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="gpus-present",
        question=1,
        says="every configured GPU is there and answers",
        gates=("discovery.gpu.count", "discovery.gpu.answering"),
        also=("discovery.slurm.gres", "discovery.slurm.gres_types", "discovery.gpu.distinct"),
        real=("gpu",),
    ),
    Claim(
        id="gpus-alike",
        question=1,
        says="GPUs and their drivers are the same on all nodes, and no GPU is divided",
        gates=("discovery.gpu.driver", "discovery.gpu.model", "discovery.gpu.memory", "discovery.gpu.mig"),
        also=("discovery.gpu.persistence",),
        real=("gpu",),
    ),
    Claim(
        id="gpus-bound",
        question=1,
        says="each task has GPUs of its own; together they are the allocation",
        gates=("smoke.gpu.bound", "smoke.jobs.distinct_gpus", "nccl.devices"),
        also=("smoke.cpu.near_gpu",),
        real=("gpu",),
    ),
    Claim(
        id="gpus-isolated",
        question=1,
        says="a job cannot open another job's GPU",
        gates=("smoke.gpu.isolated", "smoke.jobs.refused_gpus"),
        also=("discovery.slurm.confines_devices", "discovery.slurm.task_plugin"),
        real=("gpu",),
    ),
    Claim(
        id="gpus-healthy",
        question=1,
        says="GPUs and kernel log report no fault (looked at once, before the load)",
        gates=(
            "discovery.gpu.ecc",
            "discovery.gpu.remap_pending",
            "discovery.gpu.remap_failed",
            "discovery.gpu.slowdown",
            "discovery.gpu.pcie",
        ),
        also=("discovery.kernel_log.xid", "discovery.kernel_log.nonfatal"),
        real=("gpu",),
    ),
    Claim(
        id="gpus-compute",
        question=1,
        says="every GPU computes rightly, and about as fast as its peers",
        gates=("smoke.compute.wrong_values", "smoke.compute.tflops"),
        also=(
            "smoke.compute.device",
            "smoke.compute.device.fallback",
            "smoke.compute.peers",
            "smoke.compute.gpu_peers",
            "smoke.compute.host_to_device",
            "smoke.compute.device_to_device",
        ),
        real=("gpu",),
        shows=("smoke.compute.tflops",),
    ),
    Claim(
        id="nodes-ran",
        question=2,
        says="every requested node ran a job through the scheduler",
        gates=("discovery.node.answered", "smoke.node.ran_tasks"),
        also=("discovery.node.state", "discovery.gpu.free", "smoke.controller", "smoke.queue.latency"),
    ),
    Claim(
        id="jobs-confined",
        question=2,
        says="cores and memory are confined to what was granted",
        gates=("smoke.cpu.confined", "smoke.memory.enforced"),
        also=("discovery.slurm.confines_cores", "discovery.slurm.confines_memory"),
    ),
    Claim(
        id="jobs-kept",
        question=2,
        says="exit codes, arrays, dependencies, time limits and requeues are kept",
        gates=(
            "smoke.exit_code",
            "smoke.bad_exit",
            "smoke.array",
            "smoke.dependency.waits",
            "smoke.dependency.never",
            "smoke.time_limit.warned",
            "smoke.requeue",
        ),
    ),
    Claim(
        id="nodes-alike",
        question=2,
        says="nodes that should be equal are equal",
        least_nodes=2,
        gates=(
            "discovery.node.distinct",
            "discovery.node.hostname",
            "discovery.kernel",
            "discovery.os",
            "discovery.python",
            "discovery.cpu.model",
            "discovery.cpu.topology",
            "discovery.cpu.count",
            "discovery.memory",
            "discovery.mount",
        ),
        also=(
            "discovery.library.libc",
            "discovery.library.libcuda",
            "discovery.library.libnccl",
            "discovery.library.libibverbs",
            "discovery.library.libmunge",
            "discovery.slurm.version",
        ),
    ),
    Claim(
        id="slurm-fit",
        question=2,
        says="Slurm can launch MPI programs",
        gates=("discovery.slurm.mpi_default",),
        also=("discovery.slurm.pmix",),
    ),
    Claim(
        id="one-folder",
        question=3,
        says="the results folder is one folder on all nodes",
        least_nodes=2,
        gates=("smoke.fs.reads_submit_host", "smoke.fs.seen_by_submit_host", "smoke.fs.pair.same_type"),
        also=("smoke.fs.writes",),
    ),
    Claim(
        id="coherent",
        question=3,
        says="what one node writes, renames, appends, removes or locks, the others see",
        least_nodes=2,
        gates=(
            "smoke.fs.pair.write",
            "smoke.fs.pair.attributes",
            "smoke.fs.pair.append",
            "smoke.fs.pair.rename",
            "smoke.fs.pair.unlink",
            "smoke.fs.pair.exclusive",
        ),
        also=(
            "smoke.fs.pair.lock_refused",
            "smoke.fs.pair.late_lookup",
            "smoke.fs.late_lookup",
            "smoke.fs.looked",
        ),
    ),
    Claim(
        id="storage-fast",
        question=3,
        says="it is fast enough, also for all nodes at once",
        least_nodes=2,
        gates=("smoke.storage.write_together", "smoke.storage.files"),
        also=("smoke.storage.write", "smoke.storage.read"),
        shows=("smoke.storage.write_together",),
    ),
    Claim(
        id="one-communicator",
        question=4,
        says="one communicator spans all ranks and computes rightly",
        gates=("nccl.ranks", "nccl.hosts", "nccl.wrong_values"),
        also=("nccl.step", "nccl.device", "nccl.device.fallback", "nccl.rank.wrong_values", "nccl.rank.local_time"),
        real=("nccl",),
    ),
    Claim(
        id="speed-inside",
        question=4,
        says="inside a node collectives go over NVLink and reach the expected bandwidth",
        most_nodes=1,
        gates=_SPEED,
        also=(
            *_CURVE,
            "nccl.nvls",
            "discovery.gpu.nvlinks",
            "discovery.gpu.nvlink_recoveries",
            "discovery.gpu.nvlink_replays",
            "discovery.gpu.nvlink_crc_errors",
            "discovery.gpu.fabric",
        ),
        real=("nccl",),
        shows=("nccl.all_reduce.busbw",),
    ),
    Claim(
        id="over-the-fabric",
        question=4,
        says="between nodes the bytes go over the fabric, past host memory",
        least_nodes=2,
        gates=("nccl.transport", "nccl.rdma.bypassed", "nccl.gdr", "nccl.nics"),
        also=(
            "discovery.memlock",
            "discovery.rdma.same",
            "discovery.rdma.active",
            "discovery.numa.gpu",
            "discovery.topology",
            "discovery.topology.nic",
        ),
        real=("nccl", "fabric"),
        shows=("nccl.transport", "nccl.gdr"),
    ),
    Claim(
        id="speed-between",
        question=4,
        says="between nodes collectives reach the expected bandwidth and latency",
        least_nodes=2,
        gates=_SPEED,
        also=_CURVE,
        real=("nccl", "fabric"),
        shows=("nccl.all_reduce.busbw",),
    ),
    Claim(
        id="no-slow-link",
        question=4,
        says="no node and no link is slower than its peers",
        least_nodes=2,
        gates=("nccl.pair.link", "nccl.pair.slowest"),
        also=("nccl.pair.link.steady", "nccl.pair.link.latency", "nccl.pair.node", "nccl.pair.node.latency"),
        real=("nccl", "fabric"),
        shows=("nccl.pair.slowest",),
    ),
    Claim(
        id="trains-alone",
        question=5,
        says="one GPU trains",
        phases=_SINGLE,
        gates=_RUNS,
        also=("discovery.shm", "discovery.nofile", *_DEVICE, *_MEMORY),
        real=("gpu",),
    ),
    Claim(
        id="trains-on-a-node",
        question=5,
        says="DDP and FSDP train on one node as what they are, with the loss of one GPU",
        phases=_ONE_NODE,
        gates=(*_RUNS, *_EQUAL),
        also=(*_DEVICE, *_MEMORY),
        real=("gpu",),
    ),
    Claim(
        id="trains-across",
        question=5,
        says="DDP, FSDP and HSDP train across nodes as what they are, with the loss of one GPU",
        phases=_ACROSS,
        least_nodes=2,
        gates=(*_RUNS, *_EQUAL),
        also=("train.transport", *_DEVICE, *_MEMORY),
        real=("gpu",),
    ),
    Claim(
        id="checkpoints",
        question=5,
        says="a checkpoint is whole and resumes",
        gates=("train.checkpoint.intact", "train.checkpoint.resumable"),
        real=("gpu",),
    ),
    Claim(
        id="scales",
        question=5,
        says="tokens/s per GPU stay near those of one GPU",
        gates=("train.scaling",),
        real=("gpu",),
        shows=("train.scaling",),
    ),
    Claim(
        id="observable",
        question=6,
        says="every run's and every rank's end is recorded, and the evidence is whole",
        gates=("run.closed", "run.evidence", "train.rank.finished"),
        also=(
            "run.restarts",
            "train.straggler",
            "discovery.clock.offset",
            "nccl.monitor.overhead",
            "nccl.monitor.coverage",
            "nccl.monitor.clock",
        ),
    ),
    Claim(
        id="slurm-notices",
        question=6,
        says="Slurm notices dead nodes, and nothing outlives its job",
        gates=("discovery.slurm.proctrack", "discovery.slurm.slurmd_timeout", "discovery.slurm.return_to_service"),
        also=(
            "discovery.slurm.kill_on_bad_exit",
            "discovery.slurm.health_check",
            "discovery.slurm.prolog",
            "discovery.slurm.epilog",
        ),
    ),
    Claim(
        id="diagnosable",
        question=6,
        says="faults made here were found, on the right subject, with the right cause",
        gates=(),
        drills=True,
    ),
)
