"""Each known fault is told from its line, and what healthy nodes print is not a fault."""

import os
import re

from bringup import results as runs
from bringup.known_faults import signs
from bringup.known_faults.signatures import IN_ORDER, SIGNATURES
from bringup.records import files
from loops import for_each
from runs_for_tests import FIXTURES, discovery


@for_each("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_a_line_as_the_program_prints_it_bears_the_signature(signature):
    sign = signs.match(signature.example)
    assert sign is not None
    assert sign.id == signature.id


PRINTED = [
    line.split("\t")
    for line in (FIXTURES / "known-lines.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@for_each(("signature", "line"), PRINTED)
def test_a_line_is_known_by_its_reason_and_its_subject_before_its_frame_and_its_errno(signature, line):
    sign = signs.match(line)
    assert sign is not None
    assert sign.id == signature


def test_a_step_that_waits_for_the_one_before_it_is_no_fault():
    assert signs.match("srun: Job 3 step creation temporarily disabled, retrying (Requested nodes are busy)") is None


@for_each(
    "line",
    [
        "recv: Resource temporarily unavailable",
        "libibverbs: Warning: couldn't load driver 'libvmw_pvrdma-rdmav34.so': cannot open shared object file",
        "h1:1:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "h1:1:9 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
        "h1:1:9 [0] NCCL INFO NET/OFI Selected Provider is efa (found 8 nics)",
        "h1:1:9 [0] init.cc:1954 NCCL WARN MSCCL++: Cannot enable MSCCL++ on gfx1200 architecture",
        "[1759897489.1] [h1:3:0] sock.c:51 UCX  DEBUG ioctl(ifr_name=ib2) failed: Input/output error: '/sys/class/net'",
        "make: *** [Makefile:12: all] Error 2: see above",  # not CUDA's number
        "run.sh: line 13: sudo: command not found",
        "sudo: cpupower: command not found",
        "2026-11-25 10:00:00,123 - trainer - WARNING - cat: run.json: Stale file handle",
        "[NeMo W 2026-11-25 10:00:00 nemo_logging:361] /x/y.py:12: ModuleNotFoundError: No module named 'z'",
        "W1125 10:00:00.123000 4711 torch/_dynamo/utils.py:1] OSError: [Errno 24] Too many open files",
    ],
)
def test_what_healthy_nodes_print_too_is_no_sign(line):
    assert signs.in_lines([(1, line)], "raw/x.err") == []


def test_an_error_that_names_a_setting_of_logs_is_no_line_of_that_level():
    sign = signs.match("n0: Test NCCL failure (run with NCCL_DEBUG=INFO for details): MemoryError")
    assert sign is not None
    assert sign.id == "host.memory"


def test_what_nccl_prints_at_its_end_is_a_sign_only_before_the_last_step():
    closing = "h1:1:9 [1] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable"
    last, one_before = "0: [h1 rank0] step 12/12  loss 2.4", "0: [h1 rank0] step 11/12  loss 2.4"

    def seen(*lines: str) -> list[str]:
        return [sign.signature for sign in signs.in_lines(enumerate(lines, start=1), "raw/launch.log")]

    assert seen(one_before, closing) == ["nccl.proxy-gone"]
    assert seen(last, closing) == []
    assert seen(closing, last) == ["nccl.proxy-gone"]


def test_an_abort_by_the_watchdog_is_no_cause_of_its_own():
    """A hang was shown as `ended by a signal: the memory killer or a person`."""
    heartbeat = (
        "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated"
    )
    lines = [heartbeat, "  exitcode   : -6 (pid: 4711)"]
    assert [sign.signature for sign in signs.in_lines(enumerate(lines, start=1), "raw/launch.log")] == ["nccl.timeout"]
    killed = [heartbeat, "  exitcode   : -9 (pid: 4711)"]
    assert "torch.killed" in {sign.signature for sign in signs.in_lines(enumerate(killed, start=1), "raw/launch.log")}


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
    monkeypatch.setattr(signs, "_BLOCK_BYTES", 200)
    monkeypatch.setattr(files, "MOST_OF_A_LOG", 400)
    folder = discovery(tmp_path, monkeypatch)
    log = folder / "raw/launch.log"
    log.write_text(
        "cat: /x: Stale file handle\n" + "quiet\n" * 500 + "MemoryError\n" + "quiet\n" * 499 + "No route to host"
    )
    signs_seen = {sign.signature: sign.evidence for sign in signs.in_run(folder, runs.load(folder))}
    assert signs_seen == {"host.stale": "raw/launch.log:1", "host.route": "raw/launch.log:1002"}


def test_a_first_cause_in_the_middle_of_what_many_ranks_say_is_found(tmp_path, monkeypatch):
    """The watchdogs of 1,024 ranks write 4 MB. The beginning and the end alone were searched."""
    folder = discovery(tmp_path, monkeypatch)
    watchdog = (
        "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL("
    )
    noise = [watchdog.format(rank) + "SeqNum=808)" + 3_000 * "." for rank in range(1024)]
    noise.insert(512, "1: OSError: [Errno 98] Address already in use")
    (folder / "raw/launch.log").write_text("\n".join(noise))
    signs_seen = signs.in_run(folder, runs.load(folder))
    assert [(sign.signature, sign.evidence) for sign in signs_seen] == [
        ("torch.port-in-use", "raw/launch.log:513"),
        ("nccl.timeout", "raw/launch.log:1"),
    ]


def test_a_line_without_an_end_is_searched_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "_BLOCK_BYTES", 200)
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/launch.log").write_text("fine\n" + 1_000 * "." + "\rMemoryError\rfine")
    assert [sign.evidence for sign in signs.in_run(folder, runs.load(folder))] == ["raw/launch.log:2"]


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
