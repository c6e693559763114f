"""What PyTorch and torchrun print. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "PyTorch"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="torch.port-in-use",
        area=_AREA,
        patterns=(
            r"EADDRINUSE",
            r"Address already in use",
            r"address already in use",
        ),
        cause="another process has the port: an earlier job's rank that was not cleaned up, or two jobs with one port",
        do="ss -ltnp | grep PORT on the master; proctrack/cgroup ends left-over processes; choose MASTER_PORT by job id",
        source="torch TCPStore",
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
    ),
    Signature(
        id="torch.late",
        area=_AREA,
        patterns=(
            r"ranks did not arrive within",
            r"launchers did not start in time",
        ),
        cause=(
            "the ranks or nodes that the line names did not start in time: slow imports from a shared filesystem, or "
            "a node that does not launch it"
        ),
        do="srun -w NODE .venv/bin/python -X importtime -c 'import torch' on a node that it names; when it is only slow: export BRINGUP_START_S=1800 (seconds, default 600)",
        source="infrastructure-validation/probes/arrival.py",
        example="1 of 256 ranks did not arrive within 600 s: rank 17 (n2); BRINGUP_START_S sets how long to wait",
    ),
    Signature(
        id="torch.rendezvous",
        area=_AREA,
        patterns=(
            r"RendezvousTimeoutError",
            r"RendezvousConnectionError",
            r"DistStoreError",
            r"The client socket has (timed out|failed)",
            r"DistNetworkError",
        ),
        cause="the ranks did not all find the master: a node did not start, the name resolves to another address, or a port is closed",
        do="getent ahostsv4 MASTER on every node (not 127.0.1.1?); did each node start torchrun? see raw/launch.log",
        source="torch.distributed",
        example="torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (n0, 29500).",
    ),
    Signature(
        id="torch.not-a-number",
        area=_AREA,
        patterns=(
            r"has loss (nan|inf|-inf)",
            r"Unexpected result (nan|inf|-inf)\b",
            r"has loss .* gradient norm (nan|inf)",
        ),
        cause="the loss or the gradient is not a number: learning rate, data, or a GPU that computes wrongly",
        do="lower --learning-rate; if it stays with one node, run smoke there (smoke.compute.*)",
        source="training/src; Megatron-LM",
        example="TrainingError: step 4 of 12 has loss nan and gradient norm nan, expected finite numbers; lower --learning-rate",
    ),
    Signature(
        id="torch.without-cuda",
        area=_AREA,
        patterns=(r"Torch not compiled with CUDA enabled",),
        cause="this torch is the CPU build",
        do="python -c 'import torch; print(torch.__version__, torch.version.cuda)' in the job; make venv without TORCH_INDEX",
        source="torch.cuda",
        example="AssertionError: Torch not compiled with CUDA enabled",
    ),
    Signature(
        id="torch.nccl",
        area=_AREA,
        patterns=(
            r"DistBackendError: NCCL error",
            r"nccl(UnhandledCuda|System|Internal)Error\b",
            r"ncclInvalid(Usage|Argument)\b",
        ),
        role="either",
        breadth="program",
        cause="NCCL ended with an error, and torch repeats it",
        do=(
            "read the text after 'Last error:', and the NCCL WARN lines of that rank; NCCL_DEBUG=INFO when there is "
            "none"
        ),
        source="torch ProcessGroupNCCL",
        example="torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.21.5",
    ),
    Signature(
        id="torch.hangup",
        area=_AREA,
        patterns=(r"got signal: 1\b", r"Signal 1 \(SIGHUP\)"),
        cause="the launcher lost its terminal: the ssh session or the shell that started it was closed",
        do="start it in a batch job (sbatch), or in tmux",
        source="torchelastic",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1",
    ),
    Signature(
        id="torch.killed",
        area=_AREA,
        patterns=(
            r"exitcode\s*:\s*-(9|11|7)\b",
            r"Signal (9|11|7) \(SIG\w+\) received by PID",
        ),
        cause="a rank was ended by a signal: 9 the kernel's memory killer or a person, 11 and 7 a crash or a full /dev/shm",
        do="dmesg -T | grep -iE 'killed process|segfault' on its node; df -h /dev/shm",
        source="torchelastic",
        example="  exitcode   : -9 (pid: 4711)",
    ),
    Signature(
        id="torch.aborted",
        area=_AREA,
        patterns=(
            r"exitcode\s*:\s*-6\b",
            r"Signal 6 \(SIGABRT\) received by PID",
        ),
        # these end their own rank so
        not_after=r"[Ww]atchdog caught|Heartbeat monitor timed out|watchdog got stuck|watchdog thread terminated",
        cause="a rank ended itself (abort): an assertion in a library, or an error that was not caught",
        do="the lines of that rank before it ended; a core file and its stack, where cores are kept",
        source="torchelastic",
        example="  exitcode   : -6 (pid: 4711)",
    ),
)
