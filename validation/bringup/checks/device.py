"""The two gates on the device that a program computed on, for the rooms of compute, collectives and training."""

from __future__ import annotations

from bringup.plan.drill import NoDrill
from bringup.plan.gate import Fixed, FromProfile, Gate, Per
from bringup.plan.guide import Guide
from bringup.records import Action

GUIDE = Guide(
    title="The device that was used",
    page="02-infrastructure-validation",
    action=Action.CONFIGURE,
    observes=(
        "The type of the device that a program computed on, as torch gave it: `cuda` or `cpu`. And how many GPUs "
        "the driver of the node lists (`/proc/driver/nvidia/gpus`) while the program computed on the CPU. The "
        "profile says which type is expected. The second gate needs no profile: it fails wherever a driver lists "
        "GPUs and torch sees none."
    ),
    why=(
        "Without a GPU that torch can see, every program of this playbook computes on the CPU and talks over gloo. "
        "Results are right, losses fall, and the exit code is 0. Nothing else in the run shows that no GPU was "
        "used."
    ),
    usually_means=(
        "The driver is older than the CUDA version that torch was built for, or the CPU build of torch is "
        "installed. `CUDA_VISIBLE_DEVICES` may be empty in the job, or a container may have been started without "
        "its GPUs. A type that is not the expected one while the second gate passes: the node has no driver, or the "
        "wrong profile was chosen. *Incomplete*: the profile declares no type (`generic` does not know the "
        "cluster), or the program ended before it reported one."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} nvidia-smi --query-gpu=driver_version --format=csv",
        (
            "srun --nodes=1 --nodelist={node} .venv/bin/python -c 'import torch; print(torch.__version__, "
            "torch.version.cuda); torch.cuda.init()'"
        ),
        "srun --nodes=1 --nodelist={node} env | grep -E 'CUDA_VISIBLE|NVIDIA_VISIBLE|SLURM_JOB_GPUS'",
    ),
    by_hand=(
        "`torch.cuda.init()` says why it fails. Install a driver that fits `torch.version.cuda`, or a torch that "
        "was built for an older CUDA. A profile of your own declares the type: `one_of: [cuda]`."
    ),
)


def gates(prefix: str, phases: tuple[str, ...], bears_on: tuple[str, ...], per: Per) -> tuple[Gate, Gate]:
    """`prefix`.device and `prefix`.device.fallback."""
    return (
        Gate(
            id=f"{prefix}.device",
            phases=phases,
            bears_on=bears_on,
            per=per,
            proves="the program computed on the type of device that the profile names",
            unit="text",
            rule="one_of",
            expect=FromProfile(),
            guide=GUIDE,
        ),
        Gate(
            id=f"{prefix}.device.fallback",
            phases=phases,
            bears_on=bears_on,
            per=per,
            proves="the program did not compute on the CPU of a node whose driver lists GPUs",
            unit="count",
            rule="equals",
            expect=Fixed(0),
            guide=GUIDE,
        ),
    )


NO_DRILL = (
    NoDrill(
        gates=("smoke.compute.device", "nccl.device", "train.device"),
        reason="a local cluster has one type of device, and its profile names it",
        test="checks/test_devices.py",
    ),
)
