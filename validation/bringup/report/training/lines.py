"""Lines of the training report that are made of several records: known/training_report.yaml names them. None: it was
not recorded. Communication stands beside what the collectives of the same report reached alone, the time of a step
beside what `bringup advise` predicts."""

from dataclasses import replace

from bringup.kernel.errors import RecordError
from bringup.kernel.facts.names import listed
from bringup.kernel.plan.ceiling import Machine, Mfu, Sourced
from bringup.kernel.plan.profile import Profile
from bringup.report.training.training_run import Trained, words
from bringup.training.advise import answer, bandwidth
from bringup.training.formulae import models, published
from bringup.training.formulae.flops import peak_bf16_tflops
from bringup.training.formulae.traffic import Collective
from bringup.training.records import CollectiveTime, Communication, ModelShape, RunArgs, TrainMetrics
from bringup.training.records.folder import records_of

NO_CURVE = "no run of the collectives is in this report"


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


def step_as_predicted(trained: Trained) -> str:
    profile, metrics, records = trained.judged.profile, trained.metrics, records_of(trained.judged)
    reference = None if records is None else records.reference_metrics
    predicted = predicted_step(reference, profile, trained.args, metrics.gpu0, trained.curve, metrics.model_shape)
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
    per_token, speed = trained.metrics.flops_per_token, trained.metrics.tokens_per_s_per_rank
    return None if per_token is None else f"{per_token * speed / 1e12:.3g} TFLOP/s"


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
    if (slow := trained.metrics.straggler) is None:
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
    known = ", ".join(f"{name} {speed:.3g} GiB/s" for name, speed in speeds.items() if speed is not None)
    return f"{times.bytes / 2**20:,.1f} MiB{beside}; {known}"


def transport(trained: Trained) -> str | None:
    reason = trained.metrics.transport_reason
    return trained.metrics.transport or (None if reason is None else f"not known: {reason}")


def communication_shares(trained: Trained) -> str | None:
    """Say in which share of a profiled step a rank only communicated."""
    measured, share = trained.metrics.communication, trained.metrics.communication_share
    if measured is None or share is None:
        reason = trained.metrics.communication_reason
        return None if reason is None else f"not known: {reason}"
    least, most = (100 * edge(measured.exposed_s) / measured.step_s for edge in (min, max))
    return f"{100 * share:.1f} %, by rank {least:.1f} to {most:.1f} %; a profiled step took {measured.step_s:.4g} s"


def communication_seconds(trained: Trained) -> str | None:
    """Say how many seconds of a step, with what overlaps, and how many the collectives phase predicts."""
    if (measured := trained.metrics.communication) is None:
        return None  # the line of the shares says why
    return f"{min(measured.total_s):.4g} s on the rank that waited least, {_predicted(trained, measured)}"


def communication_speeds(trained: Trained) -> str | None:
    """Return bus bandwidth of each kind of collective."""
    if (measured := trained.metrics.communication) is None:
        return None  # the line of the shares says why
    speeds = "; ".join(_speed(trained, each) for each in measured.collectives)
    return speeds or f"not known: {measured.collectives_reason}"


def inspected(trained: Trained) -> str | None:
    """Say what NCCL's Inspector plugin measured in all steps; None where it did not run."""
    words = [
        f"{operation} {busbw.value:.3g} GB/s, {busbw.subject} ({busbw.why})"
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
        for busbw in trained.seen(f"inspector.{operation}.busbw")
    ]
    return "; ".join(words) or None


def _predicted(trained: Trained, measured: Communication) -> str:
    if not measured.collectives:
        return f"not predicted: {measured.collectives_reason}"
    times = [_alone(trained, each) for each in measured.collectives]
    known = [time for time in times if not isinstance(time, str)]
    if len(known) < len(times):
        return f"not predicted: {next(time for time in times if isinstance(time, str))}"
    return f"{sum(known):.4g} s predicted from the collectives alone"


def _speed(trained: Trained, each: CollectiveTime) -> str:
    words = f"{each.operation} {each.busbw_gb_per_s:.3g} GB/s for messages of {each.message_bytes / 2**20:.3g} MiB"
    alone = _alone(trained, each)
    if alone == NO_CURVE:  # the line of the seconds says so
        return words
    if isinstance(alone, str):
        return f"{words} (alone not known: {alone})"
    return f"{words}, alone {each.sent_bytes / alone / 1e9:.3g}"


def _alone(trained: Trained, each: CollectiveTime) -> float | str:
    """Seconds of these calls in a step, by the curve that was measured; or why they are not known."""
    if trained.curve is None:
        return NO_CURVE
    calls = each.calls_predicted
    collective = Collective(each.operation, each.over, each.ranks, calls, round(each.message_bytes * calls))
    time = bandwidth.seconds(collective, trained.curve, trained.args.nodes, trained.args.ranks_per_node)
    return time if isinstance(time, str) else time[0]


def predicted_step(
    reference: TrainMetrics | RecordError | None,
    profile: Profile,
    args: RunArgs,
    gpu: str | None,
    curve: bandwidth.Measured | None,
    shape: ModelShape,
) -> answer.Times:
    """Predict a step. reference: of the one-GPU run that is kept with the run. gpu: its name, None on a CPU. curve: of
    the collectives, where it was measured. shape: that the run recorded."""
    if isinstance(reference, RecordError):
        return answer.Times(None, None, [], [str(reference)])
    machine = _machine(reference, profile, gpu)
    facts = answer.Known(profile.name, machine, curve or bandwidth.Promised(profile))
    times = answer.times(shape, models.job_of(args), facts)
    if machine.peak_bf16_tflops is not None:
        return times
    others = [reason for reason in times.unknown if not reason.startswith("compute time")]
    return replace(times, unknown=[f"compute time: no peak is known for {gpu or 'cpu'}", *others])


def _machine(reference: TrainMetrics | None, profile: Profile, gpu: str | None) -> Machine:
    """Return the profile's machine, with the peak of the GPU that was used and the MFU that one of them reached."""
    peak = None if gpu is None else peak_bf16_tflops(gpu, profile)
    rates: dict[str, Sourced | None] = {"peak_bf16_tflops": Sourced(value=peak[0], source=peak[1]) if peak else None}
    if reference is not None and reference.mfu:
        rates["mfu"] = Mfu(value=reference.mfu, source="measured by the one-GPU run", recomputed=True)
    return profile.machine.model_copy(update=rates)
