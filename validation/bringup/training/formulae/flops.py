"""Model FLOPs per token and the peak of the device: the two numbers that make an MFU.

Three conventions are in use, and an MFU without its convention says nothing. All count forward and backward, 2 FLOPs
per multiply-add, and the LM head. None counts the embedding look-up or recomputation:
full      attention over the whole S x S square although the mask is causal (PaLM appendix B; torchtitan, MosaicML).
          This project uses it
causal    half of that square (NVIDIA's Megatron-Bridge): 11 to 14 % less at 8k tokens
linear    no attention: 6 x the parameters that are matrices
A sliding window is a mask too: full and causal count as if there were none.

PaLM (arXiv 2204.02311), appendix B: 6 W + 12 L H d S per token. W: weights of linear layers, L layers, H heads, d head
size, S sequence. A training holds it against what torch's FlopCounterMode counts in a step of its model, and has no
MFU where that is not the same (training/src/recipe/model_shape.py).
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from bringup.domains import parts
from bringup.kernel.errors import FileError
from bringup.kernel.plan.profile import Profile as Profile
from bringup.kernel.plan.profile import load
from bringup.kernel.results import PROFILE
from bringup.training.records import ModelShape


def flops_per_token(shape: ModelShape, sequence_length: int) -> float | None:
    """Count training FLOPs per token. None where the shape says that its FLOPs are not covered."""
    if shape.not_covered is not None:
        return None
    square = sequence_length * sum(like.layers * like.heads * like.head_size for like in shape.attention)
    return 6.0 * shape.matmul_parameters + 12.0 * square


def profile_of(run_dir: Path) -> Profile | None:
    """Return that of a run; None in a folder that `bringup open` did not make."""
    with contextlib.suppress(FileError):
        return load(str(run_dir / PROFILE))
    return None


def peak_bf16_tflops(device_name: str, profile: Profile | None = None) -> tuple[float, str] | None:
    """Return (TFLOP/s, source) of one device, or None: an unknown GPU gets no peak rather than a wrong one. What a
    profile declares itself, and does not have from a part, counts more.

    A MIG slice keeps the name of the whole card, so it is unknown too. A power cap does not show in the name.
    """
    own = None if profile is None else profile.machine.peak_bf16_tflops
    if own is not None and own not in (parts.of_gpu(gpu.part).machine.peak_bf16_tflops for gpu in parts.index().gpus):
        return own.value, own.source
    gpu = parts.gpu_called(device_name)
    peak = None if gpu is None else parts.of_gpu(gpu.part).machine.peak_bf16_tflops
    return None if peak is None else (peak.value, peak.source)


@dataclass(frozen=True)
class Efficiency:
    """An MFU and what it was computed from: mfu = FLOPs per token x tokens/s of one rank / (peak_tflops x 10^12)."""

    flops_per_token: float | None
    peak_tflops: float | None
    peak_source: str | None
    mfu: float | None
    mfu_reason: str | None  # why it is None


def efficiency(
    shape: ModelShape,
    sequence_length: int,
    tokens_per_s_per_rank: float,
    device_name: str | None,
    compute_dtype: str,
    profile: Profile | None = None,
) -> Efficiency:
    """Compute the MFU of one rank, or say why there is none. `device_name` None: a CPU. profile: that of the run."""
    per_token = flops_per_token(shape, sequence_length)
    peak = None if device_name is None else peak_bf16_tflops(device_name, profile)
    tflops, source = peak or (None, None)
    if device_name is None:
        reason = "no peak is known for cpu"
    elif per_token is None:
        reason = f"FLOPs of {shape.name} are not covered: {shape.not_covered}"
    elif tflops is None:
        reason = f"no peak is known for {device_name}"
    elif compute_dtype != "bfloat16":
        reason = f"the peak is for bfloat16, this run computed in {compute_dtype}"
    else:
        return Efficiency(per_token, tflops, source, per_token * tokens_per_s_per_rank / (tflops * 1e12), None)
    return Efficiency(per_token, tflops, source, None, reason)
