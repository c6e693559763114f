"""Which strategy to train with: memory, traffic and step time of each, computed before anything runs. Pure
arithmetic.

Formulae: memory.py, traffic.py, models.py (each names its sources). An MFU that is given or measured is that of the
step as it will run, so that recomputation has lowered it already; one that a profile assumes has not paid for it,
unless it says `recomputed`. Without one, what others published for this GPU and setting is a range. Step time: at the
highest MFU everything overlaps = max(compute, communication), at the lowest nothing does = their sum.
"""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bringup.kernel.characters import many
from bringup.kernel.errors import RecordError, RunError, UsageError
from bringup.kernel.judge import Judged
from bringup.kernel.plan.ceiling import Machine, Mfu, Sourced
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import grouped
from bringup.readers import curve
from bringup.training.advise import bandwidth
from bringup.training.formulae import memory, published, traffic
from bringup.training.formulae.flops import flops_per_token
from bringup.training.formulae.models import KINDS, NAMES, Job, Kind, shard_sizes
from bringup.training.records import Advice, Fits, ModelShape, PredictedStrategy
from bringup.training.records.folder import records_of

GB = 1e9
NEARLY = 1.05  # times within 5 % are not told apart: the simpler strategy is taken
MARGIN = 0.05  # of the memory of a GPU: how far a predicted peak may be from torch's own count


@dataclass(frozen=True)
class Question:
    """What is to be trained on what. layout: of all strategies, but for their kind and micro-steps."""

    shape: ModelShape
    layout: Job
    global_batch: int  # rows per optimizer step over all GPUs
    model: str | None = None  # as the programs take it; None: the name of the shape


@dataclass(frozen=True)
class Known:
    """What is known of the cluster. headroom: the share of a GPU's memory that the profile wants left. peak_factor: a
    measured peak / the formula's."""

    profile: str
    machine: Machine
    source: bandwidth.Promised | bandwidth.Measured
    headroom: float = 0.0
    peak_factor: Sourced | None = None


def known(profile: Profile, judged: Sequence[Judged], mfu: float | None) -> Known:
    """Read from training runs the MFU and how far the peak was from the formula's, from other runs the bandwidth, and
    the rest from a profile. Raises RunError, RecordError."""
    reached: Mfu | None = None
    factor, others = None, []
    for run in judged:
        if run.objection is not None:
            raise RunError(f"{run.folder}: {run.objection}; leave it out of --from")
        if not PHASES[run.run.phase].is_training:
            if not curve.curves(run.observations):
                raise RecordError(f"{run.folder}: {run.run.phase} measured no bandwidth; leave it out of --from")
            others.append(run)
            continue
        if (records := records_of(run)) is None:
            raise RecordError(f"{run.folder}: this training did not finish; leave it out of --from")
        metrics = records.metrics
        if metrics.mfu is None:
            raise RecordError(f"{run.folder}: has no MFU ({metrics.mfu_reason}); leave it out of --from")
        measured_by = f"measured by {run.folder.name} ({metrics.observed.kind}, {metrics.model})"
        reached = Mfu(value=metrics.mfu, source=measured_by, recomputed=True)
        peak = metrics.memory_check
        if peak.peak_measured_bytes and peak.peak_predicted_bytes:
            factor = Sourced(value=peak.peak_measured_bytes / peak.peak_predicted_bytes, source=measured_by)
    if mfu is not None:
        reached = Mfu(value=mfu, source="assumed on the command line (--mfu)", recomputed=True)
    machine = profile.machine if reached is None else profile.machine.model_copy(update={"mfu": reached})
    source = bandwidth.measured(others) if others else bandwidth.Promised(profile)
    wanted = profile.expect.get("train.memory.headroom")
    headroom = wanted.at_least if wanted is not None and isinstance(wanted.at_least, float) else 0.0
    return Known(profile.name, machine, source, headroom, factor)


def jobs(question: Question) -> list[Job]:
    """Return the layouts that machine and batch allow. A strategy gets the micro-steps that the global batch needs."""
    layouts, asked = [], question.layout
    for kind in KINDS:
        shard_size, each = asked.shard_size if kind == "hsdp" else None, asked.sync_each_batch and kind != "single"
        job = replace(asked, kind=kind, shard_size=shard_size, sync_each_batch=each)
        accumulation, rest = divmod(question.global_batch, job.ranks * job.rows)
        parallel = kind == "single" or job.ranks > 1
        hybrid = kind != "hsdp" or (job.nodes > 1 and job.shards > 1)
        if parallel and hybrid and accumulation and not rest:
            layouts.append(replace(job, accumulation=accumulation))
    return layouts


@dataclass(frozen=True)
class Times:
    """Seconds of a step. None: `unknown` says why."""

    compute: tuple[float, float] | None  # at the highest MFU; at the lowest
    communication: float | None
    sources: list[str]
    unknown: list[str]

    @property
    def step(self) -> tuple[float, float] | None:
        """Return the time at the highest MFU, where all communication overlaps; at the lowest, where nothing does."""
        if self.compute is None or self.communication is None:
            return None
        return max(self.compute[0], self.communication), self.compute[1] + self.communication


def times(shape: ModelShape, job: Job, facts: Known) -> Times:
    """Return times of computing, and of the communication of what the step sends."""
    unknown: list[str] = []
    compute = _compute_s(shape, job, facts, unknown)
    communication: float | None = 0.0
    sources = []
    for collective in traffic.collectives(shape, job):
        duration = bandwidth.seconds(collective, facts.source, job.nodes, job.gpus_per_node)
        if isinstance(duration, str):
            unknown.append(f"communication: {duration}")
            communication = None
        else:
            sources.append(duration[1])
            communication = None if communication is None else communication + duration[0]
    return Times(compute, communication, list(dict.fromkeys(sources)), list(dict.fromkeys(unknown)))


def predict(shape: ModelShape, job: Job, facts: Known) -> PredictedStrategy:
    """Predict memory, traffic and time of one strategy; what cannot be known is null and named."""
    parts = memory.peak(shape, job)
    collectives = traffic.collectives(shape, job)
    unknown: list[str] = []
    room = facts.machine.gpu_memory_gib
    if room is None:
        unknown.append(f"whether it fits: profile {facts.profile} declares no machine.gpu_memory_gib")
    # what an advised run leaves has to pass the gate of it too
    wanted = 0 if room is None else int(facts.headroom * room.value * memory.GIB)
    outside = max(memory.OUTSIDE[min(job.ranks, 2)], wanted)
    fragments = memory.fragments(shape, job, parts)
    peak = parts.total * (facts.peak_factor.value if facts.peak_factor else 1)
    took = times(shape, job, facts)
    tokens = job.global_batch * job.sequence_length
    return PredictedStrategy(
        strategy=job.kind,
        ranks=job.ranks,
        shards=job.shards,
        rows=job.rows,
        accumulation=job.accumulation,
        peak_parts_gib={field.name: getattr(parts, field.name) / memory.GIB for field in fields(parts)},
        peak_gib=peak / memory.GIB,
        states_gib=memory.states(shape, job.shards).total / memory.GIB,
        fragments_gib=fragments / memory.GIB,
        outside_gib=outside / memory.GIB,
        fits=None if room is None else _fits((peak + fragments + outside) / memory.GIB / room.value),
        sent_inside_gb=traffic.sent_inside(collectives, job) / GB,
        leaving_node_gb=traffic.leaving_node(collectives, job) / GB,
        compute_s=None if took.compute is None else list(took.compute),
        communication_s=took.communication,
        step_s=None if took.step is None else list(took.step),
        tokens_per_s=None if took.step is None else [tokens / seconds for seconds in reversed(took.step)],
        sources=took.sources,
        unknown=[*unknown, *took.unknown],
    )


def _fits(share: float) -> Fits:
    return "fits" if share <= 1 - MARGIN else "may not fit" if share <= 1 else "does not fit"


def mfu_of(machine: Machine, *, recomputed: bool, compiled: bool) -> Mfu | None:
    """Return what the machine is known to reach, otherwise what others published."""
    peak = machine.peak_bf16_tflops
    if machine.mfu is not None or peak is None:
        return machine.mfu
    if (span := published.span(peak.source, recomputed=recomputed, compiled=compiled)) is None:
        return None
    most = span.high if span.high > span.low else None
    return Mfu(value=span.low, most=most, source=span.source, recomputed=True)


def _compute_s(shape: ModelShape, job: Job, facts: Known, unknown: list[str]) -> tuple[float, float] | None:
    """FLOPs of a rank's step / (peak x MFU), at the highest and at the lowest. Recomputation repeats the forward pass,
    a third of the FLOPs of a step, where the MFU has not paid for it."""
    peak = facts.machine.peak_bf16_tflops
    mfu = mfu_of(facts.machine, recomputed=job.activation_checkpointing, compiled=job.chunked_loss)
    per_token = flops_per_token(shape, job.sequence_length)
    if per_token is None:
        unknown.append(f"compute time: the FLOPs of {shape.name} are not covered: {shape.not_covered}")
    elif job.compute_bytes == memory.MASTER:
        unknown.append("compute time: the peak is for bfloat16, this is float32")
    elif peak is None:
        unknown.append(f"compute time: profile {facts.profile} declares no machine.peak_bf16_tflops")
    elif mfu is None:
        cure = "give --mfu, or --from a training run"
        unknown.append(f"compute time: no MFU; {cure} (profile {facts.profile} assumes none)")
    else:
        flops = per_token * job.tokens * job.accumulation
        again = job.activation_checkpointing and not mfu.recomputed
        at_all = flops * (4 / 3 if again else 1) / (peak.value * 1e12)
        return at_all / (mfu.most or mfu.value), at_all / mfu.value
    return None


def advise(question: Question, facts: Known) -> Advice:
    """Compare the strategies. Raises UsageError when none can divide the global batch."""
    asked, shape = question.layout, question.shape
    sizes = shard_sizes(asked.nodes, asked.gpus_per_node) if asked.nodes > 1 else []
    if asked.shard_size is not None and asked.shard_size not in sizes:
        raise UsageError(
            f"--shard-size {asked.shard_size}: a shard group is a part of a node or whole nodes, and there are 2 or "
            f"more; on {many(asked.nodes, 'node')} of {asked.gpus_per_node} GPUs: "
            f"{', '.join(map(str, sizes)) or 'none is possible'}"
        )
    layouts = jobs(question)
    if not layouts:
        least = f"{asked.nodes * asked.gpus_per_node} GPUs x {many(asked.rows, 'row')}"
        raise UsageError(f"--global-batch {question.global_batch} is not a multiple of {least}")
    if asked.sync_each_batch and not any(job.sync_each_batch and job.accumulation > 1 for job in layouts):
        why = "a step has one micro-step; give a larger --global-batch"
        raise UsageError(f"--sync-each-batch changes nothing here: {why}")
    strategies = [predict(shape, job, facts) for job in layouts]
    use, why = choose(strategies)
    if use is None and any(strategy.fits for strategy in strategies):
        why += f"; {_what_would_fit(question, facts)}"
    machine = facts.machine
    mfu = mfu_of(machine, recomputed=asked.activation_checkpointing, compiled=asked.chunked_loss)
    return Advice(
        model=shape.name,
        parameters=shape.parameters,
        nodes=asked.nodes,
        gpus_per_node=asked.gpus_per_node,
        sequence_length=asked.sequence_length,
        global_batch=question.global_batch,
        compute_dtype="float32" if asked.compute_bytes == memory.MASTER else "bfloat16",
        reduce_dtype="float32" if asked.reduce_bytes == memory.MASTER else "bfloat16",
        activation_checkpointing=asked.activation_checkpointing,
        fast=asked.chunked_loss,
        profile=facts.profile,
        gpu_memory_gib=machine.gpu_memory_gib.value if machine.gpu_memory_gib else None,
        mfu=None if mfu is None else [mfu.value, mfu.most or mfu.value],
        assumptions=[
            f"{name} {entry.value:.3g}{f' to {most:.3g}' if most else ''}: {entry.source}"
            for name, entry, most in (
                ("GPU memory, GiB", machine.gpu_memory_gib, None),
                ("peak, TFLOP/s", machine.peak_bf16_tflops, None),
                ("MFU", mfu, mfu and mfu.most),
                ("measured peak / predicted peak", facts.peak_factor, None),
            )
            if entry is not None
        ],
        strategies=strategies,
        use=use,
        why=why,
        command=next((_command(question, each) for each in strategies if each.strategy == use), None),
    )


def choose(strategies: Sequence[PredictedStrategy]) -> tuple[Kind | None, str]:
    """Return (strategy or None, why). Of those that fit the one with the shortest step when nothing overlaps; times
    within 5 % are equal, and then the simpler one. Without times: the one that sends least out of a node, then least
    inside.

    One GPU is only named where there is no other: it is the reference, and no answer to what N GPUs should do.
    """
    parallel = [strategy for strategy in strategies if strategy.strategy != "single"] or list(strategies)
    if any(strategy.fits is None for strategy in parallel):
        return None, "what fits is unknown"
    fitting = [strategy for strategy in parallel if strategy.fits == "fits"]  # simplest first, as they were computed
    others = grouped((strategy.fits, NAMES[strategy.strategy]) for strategy in parallel if strategy.fits != "fits")
    near = f", within {100 * MARGIN:g} % of the memory"
    refused = [f"{word}{near if word == 'may not fit' else ''}: {', '.join(names)}" for word, names in others.items()]
    beside = f" ({'; '.join(refused)})" if refused and (fitting or "may not fit" in others) else ""
    if not fitting:
        return None, f"none fits{beside}"
    if len(fitting) == 1:
        return fitting[0].strategy, f"the only one that fits{beside}"
    longest = [(strategy.step_s[1], strategy) for strategy in fitting if strategy.step_s]
    if len(longest) < len(fitting):
        best = min(fitting, key=lambda strategy: (strategy.leaving_node_gb, strategy.sent_inside_gb))
        return best.strategy, f"it fits and sends least, between nodes first{beside}; step times are unknown"
    least = min(step_s for step_s, _ in longest)
    best = next(strategy for step_s, strategy in longest if step_s <= least * NEARLY)
    return best.strategy, f"the shortest step if nothing overlaps, or within 5 % of it and simpler{beside}"


def _what_would_fit(question: Question, facts: Known) -> str:
    """Return the fewest and cheapest options with which a strategy fits."""
    asked = question.layout
    world = asked.nodes * asked.gpus_per_node
    whole = max(1, question.global_batch // world)
    cures: list[tuple[str, str, Any]] = [
        ("--activation-checkpointing", "activation_checkpointing", True),
        ("--sync-each-batch", "sync_each_batch", True),
        ("--rows 1", "rows", 1),
        (f"--rows {whole}", "rows", whole),  # one micro-step
        ("--reduce-dtype bfloat16", "reduce_bytes", 2),
    ]
    cures = [cure for cure in cures if getattr(asked, cure[1]) != cure[2]]
    for count in range(1, len(cures) + 1):
        for some in itertools.combinations(cures, count):
            changed = replace(asked, **{name: value for _, name, value in some})
            wanted = [job for job in jobs(replace(question, layout=changed)) if job.kind != "single" or world == 1]
            fitting = [each for each in (predict(question.shape, job, facts) for job in wanted) if each.fits == "fits"]
            if fitting:
                named = (f"{NAMES[each.strategy]} ({each.needed_gib:.0f} GiB)" for each in fitting)
                these = "this does" if len(fitting) == 1 else "these do"
                return f"with {' and '.join(words for words, _, _ in some)} {these}: {', '.join(named)}"
    return "take more nodes or shorter sequences"


def _command(question: Question, chosen: PredictedStrategy) -> str:
    """Write the command of a run of what was advised."""
    nodes = question.layout.nodes
    strategy = "fsdp" if chosen.strategy == "zero2" else chosen.strategy
    widest = [phase for phase in PHASES.values() if phase.strategy == strategy and phase.min_nodes <= nodes][-1]
    allocated = nodes if chosen.strategy != "single" else 1
    return shlex.join(["sbatch", f"--nodes={allocated}", widest.script, *program_options(question, chosen)])


def program_options(question: Question, chosen: PredictedStrategy) -> list[str]:
    """Return what the program of this strategy takes, to train what was computed. Rows and recomputation are always
    named: the workload of the profile, which comes before these options, may have others."""
    asked, kind = question.layout, chosen.strategy
    words = ["--model", question.model or question.shape.name, "--sequence-length", str(asked.sequence_length)]
    words += ["--global-batch", str(question.global_batch), "--rows-at-once", str(chosen.rows)]
    words.append("--activation-checkpointing" if asked.activation_checkpointing else "--no-activation-checkpointing")
    optional = {
        ("--recipe", "fast"): asked.chunked_loss,
        ("--no-bf16",): asked.compute_bytes == memory.MASTER,
        ("--sync-each-batch",): chosen.accumulation > 1 and asked.sync_each_batch and kind != "single",
        ("--shard-size", str(asked.shard_size)): asked.shard_size is not None and kind == "hsdp",
        ("--no-reshard-after-forward",): kind == "zero2",
        ("--reduce-dtype", "bfloat16"): asked.reduce_bytes != memory.MASTER and kind in ("zero2", "fsdp", "hsdp"),
    }
    return words + [word for option, is_given in optional.items() if is_given for word in option]
