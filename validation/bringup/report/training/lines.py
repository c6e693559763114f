"""Lines of the training report that are made of several records: known/training_report.yaml names them. None: it was
not recorded."""

from __future__ import annotations

from bringup.kernel.facts.names import listed
from bringup.report.training import communication
from bringup.report.training.trained import Trained, words
from bringup.training.formulae import published
from bringup.training.records.folder import records_of


def scheduler(trained: Trained) -> str | None:
    return f"Slurm {trained.facts['Slurm']}" if "Slurm" in trained.facts else None


def nodes(trained: Trained) -> str:
    hosts = list(dict.fromkeys(trained.metrics.observed.hosts))
    return f"{len(hosts)}: {listed(hosts)}"


def versions(trained: Trained) -> str:
    return f"torch {trained.args.torch}, transformers {trained.args.transformers}, accelerate {trained.args.accelerate}"


def dtypes(trained: Trained) -> str:
    seen = trained.metrics.observed
    compute = seen.compute_dtype or trained.args.compute_dtype
    return f"{seen.master_dtype} parameters, {compute} compute, {seen.reduce_dtype} reduce"


def shard(trained: Trained) -> str:
    seen = trained.metrics.observed
    share = 100 * seen.parameters_local_max / seen.parameters
    return f"{seen.parameters_local_max:,} of {seen.parameters:,} parameters ({share:.3g} %)"


def mesh(trained: Trained) -> str | None:
    mesh = trained.metrics.observed.mesh
    return None if mesh is None else f"{len(mesh)} × {len(mesh[0])} (replicas × shards)"


def checkpointing(trained: Trained) -> str | None:
    seen = trained.metrics.observed
    if seen.recomputed_layers is None:
        return None
    return f"{seen.recomputed_layers} of {seen.decoder_layers} layers ran again in backward"


def cost(trained: Trained) -> str:
    """Return the GPU-hours of the ranks that train, as tokens/s in the steady window say."""
    metrics = trained.metrics
    hours = metrics.world_size / metrics.tokens_per_s * 1e9 / 3600
    return f"{words(hours)} GPU-hours"


def scaling(trained: Trained) -> str | None:
    scaled = None if trained.metrics.summary is None else trained.metrics.summary.scaling
    return None if scaled is None else f"{100 * scaled:.0f} %"


def step(trained: Trained) -> str:
    times = trained.metrics.step_time_s
    return f"{times.p50 * 1e3:.1f} / {times.p95 * 1e3:.1f} / {times.max * 1e3:.1f} ms over {times.window_steps} steps"


def predicted_step(trained: Trained) -> str:
    profile, metrics, records = trained.judged.profile, trained.metrics, records_of(trained.judged)
    reference = None if records is None else records.reference_metrics
    predicted = communication.predicted_step(
        reference, profile, trained.args, metrics.gpu0, trained.curve, metrics.model_shape
    )
    parts = [
        f"{name} {' to '.join(dict.fromkeys(map(words, values)))} s"
        for name, values in (("compute", predicted.compute or ()), ("communication", (predicted.communication,)))
        if values and values[0] is not None
    ]
    beside = f" ({', '.join(parts)})" if parts else ""
    measured = f"measured {metrics.step_time_s.p50:.4g} s"
    if predicted.step is None:
        return f"incomplete{beside}: {'; '.join(predicted.unknown)}; {measured}"
    least, most = predicted.step
    return f"{least:.4g} to {most:.4g} s{beside}; {measured}"


def mfu(trained: Trained) -> str | None:
    metrics = trained.metrics
    if metrics.mfu is None:
        return None if metrics.mfu_reason is None else f"not known: {metrics.mfu_reason}"
    others = published.beside(metrics)
    of_peak = f"{100 * metrics.mfu:.1f} %, of {words(metrics.peak_tflops)} TFLOP/s ({metrics.peak_source})"
    return of_peak if others is None else f"{of_peak}; published: {others}"


def tflops(trained: Trained) -> str | None:
    """Multiply flops_per_token by tokens_per_s_per_rank, both of metrics.json."""
    per_token = trained.metrics.flops_per_token
    if per_token is None:
        return None
    return f"{per_token * trained.metrics.tokens_per_s_per_rank / 1e12:.3g} TFLOP/s"


def sent_again(trained: Trained) -> str | None:
    """Say which RDMA packets were sent again, where RDMA carried something."""
    return trained.worst("load.rdma_sent_again") if trained.sampled["nodes"].get("rdma_tx_bytes") else None


def startup(trained: Trained) -> str:
    parts = {name.removesuffix("_s").replace("_", " "): value for name, value in trained.metrics.startup}
    return f"{sum(parts.values()):.1f} s: {', '.join(f'{name} {value:.1f}' for name, value in parts.items())}"


def losses(trained: Trained) -> str | None:
    losses = trained.metrics.loss
    return f"{losses[0]:.4f} → {losses[-1]:.4f} in {len(losses)} steps" if losses else None


def straggler(trained: Trained) -> str | None:
    slow = trained.metrics.straggler
    if slow is None:
        return "one rank has no other to be slower than" if trained.metrics.world_size == 1 else None
    return f"rank {slow.rank} on {slow.node}, {slow.slowdown:.2f} × the median in {slow.part}"


def gpu_memory(trained: Trained) -> str | None:
    memory = trained.metrics.memory
    if memory.device_allocated_gib is None:
        return None
    kinds = {"active": memory.device_active_gib, "reserved": memory.device_reserved_gib}
    others = "".join(f", {words(gib)} GiB {kind}" for kind, gib in kinds.items() if gib is not None)
    return f"{memory.device_allocated_gib:.2f} GiB allocated{others}"


def layers(trained: Trained) -> str:
    seen = trained.metrics.observed
    return f"{seen.decoder_layers}{'' if seen.layer_class is None else f' × {seen.layer_class}'}"


def states(trained: Trained) -> str:
    check = trained.metrics.memory_check
    measured, predicted = check.states_measured_bytes / 2**30, check.states_predicted_bytes / 2**30
    return f"{measured:.3g} GiB on rank {check.states_rank}, predicted {predicted:.3g} GiB"


def checkpoint(trained: Trained) -> str | None:
    times, metrics = trained.metrics.checkpoint, trained.metrics
    if times is None:
        return metrics.checkpoint_reason
    speeds = {"write": times.write_gib_per_s, "read": times.read_gib_per_s}
    beside = f", predicted {times.predicted_bytes / 2**20:,.1f} MiB" if times.predicted_bytes else ""
    return f"{times.bytes / 2**20:,.1f} MiB{beside}; " + ", ".join(
        f"{name} {speed:.3g} GiB/s" for name, speed in speeds.items() if speed is not None
    )


def transport(trained: Trained) -> str | None:
    reason = trained.metrics.transport_reason
    return trained.metrics.transport or (None if reason is None else f"not known: {reason}")
