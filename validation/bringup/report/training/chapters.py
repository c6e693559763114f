"""The chapters of the report, in their order: which line is read from where. Data, but for what follows from
verdicts (conclusions.py). Every line is read from records and evidence; what they do not hold has no line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bringup.compare import sidebyside
from bringup.compare.sidebyside import SideBySide
from bringup.evidence.names import listed
from bringup.formulae import published
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.report.training import communication, conclusions
from bringup.report.training import trained as read
from bringup.report.training.conclusions import Compared
from bringup.report.training.trained import Trained, trained

NOT_RECORDED = "not recorded"
METRICS = "Metrics"


@dataclass(frozen=True)
class Chapter:
    """Lines with a value for each run, then sentences about all of them."""

    title: str
    lines: list[tuple[str, list[str]]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    header: tuple[str, str] = ("what", "value")

    @property
    def alike(self) -> list[tuple[str, str]]:
        """Return lines that say the same of all runs."""
        return [(name, values[0]) for name, values in self.lines if len(set(values)) == 1]


def _on_gpus(reader: read.Read) -> read.Read:
    """Return a reader of a line that says nothing of a training on the CPU."""
    return lambda trained: None if trained.args.device == "cpu" else reader(trained)


def _nodes(trained: Trained) -> str:
    hosts = list(dict.fromkeys(trained.metrics.observed.hosts))
    return f"{len(hosts)}: {listed(hosts)}"


def _versions(trained: Trained) -> str:
    return f"torch {trained.args.torch}, transformers {trained.args.transformers}, accelerate {trained.args.accelerate}"


def _dtypes(trained: Trained) -> str:
    seen = trained.metrics.observed
    compute = seen.compute_dtype or trained.args.compute_dtype
    return f"{seen.master_dtype} parameters, {compute} compute, {seen.reduce_dtype} reduce"


def _shard(trained: Trained) -> str:
    seen = trained.metrics.observed
    share = 100 * seen.parameters_local_max / seen.parameters
    return f"{seen.parameters_local_max:,} of {seen.parameters:,} parameters ({share:.3g} %)"


def _mesh(trained: Trained) -> str | None:
    mesh = trained.metrics.observed.mesh
    return None if mesh is None else f"{len(mesh)} × {len(mesh[0])} (replicas × shards)"


def _checkpointing(trained: Trained) -> str | None:
    seen = trained.metrics.observed
    if seen.recomputed_layers is None:
        return None
    return f"{seen.recomputed_layers} of {seen.decoder_layers} layers ran again in backward"


def _cost(trained: Trained) -> str:
    """Return the GPU-hours of the ranks that train, as tokens/s in the steady window say."""
    metrics = trained.metrics
    hours = metrics.world_size / metrics.tokens_per_s * 1e9 / 3600
    return f"{read.words(hours)} GPU-hours"


def _scaling(trained: Trained) -> str | None:
    scaled = None if trained.metrics.summary is None else trained.metrics.summary.scaling
    return None if scaled is None else f"{100 * scaled:.0f} %"


def _step(trained: Trained) -> str:
    times = trained.metrics.step_time_s
    return f"{times.p50 * 1e3:.1f} / {times.p95 * 1e3:.1f} / {times.max * 1e3:.1f} ms over {times.window_steps} steps"


def _predicted_step(trained: Trained) -> str:
    profile, metrics, records = trained.judged.profile, trained.metrics, trained.judged.training
    reference = None if records is None else records.reference_metrics
    predicted = communication.predicted_step(
        reference, profile, trained.args, metrics.gpu0, trained.curve, metrics.model_shape
    )
    parts = [
        f"{name} {' to '.join(dict.fromkeys(map(read.words, values)))} s"
        for name, values in (("compute", predicted.compute or ()), ("communication", (predicted.communication,)))
        if values and values[0] is not None
    ]
    beside = f" ({', '.join(parts)})" if parts else ""
    measured = f"measured {metrics.step_time_s.p50:.4g} s"
    if predicted.step is None:
        return f"incomplete{beside}: {'; '.join(predicted.unknown)}; {measured}"
    least, most = predicted.step
    return f"{least:.4g} to {most:.4g} s{beside}; {measured}"


def _mfu(trained: Trained) -> str | None:
    metrics = trained.metrics
    if metrics.mfu is None:
        return None if metrics.mfu_reason is None else f"not known: {metrics.mfu_reason}"
    others = published.beside(metrics)
    of_peak = f"{100 * metrics.mfu:.1f} %, of {read.words(metrics.peak_tflops)} TFLOP/s ({metrics.peak_source})"
    return of_peak if others is None else f"{of_peak}; published: {others}"


def _tflops(trained: Trained) -> str | None:
    """flops_per_token × tokens_per_s_per_rank, both of metrics.json."""
    per_token = trained.metrics.flops_per_token
    if per_token is None:
        return None
    return f"{per_token * trained.metrics.tokens_per_s_per_rank / 1e12:.3g} TFLOP/s"


def _communicates(trained: Trained) -> str | None:
    """RDMA packets sent again, where RDMA carried something."""
    return read.worst_seen("load.rdma_sent_again")(trained) if trained.sampled["nodes"].get("rdma_tx_bytes") else None


def _startup(trained: Trained) -> str:
    parts = {name.removesuffix("_s").replace("_", " "): value for name, value in trained.metrics.startup}
    return f"{sum(parts.values()):.1f} s: {', '.join(f'{name} {value:.1f}' for name, value in parts.items())}"


def _losses(trained: Trained) -> str | None:
    losses = trained.metrics.loss
    return f"{losses[0]:.4f} → {losses[-1]:.4f} in {len(losses)} steps" if losses else None


def _straggler(trained: Trained) -> str | None:
    slow = trained.metrics.straggler
    if slow is None:
        return "one rank has no other to be slower than" if trained.metrics.world_size == 1 else None
    return f"rank {slow.rank} on {slow.node}, {slow.slowdown:.2f} × the median in {slow.part}"


def _gpu_memory(trained: Trained) -> str | None:
    memory = trained.metrics.memory
    if memory.device_allocated_gib is None:
        return None
    return f"{memory.device_allocated_gib:.2f} GiB allocated, {read.words(memory.device_reserved_gib)} GiB reserved"


def _layers(trained: Trained) -> str:
    seen = trained.metrics.observed
    return f"{seen.decoder_layers}{'' if seen.layer_class is None else f' × {seen.layer_class}'}"


def _states(trained: Trained) -> str:
    check = trained.metrics.memory_check
    measured, predicted = check.states_measured_bytes / 2**30, check.states_predicted_bytes / 2**30
    return f"{measured:.3g} GiB on rank {check.states_rank}, predicted {predicted:.3g} GiB"


def _checkpoint(trained: Trained) -> str | None:
    times, metrics = trained.metrics.checkpoint, trained.metrics
    if times is None:
        return metrics.checkpoint_reason
    speeds = {"write": times.write_gib_per_s, "read": times.read_gib_per_s}
    beside = f", predicted {times.predicted_bytes / 2**20:,.1f} MiB" if times.predicted_bytes else ""
    return f"{times.bytes / 2**20:,.1f} MiB{beside}; " + ", ".join(
        f"{name} {speed:.3g} GiB/s" for name, speed in speeds.items() if speed is not None
    )


def _transport(trained: Trained) -> str | None:
    reason = trained.metrics.transport_reason
    return trained.metrics.transport or (None if reason is None else f"not known: {reason}")


CHAPTERS: dict[str, dict[str, read.Read]] = {
    "Hardware": {
        "nodes": _nodes,
        "ranks": read.of_record("metrics.world_size"),
        "device": read.first(read.of_record("metrics.gpu0"), read.of_record("args.device")),
        "memory of a GPU": _on_gpus(read.fact("memory of a GPU")),
        "NVLinks of a GPU": _on_gpus(read.fact("NVLinks of a GPU")),
        "RDMA ports": read.fact("RDMA ports"),
        "network interfaces": read.fact("network interfaces"),
        "processor": read.fact("processor"),
        "layout of the cores": read.fact("layout of the cores"),
        "memory of a node": read.fact("memory"),
        "scheduler": lambda trained: f"Slurm {trained.facts['Slurm']}" if "Slurm" in trained.facts else None,
    },
    "Software": {
        "libraries": _versions,
        "CUDA": _on_gpus(read.first(read.of_record("metrics.environment.cuda"), read.fact("CUDA of the driver"))),
        "NCCL": _on_gpus(read.first(read.of_record("metrics.environment.nccl"), read.fact("NCCL library"))),
        "GPU driver": _on_gpus(read.first(read.of_record("metrics.environment.driver"), read.fact("GPU driver"))),
        "operating system": read.fact("operating system"),
        "kernel": read.fact("kernel"),
        "backend of the collectives": read.of_record("metrics.observed.backend"),
        "program": read.of_record("args.entrypoint"),
    },
    "Model and strategy": {
        "model": read.of_record("metrics.model"),
        "parameters": read.of_record("metrics.observed.parameters"),
        "decoder layers": _layers,
        "strategy, observed": read.of_record("metrics.observed.kind"),
        "wrapper": read.of_record("metrics.observed.wrapper"),
        "placements of parameters": read.of_record("metrics.observed.placements"),
        "held by the fullest rank": _shard,
        "mesh": _mesh,
        "resharded after forward": read.of_record("metrics.observed.reshard_after_forward"),
        "activation checkpointing": _checkpointing,
    },
    "Configuration": {
        "dataset": read.of_record("args.dataset"),
        "steps": read.of_record("args.steps"),
        "of which warm-up": read.of_record("args.warmup_steps"),
        "sequence length": read.of_record("args.sequence_length"),
        "batch of a rank": read.of_record("args.per_device_batch"),
        "gradient accumulation": read.of_record("args.gradient_accumulation"),
        "gradients reduced in every micro-step": read.of_record("metrics.observed.sync_each_batch"),
        "global batch": read.of_record("args.global_batch"),
        "precision, observed": _dtypes,
        "attention": read.of_record("args.attention"),
        "recipe": read.of_record("args.recipe"),
        "torch.compile": read.of_record("args.compile"),
        "optimizer": read.of_record("args.optimizer"),
        "learning rate": read.of_record("args.learning_rate"),
        "seed": read.of_record("args.seed"),
    },
    METRICS: {
        "tokens/s, all ranks": read.of_record("metrics.tokens_per_s"),
        "tokens/s of a rank": read.of_record("metrics.tokens_per_s_per_rank"),
        "share of the speed of one rank alone": _scaling,
        "step p50 / p95 / slowest": _step,
        "step as predicted": _on_gpus(_predicted_step),
        "MFU": _on_gpus(_mfu),
        "model TFLOP/s of a rank": _on_gpus(read.first(read.of_record("metrics.tflops_per_rank"), _tflops)),
        "a billion tokens": _on_gpus(_cost),
        "tokens of a step": read.of_record("metrics.tokens_per_step"),
        "communication that nothing overlapped": communication.shares,
        "communication in a step": communication.seconds,
        "bus bandwidth in training": communication.speeds,
        "bus bandwidth by NCCL's Inspector": communication.inspected,
        "slowest rank's own work": _straggler,
        "loss, nats per token": _losses,
        "parameters, gradients, optimizer": _states,
        "wall time": read.of_record("metrics.wall_time_s", "s"),
        "start-up": _startup,
        "checkpoint": _checkpoint,
    },
    "GPU": {
        "busy in the measured steps, % (waiting in NCCL counts)": read.of_samples("gpus", "percent"),
        "clock in the measured steps, MHz": read.of_samples("gpus", "sm_mhz"),
        "slowed down by": read.of_samples("gpus", "slowdowns"),
        "peak of the allocator, fullest rank": _gpu_memory,
        "memory used, sampled": read.of_samples("gpus", "memory_gib"),
        "PCIe sent in the measured steps": read.of_samples("gpus", "pcie_tx_bytes"),
        "PCIe received in the measured steps": read.of_samples("gpus", "pcie_rx_bytes"),
        "NVLink sent in the measured steps": read.of_samples("gpus", "nvlink_tx_kib"),
        "NVLink received in the measured steps": read.of_samples("gpus", "nvlink_rx_kib"),
        "faults that the counters showed": _on_gpus(read.worst_seen("load.gpu_faults")),
        "power in the measured steps, W": read.of_samples("gpus", "power_w"),
        "temperature in the measured steps, °C": read.of_samples("gpus", "temp_c"),
    },
    "CPU and memory": {
        "CPU of a node in the measured steps, %": read.of_samples("nodes", "cpu_percent"),
        "CPU time of a rank's process": read.worst_seen("probe.train.cpu_s"),
        "peak of a rank, resident": read.of_record("metrics.memory.host_rss_gib", "GiB"),
        "used on a node, GiB": read.of_samples("nodes", "memory_used_gib"),
    },
    "Network": {
        "transport between hosts": _transport,
        "sent over interfaces in the measured steps": read.of_samples("nodes", "tx_bytes"),
        "received over interfaces in the measured steps": read.of_samples("nodes", "rx_bytes"),
        "sent over RDMA in the measured steps": read.of_samples("nodes", "rdma_tx_bytes"),
        "received over RDMA in the measured steps": read.of_samples("nodes", "rdma_rx_bytes"),
        "TCP segments sent again": read.worst_seen("load.tcp_sent_again"),
        "RDMA packets sent again": _communicates,
    },
}


def chapters(runs: Sequence[Trained], compared: Compared, with_others: Compared) -> list[Chapter]:
    """Return the chapters of a report on at least one run. What none of them recorded has no line. with_others: these
    runs beside others, too."""
    written = []
    for title, readers in CHAPTERS.items():
        lines = [(name, [reader(run) for run in runs]) for name, reader in readers.items()]
        known = [(name, [value or NOT_RECORDED for value in values]) for name, values in lines if any(values)]
        written += [Chapter(title, known)] if known else []
        if title == METRICS:
            written.append(Chapter("Interpretation", sentences=conclusions.interpretation(runs, compared)))
    in_words = {
        "Takeaways": conclusions.takeaways(runs),
        "DDP, FSDP and HSDP beside each other": conclusions.strategies(runs, with_others),
    }
    when = [(situation, [strategy] * len(runs)) for situation, strategy in conclusions.WHEN]
    return [
        Chapter("Overview", sentences=conclusions.overview(runs)),
        *written,
        *(Chapter(title, sentences=sentences) for title, sentences in in_words.items() if sentences),
        Chapter("When to use which", when, header=("situation", "strategy")),
        Chapter("Assessment", sentences=conclusions.assessment(runs)),
    ]


@dataclass(frozen=True)
class Report:
    """Names of the runs, which are those of the values of each line. No chapter: no training finished. compared: None
    where nothing can be; the note says why, or what the columns mean."""

    names: list[str]
    chapters: list[Chapter]
    compared: SideBySide | None
    note: str

    @property
    def columns(self) -> tuple[list[str], list[list[str]]]:
        """Return a column per run, as `bringup compare` shows them: the head, and the lines in which they differ."""
        head, lines = ([], []) if self.compared is None else self.compared.columns
        return head, [line for line in lines if len(set(line[1:])) > 1]


def report(judged: Sequence[Judged], beside: Sequence[Judged] = (), varied: Sequence[str] = ()) -> Report:
    """Report on the trainings among `judged`. beside: other runs of the same playbook; the facts of the cluster are
    those of the discovery among all of them. varied: arguments in which runs may differ."""
    every = trained([*judged, *beside])
    runs = [run for run in every if run.judged in judged]
    names = sidebyside.short_names([run.judged.folder.name for run in runs])
    compared = conclusions.compared(judged, varied)
    left_out = [r.run.name for r in judged if PHASES[r.run.phase].is_training and conclusions.entry_of(r) is None]
    notes = [
        compared if isinstance(compared, str) else compared.note,
        f"not here, because it did not end or its evidence does not hold: {', '.join(left_out)}" if left_out else "",
    ]
    with_others = compared if len(runs) == len(every) else conclusions.compared([run.judged for run in every], varied)
    return Report(
        names,
        chapters(runs, compared, with_others) if runs else [],
        None if isinstance(compared, str) else compared,
        "; ".join(filter(None, notes)),
    )
