"""Each known fault is told from its line, and shown with its cure; what healthy nodes print is not a fault."""

import os
import re
from dataclasses import replace
from pathlib import Path

import generated as failure_modes
import pytest
from bringup.kernel import judge
from bringup.kernel.records import files
from bringup.kernel.run_folder import RunFolder
from bringup.readers.known import signs
from bringup.readers.known.signatures import IN_ORDER, SIGNATURES
from bringup.report import document, explain
from bringup.report import view as report
from loops import for_each
from runs_for_tests import FIXTURES, discovery, lose_a_gpu


def sign_of(line: str) -> str | None:
    sign = signs.match(line)
    return sign and sign.id


@for_each(*SIGNATURES.values(), ids=lambda signature: signature.id)
def test_a_line_as_the_program_prints_it_bears_the_signature(signature):
    assert sign_of(signature.example) == signature.id


PRINTED = [
    tuple(line.split("\t"))
    for line in (FIXTURES / "known-lines.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@for_each(*PRINTED)
def test_a_line_is_known_by_its_reason_and_its_subject_before_its_frame_and_its_errno(signature, line):
    assert sign_of(line) == signature


OF_CUDA = {
    "gpu.out-of-memory": {2}, "gpu.cuda-start": {3, 127, 304, 999}, "gpu.busy": {46, 100, 216}, "gpu.ecc": {214},
    "gpu.no-driver": {34, 35, 36, 98, 221, 222, 227, 803, 804}, "gpu.peer-access": {217, 711},
    "gpu.nvlink": {220, 226}, "gpu.illegal-access": {53, 700, 702, 710, *range(714, 720)}, "gpu.fabric": {802, 919},
    "gpu.mps": set(range(805, 811)), "gpu.no-kernel": {200, 209, 300}, "gpu.ordinal": {101},
}  # fmt: skip


def test_each_error_of_cuda_that_speaks_of_a_gpu_or_its_driver_is_known_by_its_text_and_no_other_one_is():
    numbers: dict[str, set[int]] = {}
    for line in (FIXTURES / "cuda-errors.txt").read_text(encoding="utf-8").splitlines()[1:]:
        number, _, text = line.split(" ", 2)
        if sign := signs.match(f"torch.AcceleratorError: CUDA error: {text.removeprefix('| ')}"):
            numbers.setdefault(sign.id, set()).add(int(number))
    assert numbers == OF_CUDA


def test_only_patterns_whose_word_the_lines_have_are_searched_in_them(monkeypatch):
    """40 MB of random bytes, in which no word of a sign stands, took 20 s: each of 470 patterns read all of them."""
    searched: list[int] = []
    by_pattern = signs._Lines._with
    monkeypatch.setattr(signs._Lines, "_with", lambda text, pattern: searched.append(1) or by_pattern(text, pattern))
    usual = [(number, f"[rank3]: step {number} loss 4.9 tokens/s 12345 {os.urandom(40)!r}") for number in range(2000)]
    assert signs.in_lines(usual, "f") == []
    assert 0 < len(searched) < len(signs._PATTERNS) / 5


@for_each(*(each.example for each in SIGNATURES.values()), *(line for _, line in PRINTED))
def test_a_line_has_the_words_of_each_pattern_that_matches_it(example):
    matching = [place for place, (_, pattern) in enumerate(signs._PATTERNS) if signs._compiled(pattern).search(example)]
    candidates = dict(signs._Lines([example]).candidates())
    assert matching
    assert candidates == {0: matching}


def test_a_step_that_waits_for_the_one_before_it_is_no_fault():
    assert signs.match("srun: Job 3 step creation temporarily disabled, retrying (Requested nodes are busy)") is None


@for_each(*(line for line in (FIXTURES / "harmless-lines.txt").read_text().splitlines() if not line.startswith("#")))
def test_what_healthy_nodes_print_too_is_no_sign(line):
    assert signs.in_lines([(1, line)], "raw/x.err") == []


def test_an_error_that_names_a_setting_of_logs_is_no_line_of_that_level():
    assert sign_of("n0: Test NCCL failure (run with NCCL_DEBUG=INFO for details): MemoryError") == "host.memory"


def test_the_words_of_an_errno_are_tried_last_and_those_of_a_program_before_them():
    breadths = [signature.breadth for signature in IN_ORDER]
    assert breadths == sorted(breadths, key=["exact", "program", "errno", "class"].index)
    assert len(IN_ORDER) == len(SIGNATURES)


CLOSING = "h1:1:9 [1] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable\n"
LAST, NOT_YET = "0: [h1 rank0] step 12/12  loss 2.4\n", "0: [h1 rank0] step 11/12  loss 2.4\n"
HEARTBEAT = (
    "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated\n"
)
WATCHDOG = "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL("
WATCHDOGS = [f"{WATCHDOG.format(rank)}SeqNum=808){3_000 * '.'}\n" for rank in range(1024)]
STALE, CLOSED_BY_PEER, QUIET = "cat: x: Stale file handle\n", "Connection closed by peer [10.9.0.2]:21011\n", "quiet\n"
NO_DRIVER = "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so'\n"
NEW_WARNING = "h1:1:9 [0] x.cc:1 NCCL WARN something new\n"


@for_each(
    # a progress bar's carriage returns shifted the number: grep said 2, the sign said 4
    (f"10%\r20%\r30%\ndone\x0c\r{STALE[:-1]}\rdone\n", ["host.stale:2"]),
    (f"fine\n{STALE}fine\n{STALE.replace('x', 'y')}", ["host.stale:2 twice"]),
    # what NCCL prints at its end is a sign only before the last step
    (NOT_YET + CLOSING, ["nccl.proxy-gone:2"]),
    (LAST + CLOSING, []),
    (CLOSING + LAST, ["nccl.proxy-gone:1"]),
    # a hang was shown as `ended by a signal: the memory killer or a person`
    (f"{HEARTBEAT}  exitcode   : -6 (pid: 4711)\n", ["nccl.watchdog:1"]),
    (f"{HEARTBEAT}  exitcode   : -9 (pid: 4711)\n", ["torch.killed:2", "nccl.watchdog:1"]),
    # a driver that is not there is a sign only where no device was found
    (NO_DRIVER + "NCCL INFO NET/IB : No device found.\n", ["nccl.ib-driver:1"]),
    # a victim's words come after the cause, and what may be either stands between them
    (f"{CLOSED_BY_PEER}  exitcode   : -9 (pid: 4711)\n", ["torch.killed:2", "gloo.remote-gone:1"]),
    (f"{CLOSED_BY_PEER}{NEW_WARNING}MemoryError\n", ["host.memory:3", "nccl.warning:2", "gloo.remote-gone:1"]),
    # the watchdogs of 1,024 ranks write 4 MB, and the beginning and the end alone were searched
    (
        "".join([*WATCHDOGS[:512], "1: OSError: [Errno 98] Address already in use\n", *WATCHDOGS[512:]]),
        ["torch.port-in-use:513", "nccl.timeout:1 1024 times"],
    ),
    ids=lambda log: repr(log)[:80],
)
def test_signs_of_a_log_stand_in_the_order_of_causes_with_the_number_of_their_first_line(folder, log, expected):
    (folder / "raw/launch.log").write_text(log)
    seen = signs.in_run(RunFolder(folder))
    times = {1: "", 2: " twice", 1024: " 1024 times"}
    assert [f"{s.signature}:{s.evidence.removeprefix('raw/launch.log:')}{times[s.count]}" for s in seen] == expected


def test_of_a_very_long_log_beginning_and_end_are_searched_and_a_line_without_an_end_in_pieces(folder, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 200)
    very_long = STALE + 500 * QUIET + "MemoryError\n" + 499 * QUIET + "No route to host"
    for most, log, expected in (
        (400, very_long, ["host.stale:1", "host.route:1002"]),
        (files.MOST_OF_A_LOG, "fine\n" + 1_000 * "." + "\rMemoryError\rfine", ["host.memory:2"]),
    ):
        monkeypatch.setattr(files, "MOST_OF_A_LOG", most)
        (folder / "raw/launch.log").write_text(log)
        seen = signs.in_run(RunFolder(folder))
        assert sorted(f"{sign.signature}:{sign.evidence.rpartition(':')[2]}" for sign in seen) == sorted(expected)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return discovery(tmp_path, monkeypatch)


def test_a_log_that_cannot_be_read_holds_no_sign_and_hides_no_other(folder, monkeypatch):
    for name in ("a.log", "b.log"):
        (folder / "raw" / name).write_text("cat: x: Stale file handle\n")
    opened = os.open

    def refused(path, *arguments, **options):
        if path == "a.log":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    assert [sign.evidence for sign in signs.in_run(RunFolder(folder))] == ["raw/b.log:1"]


@for_each(*sorted((FIXTURES / "nccl").glob("log-[eiost]*.log")), ids=lambda path: path.name)
def test_a_healthy_log_bears_none(path):
    assert signs.in_lines(enumerate(path.read_text().splitlines(), start=1), path.name) == []


def test_every_signature_says_a_cause_a_next_step_and_a_source():
    for signature in SIGNATURES.values():
        assert signature.cause and signature.do and signature.source, signature.id
        assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", signature.id)


# ---- in the report and in `bringup explain`, with the commands to run next


@pytest.fixture
def broken(tmp_path, monkeypatch) -> Path:
    """A discovery in which n1 has a GPU too few, and somebody met a stale file."""
    folder = lose_a_gpu(discovery(tmp_path, monkeypatch))
    (folder / "raw/inventory.err").write_text("cat: run.json: Stale file handle <script>\n")
    return folder


def test_the_report_and_the_screen_show_the_sign(broken):
    judged = judge.judge_folder(broken)
    assert "host.stale" in report.screen(judged)
    written = document.run(judged)
    assert "raw/inventory.err:1" in written
    assert SIGNATURES["host.stale"].do in written.replace("\\", "")
    assert "<script>" not in written


def test_explain_names_the_first_cause_the_sign_and_the_next_command(broken, shown):
    output = shown(1, "explain", broken)
    assert "FAIL discovery.gpu.count [n1]: GPUs there: 1 of the 2 that Slurm hands out" in output
    assert "next: findmnt" not in output  # that is another sign's
    assert SIGNATURES["host.stale"].do in output
    section = [line for line in output.splitlines() if line.startswith("  next ")]
    assert any("scontrol show node n1" in line for line in section), section


def test_a_host_name_with_metacharacters_is_quoted_in_the_commands(broken):
    judged = judge.judge_folder(broken)
    bad = next(verdict for verdict in judged.verdicts.verdicts if verdict.gate == "discovery.gpu.count")
    judged = replace(judged, run=judged.run.model_copy(update={"nodes": ["n0", "n1;reboot"]}))
    commands = explain.next_commands([bad.model_copy(update={"subject": "n1;reboot"})], judged)
    assert any("'n1;reboot'" in line for line in commands), commands
    assert not any(" n1;reboot" in line for line in commands)


def test_the_page_of_failure_modes_is_what_the_catalogues_say():
    for path, text in failure_modes.pages().items():
        assert path.read_text() == text, f"{path.name}: run `make generated`"
    assert SIGNATURES["nccl.duplicate-gpu"].cause in failure_modes.SIGNS.read_text()
