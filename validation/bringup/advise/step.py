"""The time of a step of a training that ran, as `bringup advise` predicts it, beside the measured one.

Compute: FLOPs / (peak of the GPU that was used x MFU). The MFU is that of the one-GPU run that is kept with the run and
recomputed as it did, otherwise the range that others published. Communication: bytes by formula / bandwidth: measured,
otherwise promised by the profile.
"""

from __future__ import annotations

from dataclasses import replace

from bringup.advise import answer, bandwidth
from bringup.errors import RecordError
from bringup.formulae import models
from bringup.formulae.flops import peak_bf16_tflops
from bringup.plan.ceiling import Machine, Mfu, Sourced
from bringup.plan.profile import Profile
from bringup.records import ModelShape, RunArgs, TrainMetrics


def predicted(
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
