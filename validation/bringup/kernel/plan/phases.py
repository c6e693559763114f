"""The phases: one stem for the script, the results folder and the report. Data only."""

from typing import NamedTuple


class Phase(NamedTuple):
    stem: str
    number: int
    title: str
    asks: str = ""  # a question to which its verdicts are the answer
    needs: tuple[str, ...] = ()  # phases that must pass first, or this one would be meaningless
    minutes: tuple[int, int] = (1, 3)  # to expect on up to 16 nodes, without the queue; docs/00-first-day.md says why
    file: str = ""  # the script, where it is not called STEM.sbatch
    strategy: str | None = None  # training only: the strategy that must be observed
    min_nodes: int = 1
    one_gpu: bool = False
    min_gpus_per_node: int = 1  # a strategy between the GPUs of a node needs two of them
    whole_nodes: bool = True  # it needs exclusive nodes
    localises: str | None = None  # a phase whose failure this one explains; that phase is repeated without the bad node
    uses_torch: bool = True  # nothing of it can be measured without; smoke uses it in one part only
    screens: bool = False  # a node that fails a gate of its own is left out of the later phases

    @property
    def is_training(self) -> bool:
        return self.strategy is not None

    @property
    def script(self) -> str:
        """Return the path of the script, from the repository root."""
        folder = "training/slurm" if self.is_training else "infrastructure-validation/scripts"
        return f"{folder}/{self.file or f'{self.stem}.sbatch'}"

    @property
    def submit(self) -> bool:
        """Say whether to sbatch it; otherwise bash it on the login host."""
        return self.script.endswith(".sbatch")

    def command(self, nodes: int) -> str:
        """Return what starts it by hand on so many nodes, from the repository root."""
        if not self.submit:
            return f"bash {self.script} --nodes {nodes}"
        return f"sbatch {f'--nodes={nodes} ' if self.max_nodes is None else ''}{self.script}"

    @property
    def results(self) -> str:
        """Return the folder of the runs, from the repository root."""
        return "training/results" if self.is_training else f"validation/results/{self.stem}"

    @property
    def max_nodes(self) -> int | None:
        """Return the most nodes that it takes. None: takes any --nodes."""
        return 1 if self.is_training and self.min_nodes == 1 else None

    def lacks(self, nodes: int, gpus_per_node: int) -> str | None:
        """Return the requirement that these nodes do not meet; None: they meet all."""
        if nodes < self.min_nodes:
            return f"needs at least {self.min_nodes} nodes, {nodes} requested"
        if gpus_per_node < self.min_gpus_per_node:
            return f"needs at least {self.min_gpus_per_node} GPUs in a node, {gpus_per_node} there"
        return None


_PHASES = (
    Phase(
        "discovery", 1, "Discovery: what is there",
        "Is everything in the nodes that Slurm says is there, and are they alike?",
        (), (1, 1), "discover-environment.sbatch",
        uses_torch=False, screens=True,
    ),
    Phase(
        "smoke", 2, "Smoke: scheduling, binding, shared filesystem",
        "Does Slurm start, bind, confine and end jobs as asked, and is the results folder one folder on all nodes?",
        ("discovery",), (1, 4), "smoke_test.sh",
        uses_torch=False, whole_nodes=False, screens=True,
    ),
    Phase(
        "node_sweep", 2, "Every node alone, under load",
        "Does each node alone compute correctly, and keep its speed under load?",
        ("smoke",), (4, 12), screens=True,
    ),
    Phase(
        "nccl_scaling", 3, "Collectives at every scale",
        "How fast are the collectives inside a node and between nodes, and over which transport do they go?",
        ("node_sweep",), (2, 10), "nccl_scaling.sh",
    ),
    Phase(
        "nccl_pairwise", 3, "Pairs of nodes: which one, or which link, is slow",
        "Is a node, or a link between two nodes, slower than the others?",
        ("node_sweep",), (1, 5),
        min_nodes=2, screens=True, localises="nccl_scaling",
    ),
    Phase(
        "nccl_monitoring", 3, "Collectives, watched on every node",
        "What do the nodes count while collectives run: load, network, errors?",
        ("nccl_scaling",), (2, 2),
        "nccl_run_with_monitoring.sh",
    ),
    Phase(
        "run_1gpu", 4, "Training on one GPU",
        "Does one GPU train, and does it resume from a checkpoint?",
        ("node_sweep",), (4, 52), strategy="single", one_gpu=True,
    ),
    *(
        phase
        for strategy, number, does, on in (("ddp", 5, "run", "on all"), ("fsdp", 6, "really shard", "over the"))
        for phase in (
            Phase(
                f"run_{strategy}_1node", number, f"{strategy.upper()} on one node",
                f"Does {strategy.upper()} {does} {on} GPUs of a node, and learn what one GPU learns?",
                ("run_1gpu",), strategy=strategy, min_gpus_per_node=2,
            ),
            Phase(
                f"run_{strategy}_2node", number, f"{strategy.upper()} across nodes",
                f"Does {strategy.upper()} {does} across nodes, learn what one GPU learns, and how well does it scale?",
                ("nccl_scaling", f"run_{strategy}_1node"), strategy=strategy, min_nodes=2,
            ),
        )
    ),
    Phase(
        "run_hsdp_2node", 6, "HSDP across nodes",
        "Does HSDP shard inside a node and copy across nodes, and learn what one GPU learns?",
        ("nccl_scaling", "run_fsdp_1node"),
        strategy="hsdp", min_nodes=2, min_gpus_per_node=2,
    ),
)  # fmt: skip
PHASES = {phase.stem: phase for phase in _PHASES}

PREFLIGHT = ("discovery", "node_sweep", "nccl_pairwise")
"""Phases that accuse single nodes and run inside the job that a user has (`bringup preflight`)."""

RANK_FINISHED, EXIT_CODE = "train.rank.finished", "train.exit_code"
"""Gates of how a training ended: of each rank, and of the job."""

NODES = "nodes"  # the field of a sweep that is no option of the programs: the job has so many
