"""The phases: one stem for the script, the results folder and the report. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Phase:
    stem: str
    number: int
    title: str
    script: str  # from the repository root
    submit: bool  # sbatch it; otherwise bash it on the login host
    results: str  # folder of the runs, from the repository root
    strategy: str | None = None  # training only: the strategy that must be observed
    min_nodes: int = 1
    max_nodes: int | None = None  # None: takes any --nodes
    one_gpu: bool = False
    min_gpus_per_node: int = 1  # a strategy between the GPUs of a node needs two of them
    needs: tuple[str, ...] = ()  # phases that must pass first, or this one would be meaningless
    whole_nodes: bool = True  # it needs exclusive nodes
    localises: str | None = None  # a phase whose failure this one explains; that phase is repeated without the bad node
    uses_torch: bool = True  # nothing of it can be measured without; smoke uses it in one part only
    minutes: tuple[int, int]  # to expect on up to 16 nodes, without the queue; docs/00-first-day.md says why
    screens: bool = False  # a node that fails a gate of its own is left out of the later phases

    @property
    def is_training(self) -> bool:
        return self.strategy is not None

    def lacks(self, nodes: int, gpus_per_node: int) -> str | None:
        """The requirement that these nodes do not meet; None: they meet all."""
        if nodes < self.min_nodes:
            return f"needs at least {self.min_nodes} nodes, {nodes} requested"
        if gpus_per_node < self.min_gpus_per_node:
            return f"needs at least {self.min_gpus_per_node} GPUs in a node, {gpus_per_node} there"
        return None


def _training(
    stem: str,
    number: int,
    title: str,
    strategy: str,
    needs: tuple[str, ...],
    *,
    nodes: int,
    one_gpu: bool = False,
    gpus: int = 1,
    minutes: tuple[int, int] = (1, 3),
) -> Phase:
    return Phase(
        stem=stem,
        number=number,
        title=title,
        script=f"training/slurm/{stem}.sbatch",
        submit=True,
        results="training/results",
        strategy=strategy,
        min_nodes=nodes,
        max_nodes=1 if nodes == 1 else None,
        one_gpu=one_gpu,
        min_gpus_per_node=gpus,
        needs=needs,
        minutes=minutes,
    )


def _validation(
    stem: str,
    number: int,
    title: str,
    script: str,
    needs: tuple[str, ...] = (),
    *,
    minutes: tuple[int, int],
    nodes: int = 1,
    whole_nodes: bool = True,
    screens: bool = False,
    localises: str | None = None,
) -> Phase:
    return Phase(
        stem=stem,
        number=number,
        title=title,
        script=f"infrastructure-validation/scripts/{script}",
        submit=script.endswith(".sbatch"),
        results=f"validation/results/{stem}",
        needs=needs,
        uses_torch=stem not in ("discovery", "smoke"),
        min_nodes=nodes,
        whole_nodes=whole_nodes,
        screens=screens,
        localises=localises,
        minutes=minutes,
    )


PHASES: dict[str, Phase] = {
    phase.stem: phase
    for phase in (
        _validation(
            "discovery", 1, "Discovery: what is there", "discover-environment.sbatch", minutes=(1, 1), screens=True
        ),
        _validation(
            "smoke",
            2,
            "Smoke: scheduling, binding, shared filesystem",
            "smoke_test.sh",
            ("discovery",),
            minutes=(1, 4),
            whole_nodes=False,
            screens=True,
        ),
        _validation(
            "node_sweep",
            2,
            "Every node alone, under load",
            "node_sweep.sbatch",
            ("smoke",),
            minutes=(4, 12),
            screens=True,
        ),
        _validation(
            "nccl_scaling", 3, "Collectives at every scale", "nccl_scaling.sh", ("node_sweep",), minutes=(2, 10)
        ),
        _validation(
            "nccl_pairwise",
            3,
            "Pairs of nodes: which one, or which link, is slow",
            "nccl_pairwise.sbatch",
            ("node_sweep",),
            minutes=(1, 5),
            nodes=2,
            screens=True,
            localises="nccl_scaling",
        ),
        _validation(
            "nccl_monitoring",
            3,
            "Collectives, watched on every node",
            "nccl_run_with_monitoring.sh",
            ("nccl_scaling",),
            minutes=(2, 2),
        ),
        _training(
            "run_1gpu", 4, "Training on one GPU", "single", ("node_sweep",), nodes=1, one_gpu=True, minutes=(4, 52)
        ),
        _training("run_ddp_1node", 5, "DDP on one node", "ddp", ("run_1gpu",), nodes=1, gpus=2),
        _training("run_ddp_2node", 5, "DDP across nodes", "ddp", ("nccl_scaling", "run_ddp_1node"), nodes=2),
        _training("run_fsdp_1node", 6, "FSDP on one node", "fsdp", ("run_1gpu",), nodes=1, gpus=2),
        _training("run_fsdp_2node", 6, "FSDP across nodes", "fsdp", ("nccl_scaling", "run_fsdp_1node"), nodes=2),
        _training(
            "run_hsdp_2node", 6, "HSDP across nodes", "hsdp", ("nccl_scaling", "run_fsdp_1node"), nodes=2, gpus=2
        ),
    )
}

PREFLIGHT = ("discovery", "node_sweep", "nccl_pairwise")
"""Phases that accuse single nodes and run inside the job that a user has (`bringup preflight`)."""
