"""Training records and the launcher's log -> observations. Ratios and gaps are computed here, from the records' own fields."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from bringup.errors import RecordError
from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.plan.phases import PHASES
from bringup.plan.subjects import rank_subjects, scale_name
from bringup.records import MemoryCheck, Observation, ObservedStrategy, Run, RunArgs, TrainMetrics, read_record
from bringup.results import METRICS, REFERENCE_ARGS, REFERENCE_METRICS, RUN_ARGS

_JOB = "job"
_GIB = 2**30
NOISE_S = 0.001  # of a rank's own work in a step: what scheduling on a busy host takes; GPUs do the default model's work in less
SHORTEST_STEP_S = (
    0.1  # of a perfect division of the work: below, launches and latencies are measured, which no rank takes over
)


def derive(seen: Seen, run: Run) -> Parsed:
    parsed = Parsed()
    if PHASES[run.phase].is_training:
        _devices(parsed, seen, run)
    return parsed


def _devices(parsed: Parsed, seen: Seen, run: Run) -> None:
    """train.device, what all ranks computed on; train.device.fallback, ranks on the CPU of a node whose driver lists GPUs."""
    places = rank_subjects(run.nodes, run.ranks_per_node)
    devices = {device.subject: device for device in seen.of("train.rank.device")}
    listed = {count.subject: count for count in seen.of("train.rank.driver_gpus")}
    if not devices:
        return
    where = next(iter(devices.values())).evidence
    unsaid = [place for place in places if place not in devices or devices[place].value is None]
    kinds = sorted(
        {"cpu" if device.value == "cpu" else "cuda" for device in devices.values() if device.value is not None}
    )
    why = f"{len(unsaid)} of {len(places)} ranks did not say their device, first {unsaid[0]}" if unsaid else None
    parsed.saw("train.device", _JOB, None if unsaid else " and ".join(kinds), "text", where, why)
    bypassed = [
        place
        for place in places
        if place in devices and devices[place].value == "cpu" and _is_positive(listed.get(place))
    ]
    uncounted = [place for place in places if place not in listed or listed[place].value is None]
    if bypassed:
        count = listed[bypassed[0]]
        remark = f"first {bypassed[0]}: the driver lists {count.value} GPUs, torch sees none"
        parsed.saw("train.device.fallback", _JOB, len(bypassed), "count", count.evidence, remark)
    elif unsaid or uncounted:
        first = (unsaid or uncounted)[0]
        parsed.saw(
            "train.device.fallback", _JOB, None, "count", where, f"{first} did not say its device and its driver's GPUs"
        )
    else:
        parsed.saw("train.device.fallback", _JOB, 0, "count", where)


def _is_positive(observation: Observation | None) -> bool:
    return observation is not None and is_number(observation.value) and observation.value > 0


def differing_fields(one: RunArgs, other: RunArgs) -> list[str]:
    """Fields outside the strategy in which two runs differ: `learning_rate 0.001 vs 0.01`. Empty: comparable."""
    left, right = one.model_dump(), other.model_dump()
    return [
        f"{name} {left[name]} vs {right[name]}"
        for name in left
        if name not in RunArgs.STRATEGY and left[name] != right[name]
    ]


def metrics(folder: Path, run: Run, *, single: bool) -> Parsed:
    """metrics.json of a training run, compared with the one-GPU reference beside it."""
    parsed = Parsed()
    try:
        args, found = read_record(folder / RUN_ARGS, RunArgs), read_record(folder / METRICS, TrainMetrics)
    except RecordError as error:
        parsed.problems.append(str(error).replace(f"{folder}/", ""))
        return parsed
    _own(parsed, args, found)
    if not single:
        _against_reference(parsed, folder, args, found)
    _planned_places(parsed, run, found)
    return parsed


def _own(parsed: Parsed, args: RunArgs, found: TrainMetrics) -> None:
    parsed.saw("train.world_size", _JOB, found.world_size, "count", f"{METRICS}:world_size")
    parsed.saw("train.strategy.kind", _JOB, found.observed.kind, "text", f"{METRICS}:observed.kind")
    different = found.observed.differs_from(args)
    parsed.saw(
        "train.variant.differences",
        _JOB,
        len(different),
        "count",
        f"{METRICS}:observed, {RUN_ARGS}",
        "; ".join(different) or None,
    )
    parsed.saw("train.tokens_per_s", _JOB, found.tokens_per_s, "tokens/s", f"{METRICS}:tokens_per_s")
    if found.observed.backend == "gloo":
        parsed.saw("train.transport", _JOB, found.transport, "text", f"{METRICS}:transport", found.transport_reason)
    _memory(parsed, args, found.memory_check)
    _slowdowns(parsed, found)
    wanted = args.global_batch * args.steps
    short = None if found.sample_count == wanted else f"{found.sample_count} rows were consumed, {wanted} asked for"
    parsed.saw(
        "train.samples.repeated",
        _JOB,
        None if short else found.sample_count - found.sample_distinct,
        "count",
        f"{METRICS}:sample_count,sample_distinct",
        short,
    )
    # an optimizer step that was never logged is no step that was seen
    if len(found.loss) < args.steps:
        parsed.saw(
            "train.loss.drop", _JOB, None, "nats", f"{METRICS}:loss", f"{len(found.loss)} of {args.steps} losses"
        )
    else:
        parsed.saw("train.loss.drop", _JOB, found.loss[0] - found.loss[-1], "nats", f"{METRICS}:loss")
    apart = farthest_replicas(found.observed, found.parameter_checksums)
    if apart is not None:
        low, high = (found.parameter_checksums[rank] for rank in apart)
        parsed.saw(
            "train.replicas.difference",
            _JOB,
            high - low,
            "sum",
            f"{METRICS}:parameter_checksums",
            f"rank {apart[0]} has {low!r}, rank {apart[1]} has {high!r}" if high != low else None,
        )
    shards = shard_count(found.observed)
    if shards is not None:
        excess = found.observed.parameters_local_max * shards / found.observed.parameters
        parsed.saw("train.shard.excess", _JOB, excess, "ratio", f"{METRICS}:observed.parameters_local_max")
    if found.observed.kind == "hsdp" and found.observed.mesh is not None:
        across = [row for row in found.observed.mesh if len({found.observed.hosts[rank] for rank in row}) > 1]
        parsed.saw("train.shard.groups_across_hosts", _JOB, len(across), "count", f"{METRICS}:observed.mesh,hosts")


def transport(parsed: Parsed, folder: Path, run: Run) -> None:
    """train.transport under nccl: its own words, when one process of every node left a log. To be called when those were read."""
    nodes, scale = len(run.nodes), scale_name(len(run.nodes))
    if not any(
        one.quantity == "nccl.backend" and (one.subject, one.value) == (scale, "nccl") for one in parsed.observations
    ):
        return
    where = f"raw/nccl-{nodes}"
    # nccl.HOST.PID.log: two processes of one node are one node
    telling = len(
        {
            path.stem.rpartition(".")[0]
            for path in (folder / where).glob("*.log")
            if "NCCL INFO" in path.read_text(encoding="utf-8", errors="replace")
        }
    )
    said = [one for one in parsed.observations if (one.quantity, one.subject) == ("nccl.transport", scale)]
    if telling < nodes or not said:
        parsed.saw(
            "train.transport",
            _JOB,
            None,
            "text",
            where,
            f"{telling} of {nodes} nodes left a log of NCCL; an NCCL_DEBUG that was set by hand suppresses it",
        )
        return
    parsed.saw("train.transport", _JOB, said[-1].value, "text", said[-1].evidence, said[-1].why)


def _slowdowns(parsed: Parsed, found: TrainMetrics) -> None:
    """train.rank.slowdown: a rank's own work over the lower median of all ranks' (of two ranks: over the other's).

    What exceeds it by less than NOISE_S is no slowdown.
    """
    times = found.rank_times_s
    if times is None or found.world_size == 1:
        return
    parts = {"fetch": times.fetch, "forward": times.forward, "optimizer": times.optimizer}
    own = [math.fsum(values) for values in zip(*parts.values(), strict=True)]
    usual, usual_of = (
        statistics.median_low(own),
        {part: statistics.median_low(values) for part, values in parts.items()},
    )
    for rank, (host, mine) in enumerate(zip(found.observed.hosts, own, strict=True)):
        excess = {part: values[rank] - usual_of[part] for part, values in parts.items()}
        part = max(excess, key=excess.__getitem__)
        slowdown = None if usual <= 0 else mine / usual if mine - usual > NOISE_S else min(1.0, mine / usual)
        parsed.saw(
            "train.rank.slowdown",
            f"{host}/rank{rank}",
            slowdown,
            "ratio",
            f"{METRICS}:rank_times_s",
            f"{part} {parts[part][rank]:.4g} s, the median is {usual_of[part]:.4g} s"
            if usual > 0
            else "no own work was timed",
        )


def _memory(parsed: Parsed, args: RunArgs, check: MemoryCheck | None) -> None:
    """train.memory.states and .peak: measured / predicted. Below 1 GiB no peak is told from another: the rest is workspaces.

    Fused kernels and compilers keep less than the plain operations that are predicted: then only more than that is a deviation.
    """
    states, peak, where = "train.memory.states", "train.memory.peak", f"{METRICS}:memory_check"
    if check is None or check.states_predicted_bytes is None or check.peak_predicted_bytes is None:
        why = "this run is older than the prediction" if check is None else check.reason
        parsed.saw(states, _JOB, None, "ratio", where, why)
        parsed.saw(peak, _JOB, None, "ratio", where, why)
        return
    parsed.saw(
        states,
        _JOB,
        check.states_measured_bytes / check.states_predicted_bytes,
        "ratio",
        where,
        f"{_mib(check.states_measured_bytes)} on rank {check.states_rank}, predicted {_mib(check.states_predicted_bytes)}",
    )
    if check.peak_measured_bytes is None:
        parsed.saw(peak, _JOB, None, "ratio", where, "without a GPU no allocator counts")
        return
    fused = args.compile or args.recipe == "fast"
    ratio = max(check.peak_measured_bytes, _GIB) / max(check.peak_predicted_bytes, _GIB)
    parsed.saw(
        peak,
        _JOB,
        max(1.0, ratio) if fused else ratio,
        "ratio",
        where,
        f"{_mib(check.peak_measured_bytes)}, predicted {_mib(check.peak_predicted_bytes)}{' unfused' if fused else ''}",
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def shard_count(observed: ObservedStrategy) -> int | None:
    """Ranks that share one copy of the parameters; None where nothing is sharded."""
    if observed.kind not in ("fsdp", "hsdp") or observed.mesh is None:
        return None
    return len(observed.mesh[0])


def farthest_replicas(observed: ObservedStrategy, checksums: list[float]) -> tuple[int, int] | None:
    """Ranks of one replica group whose parameter checksums differ most, the lower one first; None where there are no replicas.

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


def _against_reference(parsed: Parsed, folder: Path, args: RunArgs, found: TrainMetrics) -> None:
    gap, norm_gap, efficiency = "train.loss.reference_gap", "train.grad_norm.reference_gap", "train.scaling.efficiency"
    if not (folder / REFERENCE_METRICS).is_file():
        why = (
            "no finished one-GPU run was there to compare with; sbatch training/slurm/run_1gpu.sbatch, then this again"
        )
        parsed.saw(gap, _JOB, None, "nats", REFERENCE_METRICS, why)
        parsed.saw(norm_gap, _JOB, None, "ratio", REFERENCE_METRICS, why)
        parsed.saw(efficiency, _JOB, None, "share", REFERENCE_METRICS, why)
        return
    try:
        reference_args = read_record(folder / REFERENCE_ARGS, RunArgs)
        reference = read_record(folder / REFERENCE_METRICS, TrainMetrics)
    except RecordError as error:
        parsed.problems.append(str(error).replace(f"{folder}/", ""))
        return
    differing = differing_fields(reference_args, args)
    if reference_args.strategy != "single" or reference.world_size != 1:
        differing.append(f"it is a {reference_args.strategy} run on {reference.world_size} rank(s)")
    if differing:
        why = f"not comparable with the one-GPU run: {'; '.join(differing)}"
        parsed.saw(gap, _JOB, None, "nats", RUN_ARGS, why)
        parsed.saw(norm_gap, _JOB, None, "ratio", RUN_ARGS, why)
        parsed.saw(efficiency, _JOB, None, "share", RUN_ARGS, why)
        return
    _scaling(parsed, efficiency, found, reference)
    _step_by_step(parsed, gap, "nats", "loss", found.loss, reference.loss, relative=False)
    _step_by_step(parsed, norm_gap, "ratio", "grad_norm", found.grad_norm, reference.grad_norm, relative=True)


def _scaling(parsed: Parsed, quantity: str, found: TrainMetrics, reference: TrainMetrics) -> None:
    evidence, ideal_s = (
        f"{METRICS}:tokens_per_s_per_rank, {REFERENCE_METRICS}",
        reference.step_time_s.p50 / found.world_size,
    )
    if ideal_s < SHORTEST_STEP_S:
        parsed.saw(
            quantity,
            _JOB,
            None,
            "share",
            evidence,
            f"a perfect step would take {1000 * ideal_s:.3g} ms on {found.world_size} ranks, too little work to tell below "
            f"{1000 * SHORTEST_STEP_S:.0f} ms; set BRINGUP_TRAIN_ARGS to a real workload (training/README.md)",
        )
        return
    parsed.saw(quantity, _JOB, found.tokens_per_s_per_rank / reference.tokens_per_s_per_rank, "share", evidence)


def _step_by_step(
    parsed: Parsed, quantity: str, unit: str, field: str, ours: list[float], reference: list[float], *, relative: bool
) -> None:
    """The largest difference over the steps, absolute or as a share of the reference, and where it was."""
    if len(ours) != len(reference) or not ours:
        parsed.saw(
            quantity, _JOB, None, unit, f"{METRICS}:{field}", f"{len(ours)} steps, the reference has {len(reference)}"
        )
        return
    gaps = [abs(a - b) / (abs(b) if relative and b else 1.0) for a, b in zip(ours, reference, strict=True)]
    step = gaps.index(max(gaps))
    parsed.saw(
        quantity,
        _JOB,
        gaps[step],
        unit,
        f"{METRICS}:{field}, {REFERENCE_METRICS}",
        f"at step {step + 1}: {ours[step]:.6g}, the reference has {reference[step]:.6g}",
    )


def _planned_places(parsed: Parsed, run: Run, found: TrainMetrics) -> None:
    """A rank that sat on another node than planned is said: the plan's subjects name nodes."""
    planned = rank_subjects(run.nodes, run.ranks_per_node)
    seen = [f"{host}/rank{rank}" for rank, host in enumerate(found.observed.hosts)]
    if seen != planned:
        parsed.saw(
            "train.world_size",
            _JOB,
            None,
            "count",
            f"{METRICS}:observed.hosts",
            "ranks sat on other nodes than planned",
        )
        parsed.problems.append(
            f"{METRICS}:observed.hosts: ranks sat on {', '.join(seen)}; planned were {', '.join(planned)}"
        )
