"""What CUDA and the driver print about a GPU. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "GPU"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="gpu.ecc",
        area=_AREA,
        pattern=r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE",
        cause="a GPU's memory gave wrong data",
        do="nvidia-smi -q -d ECC,ROW_REMAPPER on the node; drain it, reset the GPU, replace it if it comes again",
        source="CUDA",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Signature(
        id="gpu.out-of-memory",
        area=_AREA,
        pattern=r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|OutOfMemoryError: CUDA",
        cause="the model, its states and the activations do not fit into the GPU",
        do="bringup advise --model MODEL …; shard (FSDP), --activation-checkpointing, a smaller batch; nvidia-smi: a foreign process?",
        source="torch.OutOfMemoryError",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    Signature(
        id="gpu.no-driver",
        area=_AREA,
        pattern=r"CUDA driver version is insufficient|Found no NVIDIA driver|no kernel image is available|NVIDIA driver on your system is too old|couldn't communicate with the NVIDIA driver|Driver/library version mismatch|unsupported display driver",
        cause="the driver is missing, is older than this build of torch needs, or was updated while its old module stayed loaded",
        do="nvidia-smi on the node; the same driver on all nodes? (discovery.gpu.driver)",
        source="CUDA",
        example="RuntimeError: Found no NVIDIA driver on your system.",
    ),
    Signature(
        id="gpu.busy",
        area=_AREA,
        pattern=r"CUDA-capable device\(s\) is/are busy or unavailable|CUDA_ERROR_(NO_DEVICE|INVALID_DEVICE)|no CUDA-capable device|No CUDA GPUs are available",
        cause="the task sees no GPU that it may open: none was granted, exclusive mode, or a fallen GPU",
        do="srun --gpus-per-task=1 nvidia-smi -L; nvidia-smi -q -d COMPUTE; dmesg -T | grep -i xid",
        source="CUDA",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    Signature(
        id="gpu.fabric",
        area=_AREA,
        pattern=r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|CUDA error:? 802\b|Error 802\b|Failed to bind NVLink SHARP"
        r"|transport/nvls\.cc\S* .*(Cuda failure|CUDA error)|(p2p|mnnvl)\S*\.cc\S* .*(Cuda failure|CUDA error) 801\b|\bIMEX\b.*(not|fail|error)",
        cause="the NVLink fabric is not ready: the fabric manager or the IMEX daemon does not run, or ran when the GPUs were reset",
        do="systemctl status nvidia-fabricmanager nvidia-imex on the node, and the same version as the driver; nvidia-smi -q | grep -A 4 Fabric; restart it with a reset of all GPUs",
        source="CUDA; NCCL nvls.cc",
        example="h1:420:437 [5] transport/nvls.cc:379 (nvlsAllocateMem) NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.",
    ),
    Signature(
        id="gpu.xid",
        area=_AREA,
        pattern=r"NVRM: Xid|SXid \(PCI|NVRM: .*(fallen off the bus|RmInitAdapter failed|rm_init_adapter failed|is not supported by the)",
        cause="the driver reported a fault of a GPU or of an NVSwitch",
        do="docs/07-failure-modes.md#xids says what each message asks for",
        source="NVIDIA driver",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    ),
    Signature(
        id="gpu.illegal-access",
        area=_AREA,
        pattern=r"CUDA error: (an illegal memory access|device-side assert|misaligned address|unspecified launch failure)",
        cause=(
            "a kernel failed: in most cases a fault of the program; a fault of the GPU when it happens on one GPU only"
        ),
        do="run again with CUDA_LAUNCH_BLOCKING=1; on another node: does it stay with the GPU or with the program?",
        source="CUDA",
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
)
