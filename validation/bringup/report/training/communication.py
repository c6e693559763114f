"""The communication of a training beside what the collectives of the same report reached alone; and the time of a step
as `bringup advise` predicts it."""

from __future__ import annotations

from dataclasses import replace

from bringup.kernel.errors import RecordError
from bringup.kernel.plan.ceiling import Machine, Mfu, Sourced
from bringup.kernel.plan.profile import Profile
from bringup.report.training.trained import Trained
from bringup.training.advise import answer, bandwidth
from bringup.training.formulae import models
from bringup.training.formulae.flops import peak_bf16_tflops
from bringup.training.formulae.traffic import Collective
from bringup.training.records import CollectiveTime, Communication, ModelShape, RunArgs, TrainMetrics

NO_CURVE = "no run of the collectives is in this report"


def shares(trained: Trained) -> str | None:
    """Say in which share of a profiled step a rank only communicated."""
    measured, share = trained.metrics.communication, trained.metrics.communication_share
    if measured is None or share is None:
        reason = trained.metrics.communication_reason
        return None if reason is None else f"not known: {reason}"
    least, most = (100 * edge(measured.exposed_s) / measured.step_s for edge in (min, max))
    return f"{100 * share:.1f} %, by rank {least:.1f} to {most:.1f} %; a profiled step took {measured.step_s:.4g} s"


def seconds(trained: Trained) -> str | None:
    """Say how many seconds of a step, with what overlaps, and how many the collectives phase predicts."""
    measured = trained.metrics.communication
    if measured is None:
        return None  # the line of the shares says why
    return f"{min(measured.total_s):.4g} s on the rank that waited least, {_predicted(trained, measured)}"


def speeds(trained: Trained) -> str | None:
    """Return bus bandwidth of each kind of collective."""
    measured = trained.metrics.communication
    if measured is None:
        return None  # the line of the shares says why
    return (
        "; ".join(_speed(trained, each) for each in measured.collectives) or f"not known: {measured.collectives_reason}"
    )


def inspected(trained: Trained) -> str | None:
    """Say what NCCL's Inspector plugin measured in all steps; None where it did not run."""
    operations = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
    words = [
        f"{operation} {busbw.value:.3g} GB/s, {busbw.subject} ({busbw.why})"
        for operation in operations
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
