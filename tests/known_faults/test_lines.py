"""Each known fault is told from its line, and what healthy nodes print is not a fault."""

import os
import re

from bringup import results as runs
from bringup.known_faults import signs
from bringup.known_faults.signatures import IN_ORDER, SIGNATURES
from loops import for_each
from runs_for_tests import FIXTURES, discovery


@for_each("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_a_line_as_the_program_prints_it_bears_the_signature(signature):
    sign = signs.match(signature.example)
    assert sign is not None
    assert sign.id == signature.id


@for_each(
    ("line", "signature"),
    [
        ("srun: error: Unable to allocate resources: Requested nodes are busy", "slurm.busy"),
        ("salloc: error: Job submit/allocate failed: Requested nodes are busy", "slurm.busy"),
        ("srun: error: Memory specification can not be satisfied", "slurm.not-placeable"),
        (
            "srun: error: Unable to create step for job 7: Memory required by task is not available",
            "slurm.not-placeable",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
            "slurm.not-placeable",
        ),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "slurm.refused"),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
            "submit limit, user's size "
            "and/or time limits)",
            "slurm.refused",
        ),
        ("srun: error: Task launch for StepId=5.0 failed on node n1: Job credential expired", "slurm.munge"),
        (
            "srun: error: Task launch for StepId=5.0 failed on node n1: Communication connection failure",
            "slurm.node-unreachable",
        ),
        # another munge key, in Slurm 22.05 to 24.11, and in 26.05
        (
            "srun: error: Task launch for StepId=5.0 failed on node n1: Zero Bytes were transmitted or received",
            "slurm.munge",
        ),
        ("srun: error: Task launch for StepId=3.0 failed on node n1: Protocol authentication error", "slurm.munge"),
        ("srun: error: Unable to allocate resources: Zero Bytes were transmitted or received", "slurm.not-started"),
    ],
)  # fmt: skip
def test_the_reason_counts_and_not_the_frame_in_which_slurm_says_it(line, signature):
    sign = signs.match(line)
    assert sign is not None
    assert sign.id == signature


def test_a_step_that_waits_for_the_one_before_it_is_no_fault():
    assert signs.match("srun: Job 3 step creation temporarily disabled, retrying (Requested nodes are busy)") is None


REAL = [
    # why Slurm did not start a task is behind the colon; public issue trackers
    (
        "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x34000004.",
        "slurm.cpu-bind",
    ),  # ascii-supply-networks/dagster-slurm 64
    (
        "srun: error: Task launch for StepId=1932.2 failed on node rzwhippet40: Unable to satisfy cpu bind request",
        "slurm.cpu-bind",
    ),  # llnl/ATS 133
    (
        "srun: error: Task launch for StepId=125452.0 failed on node n7: Unable to layout tasks on given cpus",
        "slurm.cpu-bind",
    ),  # snakemake-executor-plugin-slurm 225
    (
        "srun: error: Unable to create step for job 16413634: Invalid generic resource (gres) specification",
        "slurm.step-gpus",
    ),  # mehta-lab/recOrder 482
    (
        "srun: error: Unable to allocate resources: Socket timed out on send/recv operation",
        "slurm.controller-away",
    ),  # AMDResearch/hpcfund 83
    (
        "srun: error: Task launch for StepId=7.0 failed on node n1: Socket timed out on send/recv operation",
        "slurm.node-unreachable",
    ),
    ("srun: error: Task launch for StepId=7.0 failed on node n1: Unspecified error", "slurm.not-started"),
    ("srun: error: Task launch for StepId=7.0 failed on node n1: User not found on host", "slurm.user"),
    ("srun: error: Node failure on n3", "slurm.node-failure"),
    ("srun: error: Something is wrong with the boot of the nodes.", "slurm.boot"),
    # NVLink fabric
    (
        "gpu46:78367:78492 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        "gpu.fabric",
    ),  # NVIDIA/nccl 1562
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "gpu.fabric",
    ),
    # a line of NCCL is explained by NCCL's words; what the line is about comes before the errno at its end
    (
        "h0:173:3266 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable",
        "nccl.remote-gone",
    ),  # NVIDIA/nccl 1610
    (
        "ubuntu:39964:40044 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by "
        "remote peer node1<57557>",
        "nccl.remote-gone",
    ),  # NVIDIA/nccl-tests 166
    (
        "h1:1:9 [0] misc/socket.cc:50 NCCL WARN Call to recv from 10.0.0.2<4> failed : Connection reset by peer",
        "nccl.remote-gone",
    ),
    ("h1:1:9 [0] misc/socket.cc:50 NCCL WARN Connect to 10.0.0.2<4> failed : Connection refused", "nccl.connect"),
    (
        "h1:1:9 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        "nccl.ib-path",
    ),  # NVIDIA/nccl-tests 185
    (
        "h1:1:9 [0] misc/ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        "nccl.ib-path",
    ),  # NVIDIA/nccl-tests 227
    (
        "h1:1:9 [0] misc/ibvwrap.cc:99 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        "nccl.ib-memlock",
    ),
    (
        "h1:1:9 [0] misc/ibvwrap.cc:99 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "nccl.ib-memlock",
    ),
    (
        "RuntimeError: NCCL error: Last error: Call to ibv_reg_mr failed with error Cannot allocate memory",
        "nccl.ib-memlock",
    ),
    ("h1:1:9 [0] misc/ibvwrap.cc:99 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address", "nccl.ib-setup"),
    (
        "h100-28:238:1219 [0] transport/net_ib.cc:2451 NCCL WARN NET/IB: Got completion from peer "
        "172.16.12.34<38081> with "
        "status=4 opcode=0 len=0 vendor err 83 (Send) hca mlx5_ib0",
        "nccl.ib-completion",
    ),  # NVIDIA/nccl 1905
    (
        "h51:73076:73185 [4] transport/net_ib.cc:1238 NCCL WARN NET/IB : Got completion from peer "
        "node48<37948> with error 12",
        "nccl.ib-completion",
    ),  # Lightning-AI/lit-llama 380
    (
        "c1:815:864 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error",
        "nccl.ib-port",
    ),  # NVIDIA/nccl 230
    (
        "h1:1:9 [0] get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider",
        "nccl.plugin",
    ),  # NVIDIA/nccl 229
    (
        "h1:1:9 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-TYsOYp to 9637892 bytes",
        "host.shm",
    ),
    ("h1:1:9 [0] misc/shmutils.cc:69 NCCL WARN Call to posix_fallocate failed : No space left on device", "host.shm"),
    (
        "Last error: Error while creating shared memory segment /dev/shm/nccl-TYsOYp (size 9637888), error: "
        "No space left on device (28)",
        "host.shm",
    ),
    ("RuntimeError: unable to write to file </torch_4711_1>: No space left on device (28)", "host.shm"),
    (
        "h1:4300:4325 [0] net_fastsocket.cc:785 NCCL WARN Maximum retry reached for accept 3.",
        "nccl.warning",
    ),  # google/nccl-fastsocket 4
    # errno words, where a system call that implies the limit stands before them
    ("bash: fork: retry: Resource temporarily unavailable", "host.files"),
    (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 5 of 64: Resource temporarily unavailable",
        "host.files",
    ),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", "host.files"),
    ("OSError: [Errno 28] No space left on device: '/scratch/ckpt/step-10/part-0'", "host.no-space"),
]
"""A line as others have printed it (most from public issues; the host's name is shortened), and what it is."""


@for_each(("line", "signature"), REAL)
def test_a_line_is_known_by_its_reason_and_its_subject_before_its_errno(line, signature):
    sign = signs.match(line)
    assert sign is not None
    assert sign.id == signature


@for_each(
    "line",
    [
        "recv: Resource temporarily unavailable",
        "libibverbs: Warning: couldn't load driver 'libvmw_pvrdma-rdmav34.so': cannot open shared object file",
        "h1:1:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "h1:1:9 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
        "h1:1:9 [0] NCCL INFO NET/OFI Selected Provider is efa (found 8 nics)",
    ],
)
def test_what_healthy_nodes_print_too_is_no_sign(line):
    assert signs.in_lines([(1, line)], "raw/x.err") == []


def test_a_driver_that_is_not_there_is_a_sign_only_where_no_device_was_found():
    lines = ["libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so'", "NCCL INFO NET/IB : No device found."]
    signs_seen = signs.in_lines(enumerate(lines, start=1), "raw/x.err")
    assert [(sign.signature, sign.evidence) for sign in signs_seen] == [("nccl.ib-driver", "raw/x.err:1")]


def test_the_words_of_an_errno_are_tried_last_and_those_of_a_program_before_them():
    breadths = [signature.breadth for signature in IN_ORDER]
    assert breadths == sorted(breadths, key=["exact", "program", "errno"].index)
    assert len(IN_ORDER) == len(SIGNATURES)


def test_lines_are_counted_by_line_feeds_as_grep_does(tmp_path, monkeypatch):
    """A progress bar's carriage returns shifted the number: grep said 2, the sign said 4."""
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/launch.log").write_text("10%\r20%\r30%\ndone\x0c\rcat: x: Stale file handle\rdone\n")
    (sign,) = signs.in_run(folder, runs.load(folder))
    assert (sign.signature, sign.evidence, sign.line) == ("host.stale", "raw/launch.log:2", "cat: x: Stale file handle")


def test_a_log_that_cannot_be_read_holds_no_sign_and_hides_no_other(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    for name in ("a.log", "b.log"):
        (folder / "raw" / name).write_text("cat: x: Stale file handle\n")
    opened = os.open

    def refused(path, *arguments, **options):
        if path == "a.log":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    assert [sign.evidence for sign in signs.in_run(folder, runs.load(folder))] == ["raw/b.log:1"]


@for_each("path", sorted((FIXTURES / "nccl").glob("log-[eiost]*.log")), ids=lambda path: path.name)
def test_a_healthy_log_bears_none(path):
    assert signs.in_lines(enumerate(path.read_text().splitlines(), start=1), path.name) == []


def test_every_signature_says_a_cause_a_next_step_and_a_source():
    for signature in SIGNATURES.values():
        assert signature.cause and signature.do and signature.source, signature.id
        assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", signature.id)


def test_a_sign_is_counted_and_names_its_first_line():
    lines = ["fine", "cat: x: Stale file handle", "fine", "cat: y: Stale file handle"]
    (sign,) = signs.in_lines(enumerate(lines, start=1), "raw/a.err")
    assert (sign.signature, sign.evidence, sign.count) == ("host.stale", "raw/a.err:2", 2)


def test_of_a_very_long_log_beginning_and_end_are_searched_with_true_line_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "_END_BYTES", 200)
    folder = discovery(tmp_path, monkeypatch)
    log = folder / "raw/launch.log"
    log.write_text("No space left on device\n" + "quiet\n" * 1000 + "Input/output error\n")
    signs_seen = {sign.signature: sign.evidence for sign in signs.in_run(folder, runs.load(folder))}
    assert signs_seen == {"host.no-space": "raw/launch.log:1", "host.io-error": "raw/launch.log:1002"}


def test_a_victims_words_come_after_the_cause(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/launch.err").write_text(
        "Connection closed by peer [10.9.0.2]:21011\n  exitcode   : -9 (pid: 4711)\n"
    )
    assert [sign.signature for sign in signs.in_run(folder, runs.load(folder))] == ["torch.killed", "gloo.remote-gone"]


def test_what_may_be_either_stands_between_causes_and_consequences(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/launch.err").write_text(
        "Connection closed by peer [10.9.0.2]:21011\nh1:1:9 [0] x.cc:1 NCCL WARN something new\nMemoryError\n"
    )
    signs_seen = [sign.signature for sign in signs.in_run(folder, runs.load(folder))]
    assert signs_seen == ["host.memory", "nccl.warning", "gloo.remote-gone"]
