"""From the records of a training to observations under the gates' ids: ratios and gaps of their own fields. Pure."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from bringup.kernel.characters import many
from bringup.kernel.errors import RecordError
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.subjects import JOB, rank_subjects
from bringup.kernel.records import Run, Value
from bringup.kernel.results import METRICS, RUN_ARGS
from bringup.training.domain import stalls
from bringup.training.formulae import pace
from bringup.training.records import REFERENCE_METRICS, MemoryCheck, ObservedStrategy, RunArgs, TrainMetrics
from bringup.training.records.folder import TrainingRecords
from bringup.training.records.summary import differing_fields, scaling

_GIB = 2**30
FEWEST_STEPS_OF_A_TAIL = 20
NOISE_S = 0.001  # of a rank's own work in a step: what scheduling on a busy host takes
# of a perfect division of the work: below it launches and latencies are measured, which ranks do not share
SHORTEST_STEP_S = 0.1
_AGREE = {"train.loss.agrees": "nats", "train.grad_norm.agrees": "ratio"}  # gate of this field, step by step -> unit
_NO_REFERENCE = (
    "no finished one-GPU run was there to compare with; sbatch training/slurm/run_1gpu.sbatch, then this again"
)
_REAL = "set BRINGUP_TRAIN_ARGS to a real workload (training/README.md)"


@dataclass(frozen=True)
class Reference:
    """The one-GPU run that this one is compared with."""

    args: RunArgs
    metrics: TrainMetrics


def of_training(run: Run, records: TrainingRecords) -> Parsed:
    """Return what was measured; nothing but problems where the training did not finish."""
    parsed = Parsed(problems=records.problems)
    if records.are_whole:
        reference = None if PHASES[run.phase].strategy == "single" else _reference(parsed, records)
        parsed.add(of_records(run, records.args, records.metrics, reference))
    return parsed


def _reference(parsed: Parsed, records: TrainingRecords) -> Reference | str:
    """Return the one-GPU run's records, copied when this run was opened; or the reason why there are none."""
    if (metrics := records.reference_metrics) is None:
        return _NO_REFERENCE
    try:
        if isinstance(metrics, RecordError):
            raise metrics
        return Reference(records.reference_args, metrics)
    except RecordError as error:
        parsed.problems.append(records.within(error))
        return "the records of the one-GPU run cannot be read"


def of_records(run: Run, args: RunArgs, metrics: TrainMetrics, reference: Reference | str | None) -> Parsed:
    """Compare the records. reference: None where none is needed, a reason where there is none."""
    parsed = Parsed()
    _own(parsed, run, args, metrics)
    if reference is not None:
        _against_reference(parsed, args, metrics, reference)
    if (resumed := metrics.resumed) is not None:
        where = f"{METRICS}:resumed"
        parsed.problems.append(f"{where}: it began after step {resumed.step}, with a checkpoint of {resumed.run}")
        parsed.problems += [f"{where}: passed over a damaged checkpoint: {line}" for line in resumed.passed_over]
    return parsed


def _own(parsed: Parsed, run: Run, args: RunArgs, metrics: TrainMetrics) -> None:
    _world_size(parsed, run, metrics)
    wrong = list(contradictions(args, metrics))
    _saw(parsed, "train.records.agree", len(wrong), "count", f"tokens_per_s, {RUN_ARGS}", first_few(wrong))
    _saw(parsed, "train.strategy", metrics.observed.kind, "text", "observed.kind")
    different = metrics.observed.differs_from(args)
    _saw(parsed, "train.variant", len(different), "count", f"observed, {RUN_ARGS}", "; ".join(different))
    no_speed = _why_no_speed(args, metrics)
    speed = None if no_speed else metrics.tokens_per_s
    _saw(parsed, "train.tokens_per_s", speed, "tokens/s", "tokens_per_s", no_speed)
    if metrics.observed.backend == "gloo":
        _saw(parsed, "train.transport", metrics.transport, "text", "transport", metrics.transport_reason)
    _mfu(parsed, args, metrics, no_speed)
    _memory(parsed, args, metrics.memory_check)
    _checkpoint(parsed, metrics)
    _device_memory(parsed, metrics)
    _pace(parsed, metrics, no_speed)
    _slowdowns(parsed, metrics)
    parsed.add(stalls.of_metrics(metrics))
    wanted = args.global_batch * args.steps
    count, fields = metrics.sample_count, "sample_count,sample_distinct"
    short = None if count == wanted else f"{count} rows were consumed, {wanted} requested"
    _saw(parsed, "train.samples.repeated", None if short else count - metrics.sample_distinct, "count", fields, short)
    # an optimizer step that was never logged was not seen
    few = f"{len(metrics.loss)} of {args.steps} losses" if len(metrics.loss) < args.steps else None
    _saw(parsed, "train.loss.fell", None if few else metrics.loss[0] - metrics.loss[-1], "nats", "loss", few)
    _replicas(parsed, metrics)
    if (shards := shard_count(metrics.observed)) is not None:
        excess = metrics.observed.parameters_local_max * shards / metrics.observed.parameters
        _saw(parsed, "train.shard.size", excess, "ratio", "observed.parameters_local_max")
    if metrics.observed.kind == "hsdp" and metrics.observed.mesh is not None:
        _saw(parsed, "train.shard.inside_node", len(metrics.observed.scattered(args)), "count", "observed.mesh,hosts")


def _saw(parsed: Parsed, gate: str, value: Value | None, unit: str, field: str, why: str | None = None) -> None:
    """Of the job as a whole, from this field of metrics.json."""
    parsed.saw(gate, JOB, value, unit, f"{METRICS}:{field}", why or None)


def _world_size(parsed: Parsed, run: Run, metrics: TrainMetrics) -> None:
    """Unknown where the ranks sat on other nodes than planned: the plan's subjects name nodes."""
    planned = rank_subjects(run.nodes, run.ranks_per_node)
    places = [f"{host}/rank{rank}" for rank, host in enumerate(metrics.observed.hosts)]
    elsewhere = places != planned
    if elsewhere:
        sat = f"ranks sat on {', '.join(places)}; planned were {', '.join(planned)}"
        parsed.problems.append(f"{METRICS}:observed.hosts: {sat}")
    if elsewhere and metrics.world_size == len(planned):
        _saw(parsed, "train.world_size", None, "count", "observed.hosts", "ranks sat on other nodes than planned")
    else:
        _saw(parsed, "train.world_size", metrics.world_size, "count", "world_size")


def _why_no_speed(args: RunArgs, metrics: TrainMetrics) -> str | None:
    if metrics.resumed is None or metrics.steps_done - metrics.resumed.step > args.warmup_steps:
        return None
    step = metrics.resumed.step
    return f"it was resumed after step {step} of {metrics.steps_done}: no step is left after the warm-up"


def _mfu(parsed: Parsed, args: RunArgs, metrics: TrainMetrics, no_speed: str | None) -> None:
    why = no_speed or metrics.mfu_reason
    if why is None and metrics.step_time_s.p50 < SHORTEST_STEP_S:
        why = f"{_too_short('a step took', metrics.step_time_s.p50)}; {_REAL}"
    _saw(parsed, "train.mfu", None if why else metrics.mfu, "share", "mfu", why)


def _too_short(what: str, seconds: float, where: str = "") -> str:
    return f"{what} {1000 * seconds:.3g} ms{where}, too little work to tell below {1000 * SHORTEST_STEP_S:.0f} ms"


def _slowdowns(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.straggler: a rank's own work over the lower median of all ranks' (of two ranks: over the other's).

    What exceeds it by less than NOISE_S is not a slowdown.
    """
    if metrics.world_size == 1:
        return
    slow = pace.slowdowns(metrics.rank_times_s)
    for rank, (host, own) in enumerate(zip(metrics.observed.hosts, slow, strict=True)):
        ratio, why = own.ratio, "no own work was timed"
        if ratio is not None:
            why = f"{own.part} {own.part_s:.4g} s, the median is {own.usual_s:.4g} s"
            ratio = min(1.0, ratio) if own.excess_s <= NOISE_S else ratio
        parsed.saw("train.straggler", f"{host}/rank{rank}", ratio, "ratio", f"{METRICS}:rank_times_s", why)


def _memory(parsed: Parsed, args: RunArgs, check: MemoryCheck) -> None:
    """train.memory.states and .peak: measured / predicted. Below 1 GiB no peak is told from another (workspaces), and
    the peak is unknown.

    Fused kernels and compilers keep less than the plain operations that are predicted: then only more is a deviation,
    down to the least that any kernel leaves. A counter below that did not count: it shows nothing of the training.
    """
    measured, predicted = check.states_measured_bytes, check.states_predicted_bytes
    words = f"{_mib(measured)} on rank {check.states_rank}, predicted {_mib(predicted)}"
    _saw(parsed, "train.memory.states", measured / predicted, "ratio", "memory_check", words)
    ratio, why = _peak(check, fused=args.compile or args.recipe == "fast")
    _saw(parsed, "train.memory.peak", ratio, "ratio", "memory_check", why)


def _peak(check: MemoryCheck, *, fused: bool) -> tuple[float | None, str | None]:
    """Return (measured / predicted, both numbers) or (None, why it is not known)."""
    measured, predicted, least = check.peak_measured_bytes, check.peak_predicted_bytes, check.peak_least_bytes
    if measured is None:
        return None, "without a GPU no allocator counts"
    if measured == 0:
        return None, "0 bytes were measured, and no training runs in 0 bytes: the allocator's counter did not count"
    if measured < least:
        why = f"{_mib(measured)} measured, at least {_mib(least)} are held at once: the counter is not of this run"
        return None, why
    if predicted is None:
        return None, check.reason
    both = f"{_mib(measured)}, predicted {_mib(predicted)}"
    if max(measured, predicted) < _GIB:
        return None, f"{both}: below 1 GiB workspaces decide; {_REAL}"
    ratio = max(measured, _GIB) / max(predicted, _GIB)
    return (max(1.0, ratio), f"{both} unfused") if fused else (ratio, both)


def _checkpoint(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.checkpoint.size: bytes of the last checkpoint that was written, else of the one that was read / predicted
    from the model before the first step."""
    times, ratio = metrics.checkpoint, None
    if times is None or times.predicted_bytes is None:
        why = metrics.checkpoint_reason if times is None else times.predicted_reason
    else:
        ratio = times.bytes / times.predicted_bytes
        why = f"{_mib(times.bytes)}, predicted {_mib(times.predicted_bytes)}"
    _saw(parsed, "train.checkpoint.size", ratio, "ratio", "checkpoint", why)


def _device_memory(parsed: Parsed, metrics: TrainMetrics) -> None:
    """train.memory.headroom, a share of the smallest card, and train.memory.retries."""
    memory = metrics.memory
    total, reserved, retries = memory.device_total_gib, memory.device_reserved_gib, memory.allocation_retries
    if total is None or reserved is None or retries is None:
        for gate, unit in (("train.memory.headroom", "share"), ("train.memory.retries", "count")):
            _saw(parsed, gate, None, unit, "memory", "no GPU was used, or its memory was not reported")
        return
    words = f"{reserved:.1f} of {total:.1f} GiB were reserved"
    _saw(parsed, "train.memory.headroom", round((total - reserved) / total, 4), "share", "memory", words)
    _saw(parsed, "train.memory.retries", retries, "count", "memory")


def _pace(parsed: Parsed, metrics: TrainMetrics, no_speed: str | None) -> None:
    """train.step.tail: p95 / p50 of the steps. train.tokens_per_s_per_rank."""
    steps, why = metrics.step_time_s, no_speed
    if why is None and steps.window_steps < FEWEST_STEPS_OF_A_TAIL:
        fewer = f"of fewer than {FEWEST_STEPS_OF_A_TAIL} the 95th percentile is the longest"
        why = f"{steps.window_steps} steps were measured; {fewer}"
    if why is None and steps.p50 < SHORTEST_STEP_S:
        why = _too_short("a step took", steps.p50)
    tail, words = None if why else round(steps.p95 / steps.p50, 3), f"p95 {steps.p95:.4g} s, p50 {steps.p50:.4g} s"
    _saw(parsed, "train.step.tail", tail, "ratio", "step_time_s", why or words)
    speed = None if no_speed else metrics.tokens_per_s_per_rank
    _saw(parsed, "train.tokens_per_s_per_rank", speed, "tokens/s", "tokens_per_s_per_rank", no_speed)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def shard_count(observed: ObservedStrategy) -> int | None:
    """Count ranks that share one copy of the parameters; None where nothing is sharded."""
    if observed.kind not in ("fsdp", "hsdp") or observed.mesh is None:
        return None
    return len(observed.mesh[0])


def _replicas(parsed: Parsed, metrics: TrainMetrics) -> None:
    """At the end, and before the rehearsal of a resume: what is read back is the same on all replicas."""
    for field in ("parameter_checksums", "parameter_checksums_rehearsed"):
        sums = getattr(metrics, field)
        apart = None if sums is None else farthest_replicas(metrics.observed, sums)
        if apart is not None:
            low, high = (sums[rank] for rank in apart)
            why = f"rank {apart[0]} has {low!r}, rank {apart[1]} has {high!r}" if high != low else None
            _saw(parsed, "train.replicas.difference", high - low, "sum", field, why)


def farthest_replicas(observed: ObservedStrategy, checksums: list[float]) -> tuple[int, int] | None:
    """Find ranks of one replica group whose parameter checksums differ most, the lower one first. None: no replicas.

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
        for gate, unit in {**_AGREE, "train.scaling": "share"}.items():
            parsed.saw(gate, JOB, None, unit, REFERENCE_METRICS, why)
        return
    _scaling(parsed, args, metrics, reference)
    for gate, unit in _AGREE.items():
        field = gate.split(".")[1]
        _step_by_step(parsed, gate, unit, field, getattr(metrics, field), getattr(reference.metrics, field))


def _why_not_comparable(args: RunArgs, reference: Reference) -> str | None:
    differing = differing_fields(reference.args, args)
    if reference.args.strategy != "single" or reference.metrics.world_size != 1:
        differing.append(f"it is a {reference.args.strategy} run on {many(reference.metrics.world_size, 'rank')}")
    return f"not comparable with the one-GPU run: {'; '.join(differing)}" if differing else None


def _scaling(parsed: Parsed, args: RunArgs, metrics: TrainMetrics, reference: Reference) -> None:
    """Against a perfect step: rows are divided among all ranks, the optimizer's update among those that share its
    states. One GPU updates once for all its micro-steps; ranks with few micro-steps cannot."""
    one_gpu_s, optimizer_s = reference.metrics.step_time_s.p50, reference.metrics.rank_times_s.optimizer[0]
    shards = shard_count(metrics.observed) or 1
    ideal_s = (one_gpu_s - optimizer_s) / metrics.world_size + optimizer_s / shards
    why = _why_no_speed(args, metrics)
    if why is None and ideal_s < SHORTEST_STEP_S:
        why = f"{_too_short('a perfect step would take', ideal_s, f' on {metrics.world_size} ranks')}; {_REAL}"
    share = None
    if why is None:
        of_one_gpu = scaling(metrics, reference.metrics)
        share = of_one_gpu * ideal_s * metrics.world_size / one_gpu_s
        why = None if shards == metrics.world_size else f"{of_one_gpu:.3g} before the optimizer's update is counted"
    _saw(parsed, "train.scaling", share, "share", f"tokens_per_s_per_rank, {REFERENCE_METRICS}", why)


def _step_by_step(parsed: Parsed, gate: str, unit: str, field: str, ours: list[float], reference: list[float]) -> None:
    """Give the mean difference over the steps, absolute or as a share of the reference, and where it was largest. The
    mean: what is wrong stays wrong from its step on, and bfloat16 makes single steps of a sound run differ."""
    if len(ours) != len(reference) or not ours:
        _saw(parsed, gate, None, unit, field, f"{len(ours)} steps, the reference has {len(reference)}")
        return
    gaps = [abs(a - b) / (abs(b) if unit == "ratio" and b else 1.0) for a, b in zip(ours, reference, strict=True)]
    step = gaps.index(max(gaps))
    words = f"most at step {step + 1}: {ours[step]:.6g}, the reference has {reference[step]:.6g}"
    _saw(parsed, gate, statistics.fmean(gaps), unit, f"{field}, {REFERENCE_METRICS}", words)


# --- do the numbers of the records agree with each other? A program that counts wrongly, another version or a copy of a
# colleague's writes records that contradict themselves; a comparison would take its speed as it stands

CLOSE = 0.02  # relative: what rounding and a clock leave
CLOCK_S = 0.25  # between a host's clock and the timers of steps
LONGER, SHORTER = 2.0, 0.25  # times what the host's clock saw; what is between two steps is in no step
AHEAD = 2  # steps that a host may be ahead of its GPU, whose events time them


def contradictions(args: RunArgs, metrics: TrainMetrics) -> Iterator[str]:
    """Yield one sentence each: what a number is, and what the others make of it."""
    if args.world_size != metrics.world_size:
        yield f"run_args.json has world_size {args.world_size}, metrics.json {metrics.world_size}"
    rows = args.global_batch * args.sequence_length
    yield from _differ("tokens_per_step", metrics.tokens_per_step, rows, "global batch times sequence length")
    if metrics.steps_s:
        speed = metrics.tokens_per_step / statistics.fmean(metrics.steps_s)
        yield from _differ("tokens_per_s", metrics.tokens_per_s, speed, "tokens_per_step over the mean of steps_s")
        yield from _clock(metrics)
    each = metrics.tokens_per_s / metrics.world_size
    yield from _differ("tokens_per_s_per_rank", metrics.tokens_per_s_per_rank, each, "tokens_per_s over the ranks")
    times, p50 = metrics.rank_times_s, metrics.step_time_s.p50
    if not min(times.step_p50) * (1 - CLOSE) <= p50 <= max(times.step_p50) * (1 + CLOSE):
        yield f"step_time_s.p50 is {p50:.4g} s, that of the ranks {statistics.median(times.step_p50):.4g} s"
    if metrics.flops_per_token and metrics.tflops_per_rank is not None:
        tflops = metrics.flops_per_token * metrics.tokens_per_s_per_rank / 1e12
        made_of = "flops_per_token times tokens/s per rank"
        yield from _differ("tflops_per_rank", metrics.tflops_per_rank, tflops, made_of)
    if metrics.mfu is not None and metrics.tflops_per_rank is not None:
        share = metrics.tflops_per_rank / metrics.peak_tflops if metrics.peak_tflops else math.inf
        yield from _differ("mfu", metrics.mfu, share, "tflops_per_rank over peak_tflops")
    own = times.fetch, times.forward, times.optimizer
    if metrics.world_size > 1 and metrics.straggler is None and any(map(any, own)):
        yield "straggler is null, and the ranks' own work was timed"


def _differ(name: str, recorded: float, made: float, of: str) -> Iterator[str]:
    if not math.isclose(recorded, made, rel_tol=CLOSE):
        yield f"{name} is {recorded:.6g}, {of} gives {made:.6g}"


def _clock(metrics: TrainMetrics) -> Iterator[str]:
    """Yield a sentence if the steps of the window did not take as long as the host's clock saw."""
    ends, count, timed = metrics.steps_unix_s, len(metrics.steps_s), sum(metrics.steps_s)
    if len(ends) <= count:
        return
    seen = ends[-1] - ends[-1 - count]
    most = LONGER * seen + CLOCK_S + AHEAD * timed / count
    if not SHORTER * seen - CLOCK_S <= timed <= most:
        yield f"steps_s makes {timed:.4g} s, the ends of the same steps by the host's clock {seen:.4g} s"
