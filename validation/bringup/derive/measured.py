"""From the records of a training to observations under the gates' ids: ratios and gaps of their own fields. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from bringup.derive import stalls
from bringup.errors import RecordError
from bringup.evidence.parsed import Parsed
from bringup.formulae import pace
from bringup.plan.phases import PHASES
from bringup.plan.subjects import JOB, rank_subjects
from bringup.records import (
    REFERENCE_ARGS,
    REFERENCE_METRICS,
    MemoryCheck,
    ObservedStrategy,
    Run,
    RunArgs,
    TrainMetrics,
    differing_fields,
    read_record,
    scaling,
)
from bringup.results import METRICS, RUN_ARGS, TrainingRecords

_GIB = 2**30
FEWEST_STEPS_OF_A_TAIL = 20
NOISE_S = 0.001  # of a rank's own work in a step: what scheduling on a busy host takes
# of a perfect division of the work: below it launches and latencies are measured, which ranks do not share
SHORTEST_STEP_S = 0.1


@dataclass(frozen=True)
class Reference:
    """The one-GPU run that this one is compared with."""

    args: RunArgs
    metrics: TrainMetrics


def of_folder(folder: Path, run: Run, records: TrainingRecords) -> Parsed:
    """Nothing but problems where the training did not finish."""
    parsed = Parsed(problems=[str(error).replace(f"{folder}/", "") for error in records.errors])
    if records.are_whole:
        reference = None if PHASES[run.phase].strategy == "single" else _reference(parsed, folder, records)
        parsed.add(of_records(run, records.args, records.metrics, reference))
    return parsed


def _reference(parsed: Parsed, folder: Path, records: TrainingRecords) -> Reference | str:
    """The one-GPU run's records, copied when this run was opened; or the reason why there are none."""
    if (metrics := records.reference_metrics) is None:
        return (
            "no finished one-GPU run was there to compare with; sbatch training/slurm/run_1gpu.sbatch (without Slurm: "
            "bringup train single), then this again"
        )
    try:
        args = read_record(folder / REFERENCE_ARGS, RunArgs)
        if not isinstance(metrics, RecordError):
            return Reference(args, metrics)
        wrong = metrics
    except RecordError as error:
        wrong = error
    parsed.problems.append(str(wrong).replace(f"{folder}/", ""))
    return "the records of the one-GPU run cannot be read"


def of_records(run: Run, args: RunArgs, metrics: TrainMetrics, reference: Reference | str | None) -> Parsed:
    """reference: None where none is needed, a reason where there is none."""
    parsed = Parsed()
    _own(parsed, run, args, metrics)
    if reference is not None:
        _against_reference(parsed, args, metrics, reference)
    if metrics.resumed is not None:
        _resumed(parsed, metrics)
    return parsed


def _own(parsed: Parsed, run: Run, args: RunArgs, metrics: TrainMetrics) -> None:
    _world_size(parsed, run, metrics)
    parsed.saw("train.strategy", JOB, metrics.observed.kind, "text", f"{METRICS}:observed.kind")
    different = metrics.observed.differs_from(args)
    parsed.saw(
        "train.variant",
        JOB,
        len(different),
        "count",
        f"{METRICS}:observed, {RUN_ARGS}",
        "; ".join(different) or None,
    )
    no_speed = _why_no_speed(args, metrics)
    parsed.saw(
        "train.tokens_per_s",
        JOB,
        None if no_speed else metrics.tokens_per_s,
        "tokens/s",
        f"{METRICS}:tokens_per_s",
        no_speed,
    )
    if metrics.observed.backend == "gloo":
        parsed.saw("train.transport", JOB, metrics.transport, "text", f"{METRICS}:transport", metrics.transport_reason)
    _mfu(parsed, args, metrics, no_speed)
    _memory(parsed, args, metrics.memory_check)
    _checkpoint(parsed, metrics)
    _device_memory(parsed, metrics)
    _pace(parsed, metrics, no_speed)
    _slowdowns(parsed, metrics)
    parsed.add(stalls.of_metrics(metrics))
    wanted = args.global_batch * args.steps
    short = None if metrics.sample_count == wanted else f"{metrics.sample_count} rows were consumed, {wanted} requested"
    parsed.saw(
        "train.samples.repeated",
        JOB,
        None if short else metrics.sample_count - metrics.sample_distinct,
        "count",
        f"{METRICS}:sample_count,sample_distinct",
        short,
    )
    # an optimizer step that was never logged was not seen
    if len(metrics.loss) < args.steps:
        parsed.saw(
            "train.loss.fell", JOB, None, "nats", f"{METRICS}:loss", f"{len(metrics.loss)} of {args.steps} losses"
        )
    else:
        parsed.saw("train.loss.fell", JOB, metrics.loss[0] - metrics.loss[-1], "nats", f"{METRICS}:loss")
    apart = farthest_replicas(metrics.observed, metrics.parameter_checksums)
    if apart is not None:
        low, high = (metrics.parameter_checksums[rank] for rank in apart)
        parsed.saw(
            "train.replicas.difference",
            JOB,
            high - low,
            "sum",
            f"{METRICS}:parameter_checksums",
            f"rank {apart[0]} has {low!r}, rank {apart[1]} has {high!r}" if high != low else None,
        )
    shards = shard_count(metrics.observed)
    if shards is not None:
        excess = metrics.observed.parameters_local_max * shards / metrics.observed.parameters
        parsed.saw("train.shard.size", JOB, excess, "ratio", f"{METRICS}:observed.parameters_local_max")
    if metrics.observed.kind == "hsdp" and metrics.observed.mesh is not None:
        scattered = metrics.observed.scattered(args)
        parsed.saw("train.shard.inside_node", JOB, len(scattered), "count", f"{METRICS}:observed.mesh,hosts")


def _world_size(parsed: Parsed, run: Run, metrics: TrainMetrics) -> None:
    """Unknown where the ranks sat on other nodes than planned: the plan's subjects name nodes."""
    planned = rank_subjects(run.nodes, run.ranks_per_node)
    places = [f"{host}/rank{rank}" for rank, host in enumerate(metrics.observed.hosts)]
    elsewhere = places != planned
    if elsewhere:
        parsed.problems.append(
            f"{METRICS}:observed.hosts: ranks sat on {', '.join(places)}; planned were {', '.join(planned)}"
        )
    if elsewhere and metrics.world_size == len(planned):
        why = "ranks sat on other nodes than planned"
        parsed.saw("train.world_size", JOB, None, "count", f"{METRICS}:observed.hosts", why)
    else:
        parsed.saw("train.world_size", JOB, metrics.world_size, "count", f"{METRICS}:world_size")


def _why_no_speed(args: RunArgs, metrics: TrainMetrics) -> str | None:
    if metrics.resumed is None or metrics.steps_done - metrics.resumed.step > args.warmup_steps:
        return None
    return (
        f"it was resumed after step {metrics.resumed.step} of {metrics.steps_done}: no step is left after the warm-up"
    )


def _mfu(parsed: Parsed, args: RunArgs, metrics: TrainMetrics, no_speed: str | None) -> None:
    why = no_speed or metrics.mfu_reason
    if why is None and metrics.step_time_s.p50 < SHORTEST_STEP_S:
        why = (
            f"a step took {1000 * metrics.step_time_s.p50:.3g} ms, too little work to tell below "
            f"{1000 * SHORTEST_STEP_S:.0f} ms; set BRINGUP_TRAIN_ARGS to a real workload (training/README.md)"
        )
    parsed.saw("train.mfu", JOB, None if why else metrics.mfu, "share", f"{METRICS}:mfu", why)


def _resumed(parsed: Parsed, metrics: TrainMetrics) -> None:
    assert metrics.resumed is not None
    where, step = f"{METRICS}:resumed", metrics.resumed.step
    parsed.saw("train.resumed.step", JOB, step, "count", where)
    parsed.problems.append(f"{where}: it began after step {step}, with a checkpoint of {metrics.resumed.run}")
    parsed.problems += [f"{where}: passed over a damaged checkpoint: {line}" for line in metrics.resumed.passed_over]


def _slowdowns(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.straggler: a rank's own work over the lower median of all ranks' (of two ranks: over the other's).

    What exceeds it by less than NOISE_S is not a slowdown.
    """
    if metrics.world_size == 1:
        return
    slow = pace.slowdowns(metrics.rank_times_s)
    for rank, (host, own) in enumerate(zip(metrics.observed.hosts, slow, strict=True)):
        ratio = own.ratio
        if ratio is not None and own.excess_s <= NOISE_S:
            ratio = min(1.0, ratio)
        parsed.saw(
            "train.straggler",
            f"{host}/rank{rank}",
            ratio,
            "ratio",
            f"{METRICS}:rank_times_s",
            f"{own.part} {own.part_s:.4g} s, the median is {own.usual_s:.4g} s"
            if ratio is not None
            else "no own work was timed",
        )


def _memory(parsed: Parsed, args: RunArgs, check: MemoryCheck) -> None:
    """train.memory.states and .peak: measured / predicted. Below 1 GiB no peak is told from another (workspaces), and
    the peak is unknown.

    Fused kernels and compilers keep less than the plain operations that are predicted: then only more is a deviation,
    down to the least that any kernel leaves. A counter below that did not count: it shows nothing of the training.
    """
    states, peak, where = "train.memory.states", "train.memory.peak", f"{METRICS}:memory_check"
    parsed.saw(
        states,
        JOB,
        check.states_measured_bytes / check.states_predicted_bytes,
        "ratio",
        where,
        f"{_mib(check.states_measured_bytes)} on rank {check.states_rank}, "
        f"predicted {_mib(check.states_predicted_bytes)}",
    )
    fused = args.compile or args.recipe == "fast"
    ratio, why = _peak(check, fused=fused)
    parsed.saw(peak, JOB, ratio, "ratio", where, why)


def _peak(check: MemoryCheck, *, fused: bool) -> tuple[float | None, str | None]:
    """(measured / predicted, both numbers) or (None, why it is not known)."""
    measured, predicted, least = check.peak_measured_bytes, check.peak_predicted_bytes, check.peak_least_bytes
    if measured is None:
        return None, "without a GPU no allocator counts"
    if measured == 0:
        return None, "0 bytes were measured, and no training runs in 0 bytes: the allocator's counter did not count"
    if measured < least:
        return (
            None,
            f"{_mib(measured)} measured, at least {_mib(least)} are held at once: the counter is not of this run",
        )
    if predicted is None:
        return None, check.reason
    both = f"{_mib(measured)}, predicted {_mib(predicted)}"
    if max(measured, predicted) < _GIB:
        workload = "set BRINGUP_TRAIN_ARGS to a real workload (training/README.md)"
        return None, f"{both}: below 1 GiB workspaces decide; {workload}"
    ratio = max(measured, _GIB) / max(predicted, _GIB)
    return (max(1.0, ratio), f"{both} unfused") if fused else (ratio, both)


def _checkpoint(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.checkpoint.size: bytes of the last checkpoint that was written, else of the one that was read / predicted
    from the model before the first step."""
    times, gate, where = metrics.checkpoint, "train.checkpoint.size", f"{METRICS}:checkpoint"
    if times is None or times.predicted_bytes is None:
        why = metrics.checkpoint_reason if times is None else times.predicted_reason
        parsed.saw(gate, JOB, None, "ratio", where, why)
        return
    words = f"{_mib(times.bytes)}, predicted {_mib(times.predicted_bytes)}"
    parsed.saw(gate, JOB, times.bytes / times.predicted_bytes, "ratio", where, words)


def _device_memory(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.memory.headroom, a share of the smallest card, and train.memory.retries."""
    memory, where = metrics.memory, f"{METRICS}:memory"
    if memory.device_total_gib is None or memory.device_reserved_gib is None or memory.allocation_retries is None:
        why = "no GPU was used, or its memory was not reported"
        parsed.saw("train.memory.headroom", JOB, None, "share", where, why)
        parsed.saw("train.memory.retries", JOB, None, "count", where, why)
        return
    left = (memory.device_total_gib - memory.device_reserved_gib) / memory.device_total_gib
    words = f"{memory.device_reserved_gib:.1f} of {memory.device_total_gib:.1f} GiB were reserved"
    parsed.saw("train.memory.headroom", JOB, round(left, 4), "share", where, words)
    parsed.saw("train.memory.retries", JOB, memory.allocation_retries, "count", where)


def _pace(parsed: Parsed, metrics: TrainMetrics, no_speed: str | None) -> None:
    """train.step.tail: p95 / p50 of the steps. train.tokens_per_s_per_rank."""
    steps, where = metrics.step_time_s, f"{METRICS}:step_time_s"
    why = no_speed
    if why is None and steps.window_steps < FEWEST_STEPS_OF_A_TAIL:
        why = (
            f"{steps.window_steps} steps were measured; of fewer than {FEWEST_STEPS_OF_A_TAIL} the 95th percentile "
            "is the longest"
        )
    if why is None and steps.p50 < SHORTEST_STEP_S:
        why = f"a step took {1000 * steps.p50:.3g} ms, too little work to tell below {1000 * SHORTEST_STEP_S:.0f} ms"
    words = f"p95 {steps.p95:.4g} s, p50 {steps.p50:.4g} s"
    parsed.saw("train.step.tail", JOB, None if why else round(steps.p95 / steps.p50, 3), "ratio", where, why or words)
    speed = None if no_speed else metrics.tokens_per_s_per_rank
    parsed.saw("train.tokens_per_s_per_rank", JOB, speed, "tokens/s", f"{METRICS}:tokens_per_s_per_rank", no_speed)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def shard_count(observed: ObservedStrategy) -> int | None:
    """Ranks that share one copy of the parameters; None where nothing is sharded."""
    if observed.kind not in ("fsdp", "hsdp") or observed.mesh is None:
        return None
    return len(observed.mesh[0])


def farthest_replicas(observed: ObservedStrategy, checksums: list[float]) -> tuple[int, int] | None:
    """Ranks of one replica group whose parameter checksums differ most, the lower one first. None without replicas.

    Replica groups: all ranks under DDP, the columns of the mesh under HSDP.
    """
    if len(checksums) != len(observed.hosts):
        return None
    if observed.kind == "ddp":
        groups = [list(range(len(checksums)))]
    elif observed.kind == "hsdp" and observed.mesh is not None:
        groups = [list(column) for column in zip(*observed.mesh, strict=True)]
    else:
        return None
    ends = [(min(group, key=checksums.__getitem__), max(group, key=checksums.__getitem__)) for group in groups]
    return max(ends, key=lambda pair: checksums[pair[1]] - checksums[pair[0]])


def _against_reference(parsed: Parsed, args: RunArgs, metrics: TrainMetrics, reference: Reference | str) -> None:
    why = reference if isinstance(reference, str) else _why_not_comparable(args, reference)
    if isinstance(reference, str) or why is not None:
        for gate, unit in (
            ("train.loss.agrees", "nats"),
            ("train.grad_norm.agrees", "ratio"),
            ("train.scaling", "share"),
        ):
            parsed.saw(gate, JOB, None, unit, REFERENCE_METRICS, why)
        return
    _scaling(parsed, args, metrics, reference)
    losses, norms = (metrics.loss, reference.metrics.loss), (metrics.grad_norm, reference.metrics.grad_norm)
    _step_by_step(parsed, "train.loss.agrees", "nats", "loss", *losses, relative=False)
    _step_by_step(parsed, "train.grad_norm.agrees", "ratio", "grad_norm", *norms, relative=True)


def _why_not_comparable(args: RunArgs, reference: Reference) -> str | None:
    differing = differing_fields(reference.args, args)
    if reference.args.strategy != "single" or reference.metrics.world_size != 1:
        differing.append(f"it is a {reference.args.strategy} run on {reference.metrics.world_size} rank(s)")
    return f"not comparable with the one-GPU run: {'; '.join(differing)}" if differing else None


def _scaling(parsed: Parsed, args: RunArgs, metrics: TrainMetrics, reference: Reference) -> None:
    """Against a perfect step: rows are divided among all ranks, the optimizer's update among those that share its
    states. One GPU updates once for all its micro-steps; ranks with few micro-steps cannot."""
    one_gpu_s, optimizer_s = reference.metrics.step_time_s.p50, reference.metrics.rank_times_s.optimizer[0]
    shards = _shards(metrics)
    ideal_s = (one_gpu_s - optimizer_s) / metrics.world_size + optimizer_s / shards
    why = _why_no_speed(args, metrics)
    if why is None and ideal_s < SHORTEST_STEP_S:
        why = (
            f"a perfect step would take {1000 * ideal_s:.3g} ms on {metrics.world_size} ranks, too little work to tell "
            f"below {1000 * SHORTEST_STEP_S:.0f} ms; set BRINGUP_TRAIN_ARGS to a real workload (training/README.md)"
        )
    share = None
    if why is None:
        of_one_gpu = scaling(metrics, reference.metrics)
        share = of_one_gpu * ideal_s * metrics.world_size / one_gpu_s
        why = None if shards == metrics.world_size else f"{of_one_gpu:.3g} before the optimizer's update is counted"
    parsed.saw("train.scaling", JOB, share, "share", f"{METRICS}:tokens_per_s_per_rank, {REFERENCE_METRICS}", why)


def _shards(metrics: TrainMetrics) -> int:
    """Ranks among which the optimizer's states are divided."""
    observed = metrics.observed
    if observed.kind == "hsdp" and observed.mesh is not None:
        return len(observed.mesh[0])
    return metrics.world_size if observed.kind == "fsdp" else 1


def _step_by_step(
    parsed: Parsed, quantity: str, unit: str, field: str, ours: list[float], reference: list[float], *, relative: bool
) -> None:
    """The mean difference over the steps, absolute or as a share of the reference, and where it was largest. The mean:
    what is wrong stays wrong from its step on, and rounding in bfloat16 makes single steps of a sound run differ."""
    if len(ours) != len(reference) or not ours:
        parsed.saw(
            quantity, JOB, None, unit, f"{METRICS}:{field}", f"{len(ours)} steps, the reference has {len(reference)}"
        )
        return
    gaps = [abs(a - b) / (abs(b) if relative and b else 1.0) for a, b in zip(ours, reference, strict=True)]
    step = gaps.index(max(gaps))
    parsed.saw(
        quantity,
        JOB,
        statistics.fmean(gaps),
        unit,
        f"{METRICS}:{field}, {REFERENCE_METRICS}",
        f"most at step {step + 1}: {ours[step]:.6g}, the reference has {reference[step]:.6g}",
    )
