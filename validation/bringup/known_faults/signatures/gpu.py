"""What CUDA and the driver print about a GPU. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "GPU"


def _cuda(number: str, name: str, words: str) -> tuple[str, ...]:
    """An error of CUDA wherever it stands: by its number (cudaError_t), its name, or its words. NCCL prints `Cuda failure
    2 'out of memory'`, older ones `Cuda failure 'out of memory'`; torch `CUDA error: out of memory`, or `Error 802: …`."""
    return (
        rf"Cuda failure (?:({number})\b|'({words}))",
        rf"CUDA error:? (?:({number})\b|'?({words}))",
        rf"CUDA_ERROR_({name})\b",
        rf"cudaGetDeviceCount\(\).* Error ({number}): ",
    )


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="gpu.ecc",
        area=_AREA,
        patterns=(r"uncorrectable ECC error", *_cuda("214", "ECC_UNCORRECTABLE", "uncorrectable ECC")),
        cause="a GPU's memory gave wrong data",
        do="nvidia-smi -q -d ECC,ROW_REMAPPER on the node; drain it, reset the GPU, replace it if it comes again",
        source="CUDA",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Signature(
        id="gpu.out-of-memory",
        area=_AREA,
        patterns=(
            r"CUDA out of memory",
            r"torch\.(cuda\.)?OutOfMemoryError",
            r"OutOfMemoryError: CUDA",
            *_cuda("2", "OUT_OF_MEMORY", "out of memory"),
        ),
        cause="the model, its states and the activations do not fit into the GPU",
        do="bringup advise --model MODEL …; shard (FSDP), --activation-checkpointing, a smaller batch; nvidia-smi: a foreign process?",
        source="torch.OutOfMemoryError; CUDA, also through NCCL",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    Signature(
        id="gpu.no-driver",
        area=_AREA,
        patterns=(
            r"CUDA driver version is insufficient",
            r"Found no NVIDIA driver",
            r"no kernel image is available",
            r"NVIDIA driver on your system is too old",
            r"couldn't communicate with the NVIDIA driver",
            r"Driver/library version mismatch",
            r"unsupported display driver",
            *_cuda("35|803|804", "SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED_ON_DEVICE", "CUDA driver version"),
        ),
        cause="the driver is missing, is older than this build of torch needs, or was updated while its old module stayed loaded",
        do="nvidia-smi on the node; the same driver on all nodes? (discovery.gpu.driver)",
        source="CUDA",
        example="RuntimeError: Found no NVIDIA driver on your system.",
        as_warning=True,  # torch warns of it, and sees no GPU
    ),
    Signature(
        id="gpu.busy",
        area=_AREA,
        patterns=(
            r"CUDA-capable device\(s\) is/are busy or unavailable",
            r"no CUDA-capable device",
            r"No CUDA GPUs are available",
            *_cuda("46|100|101", "NO_DEVICE|INVALID_DEVICE|DEVICE_UNAVAILABLE", "invalid device ordinal"),
        ),
        cause="the task sees no GPU that it may open: none was granted, exclusive mode, or a fallen GPU",
        do="srun --gpus-per-task=1 nvidia-smi -L; nvidia-smi -q -d COMPUTE; dmesg -T | grep -i xid",
        source="CUDA",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        as_warning=True,  # torch warns of it, and sees no GPU
    ),
    Signature(
        id="gpu.fabric",
        area=_AREA,
        patterns=(
            *_cuda("802", "SYSTEM_NOT_READY", "system not yet initialized"),
            r"system not yet initialized",
            r"Failed to bind NVLink SHARP",
            r"transport/nvls\.cc\S* .*(Cuda failure|CUDA error)",
            r"p2p\S*\.cc\S* .*(Cuda failure|CUDA error) (800|801)\b",
            r"mnnvl\S*\.cc\S* .*(Cuda failure|CUDA error) (800|801)\b",
            r"IMEX\b.*(not|fail|error)",
        ),
        cause="the NVLink fabric is not ready: the fabric manager or the IMEX daemon does not run, or ran when the GPUs were reset; or the job may not open an IMEX channel",
        do="systemctl status nvidia-fabricmanager nvidia-imex on the node, and the same version as the driver; nvidia-smi -q | grep -A 4 Fabric; ls /dev/nvidia-caps-imex-channels in the job; restart it with a reset of all GPUs",
        source="CUDA; NCCL nvls.cc, p2p.cc",
        example="h1:420:437 [5] transport/nvls.cc:379 (nvlsAllocateMem) NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.",
        as_warning=True,  # torch warns of it, and sees no GPU
    ),
    Signature(
        id="gpu.peer-access",
        area=_AREA,
        patterns=(
            r"peer access is not supported between these two devices",
            *_cuda("217|711", "PEER_ACCESS_UNSUPPORTED|TOO_MANY_PEERS", "peer mapping resources exhausted"),
        ),
        cause="two GPUs of a node do not reach each other's memory: no NVLink or no PCIe path between them, more than eight peers over PCIe, or each process sees its own GPU alone",
        do="nvidia-smi topo -m and nvidia-smi topo -p2p r on the node; all GPUs of the node visible to each rank (--gpus-per-node, not --gpus-per-task)? ACS and IOMMU of the PCIe switches",
        source="CUDA, cudaErrorPeerAccessUnsupported; NCCL p2p.cc",
        example="h1:8213:8240 [1] transport/p2p.cc:275 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",
    ),
    Signature(
        id="gpu.nvlink",
        area=_AREA,
        patterns=(
            r"Invalid access of peer GPU memory over nvlink",
            *_cuda("220", "NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"),
        ),
        role="either",
        cause="a GPU could not reach the memory of its peer over NVLink: the peer's process had ended, or a link or the GPU is faulty",
        do="the first rank that ended is the one to look at; when all ranks were alive: nvidia-smi nvlink -e, and dmesg -T | grep -iE 'xid|sxid' on its node",
        source="CUDA 12.8 and later",
        example="RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
    ),
    Signature(
        id="gpu.xid",
        area=_AREA,
        patterns=(
            r"NVRM: Xid",
            r"SXid \(PCI",
            r"NVRM: .*(fallen off the bus|RmInitAdapter failed|rm_init_adapter failed|is not supported by the)",
        ),
        cause="the driver reported a fault of a GPU or of an NVSwitch",
        do="docs/07-failure-modes.md#xids says what each message asks for",
        source="NVIDIA driver",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    ),
    Signature(
        id="gpu.illegal-access",
        area=_AREA,
        patterns=_cuda(
            "700|710|716|719",
            "ILLEGAL_ADDRESS|ASSERT|MISALIGNED_ADDRESS|LAUNCH_FAILED",
            "an illegal memory access|device-side assert|misaligned address|unspecified launch failure",
        ),
        cause=(
            "a kernel failed: in most cases a fault of the program; a fault of the GPU when it happens on one GPU only"
        ),
        do="run again with CUDA_LAUNCH_BLOCKING=1; on another node: does it stay with the GPU or with the program?",
        source="CUDA",
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
)
