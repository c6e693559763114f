"""What torchrun and Slurm say about the end of a step, and what a rank without progress says about itself, as facts."""

import json

from bringup.kernel.facts.parser_result import Parsed
from bringup.readers import launcher
from factory import a_run
from loops import for_each


def observations_of(parsed: Parsed) -> list[tuple[str, str, object, str]]:
    return [(seen.quantity, seen.subject, seen.value, seen.evidence) for seen in parsed.observations]


OOM, LOST = "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.0.", "srun: error: Node failure on n"
CANCELLED = "x *** STEP 1.0 ON n0 CANCELLED AT 2026-11-20T09:52:38"
NO_WRITE = "run folder cannot be written"


@for_each(
    # of launcher.…, with the line of the log
    ("1:   rank      : 3 (local_rank: 1)\n1:   exitcode  : -9 (pid: 76)\n", [("exit_code", "n1/rank3", -9, 2)]),
    ("1:   rank      : 9 (local_rank: 1)\n1:   exitcode  : -9 (pid: 76)\n", []),  # a rank that was not planned
    ("1:   exitcode  : -9 (pid: 76)\n", []),
    (
        "1: Root Cause (first observed failure):\n0:   rank      : 0 (local_rank: 0)\n"
        "1:   rank      : 2 (local_rank: 0)\n0:   exitcode  : 1 (pid: 7)\n1:   exitcode  : 1 (pid: 8)\n",
        [("exit_code", "n0/rank0", 1, 4), ("exit_code", "n1/rank2", 1, 5), ("first_failed", "n1/rank2", 1, 5)],
    ),
    (f"{OOM}\n", [("out_of_memory", "n1", OOM, 1)]),
    ("Detected 1 oom_kill event\n", [("out_of_memory", "job", "Detected 1 oom_kill event", 1)]),
    # a progress bar, and two nodes at once
    (f"10%\r20%\n{LOST}[0-1]\n", [("node_lost", node, f"{LOST}[0-1]", 2) for node in ("n0", "n1")]),
    (f"{LOST}1\n", [("node_lost", "n1", f"{LOST}1", 1)]),
    (f"{CANCELLED} DUE TO TIME LIMIT ***\n" * 2, [("ended_by_slurm", "n0", "time limit", 1)]),
    (
        f"0: slurmstepd-n0: error: {CANCELLED[2:]} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
        [("ended_by_slurm", "n0", "node failure", 1)],
    ),
    (f"{CANCELLED} ***\n", []),
    (f"/x/run: {NO_WRITE}, seen from n1; is it shared?\n", [("cannot_write", "n1", NO_WRITE, 1)]),
    (f"rank : {'9' * 5000} (local_rank: 1)\nexitcode : -{'9' * 5000} (pid: 1)\n[Rank {'9' * 5000}] Watchdog", []),
)
def test_lines_of_the_launch_log(lines, facts):
    parsed = launcher.log(lines, "raw/launch.log", a_run("run_ddp_2node"))
    expected = [(f"launcher.{name}", subject, value, f"raw/launch.log:{line}") for name, subject, value, line in facts]
    assert observations_of(parsed) == expected
    assert parsed.problems == []


def error(timestamp: object) -> str:
    return json.dumps({"message": {"message": "x", "extraInfo": {"timestamp": timestamp}}})


def test_an_error_file_gives_the_second_at_which_a_rank_raised():
    (seen,) = observations_of(launcher.error_file(error("1795287790"), "raw/e"))
    assert seen == ("launcher.raised_at", "job", 1795287790, "raw/e")


@for_each("", "{", "[]", "[" * 9000, error("soon"), error(-1), error("9" * 40), error(None))
def test_an_error_file_without_a_time_gives_none(text):
    assert observations_of(launcher.error_file(text, "raw/e")) == []


def test_the_main_thread_of_the_last_dump_counts():
    thread = "Thread 0x{} (most recent call first):\n"
    dump = thread.format(1) + '  File "/a.py", line 1 in wait\n\n' + thread.format(2)
    main = '  File "/srv/x/training/src/recipe/meter.py", line 7 in on_step_end\n'
    assert observations_of(launcher.stack(dump + '  File "/old.py", line 3 in f\n' + dump + main, "s", "n0/rank0")) == [
        ("train.rank.stack", "n0/rank0", "on_step_end (training/src/recipe/meter.py:7)", "s:10")
    ]
    assert observations_of(launcher.stack(dump, "s", "n0/rank0")) == []


@for_each("\r", "\x0b", "\x0c", "\x85", "\u2028")
def test_evidence_of_a_stack_names_the_line_that_grep_gives(mark):
    dump = f'10%{mark}20%\nThread 0x1 (most recent call first):\n  File "/a.py", line 1 in wait\n'
    (seen,) = observations_of(launcher.stack(dump, "s", "n0/rank0"))
    assert seen == ("train.rank.stack", "n0/rank0", "wait (/a.py:1)", "s:3")


def test_progress_that_cannot_be_read_is_said_and_is_no_number():
    parsed = launcher.progress('{"step": 3, "entered": true}', "p", "n0/rank0")
    assert observations_of(parsed) == [("train.rank.step", "n0/rank0", 3, "p")]
    for text in ("", "{", "[" * 9000):
        parsed = launcher.progress(text, "p", "n0/rank0")
        assert parsed.observations == []
        assert parsed.problems[0].startswith("p: not a record of progress")
