"""The first cause of a job that bringup did not start, from logs as programs print them; and Slurm's words about it."""

import json
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.daily.first_cause import Cause, Job, Text, elsewhere, judged
from bringup.evidence import slurm as answers
from bringup.known_faults.pending import Node
from loops import for_each
from runs_for_tests import FIXTURES

JOB = Job("7", "ann", "FAILED", "1:0", ["n0", "n1", "n2", "n3"], 4)
NOBODY = None


def cause(text: str, job: Job = JOB, **known) -> Cause:
    return judged(job, [Text("job.log", text, 0.0)], known.pop("nodes", {}), **known).cause


@for_each(
    "file, kind, node, rank, words",
    [
        ("torch/rank-raised-2.13.log", "python", "n1", 1, "inconsistent tensor size"),
        ("torch/out-of-memory-2.5.log", "gpu.out-of-memory", "n0", 0, "Tried to allocate 29.76 GiB"),
        ("torch/port-in-use-2.13.log", "torch.port-in-use", "", NOBODY, "EADDRINUSE"),
        ("torch/rank-killed-2.13.log", "torch.killed", "", NOBODY, "signal"),
        ("torch/watchdog-default-group-2.6.log", "collective", "n2", 2, "2 waited"),
        ("torch/watchdog-sub-group-2.5.log", "collective", "", NOBODY, "is not known"),  # one of 4 waited
        ("torch/gloo-timed-out-2.7.log", "gloo.remote-gone", "n2", 2, "unbound_buffer"),  # nothing but a consequence
        ("warn/completion-through-torch.log", "nccl.ib-completion", "", NOBODY, "error 12"),
        ("warn/ofi-undeliverable-through-torch.log", "nccl.ofi-transfer", "n3", 3, "UNDELIVERABLE"),
        ("slurm/oom-kill-event-23.11.txt", "slurm.out-of-memory", "n6", 0, "oom_kill"),
        ("slurm/step-out-of-memory-22.05.txt", "slurm.out-of-memory", "n0", 0, "Out Of Memory"),
        ("slurm/node-failure.txt", "slurm.node-failure", "n3", NOBODY, "Node failure on n3"),
        ("slurm/time-limit.txt", "slurm.time-limit", "", NOBODY, "TIME LIMIT"),
        ("slurm/no-such-program-22.05.txt", "host.not-executable", "n0", NOBODY, "nosuchprogram"),
        ("slurm/exit-code-22.05.txt", "exit-code", "n0", 0, "Exited with exit code 3"),
        ("slurm/task-killed-22.05.txt", "killed", "n1", 1, "Killed"),
    ],
)
def test_a_log_of_a_real_program_says_who_was_first(file, kind, node, rank, words):
    first = cause((FIXTURES / "real" / file).read_text())
    assert (first.kind, first.node, first.rank) == (kind, node, rank), first
    assert words in first.words


RAISED = """\
0: step 1
2: Traceback (most recent call last):
2:   File "train.py", line 9, in <module>
1: [rank1]: Traceback (most recent call last):
1: [rank1]: torch.distributed.DistBackendError: Connection closed by peer [10.0.0.2]:1
2:     step(batch)
2:   File "/x/site-packages/torch/nn.py", line 4, in forward
2: ValueError: 3 columns
srun: error: n1: task 2: Exited with exit code 1
srun: error: n1: task 3: Terminated
"""


def test_ranks_that_print_at_once_are_told_apart_and_a_victim_is_not_the_cause():
    answer = judged(JOB, [Text("job.log", RAISED, 0.0)], {})
    assert answer.cause == Cause(
        "python", "ValueError: 3 columns", "n1", 2, "<module> (train.py:9)", evidence="job.log:8"
    )
    assert any("Connection closed by peer" in line for line in answer.then)


def test_a_fatal_error_of_python_shows_its_innermost_frame():
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "k.py", line 3 in kernel\n  File "k.py", line 9 in <module>\n\nExtension modules: x\n'
    )
    assert cause(text).stack == "kernel (k.py:3)"


def test_a_rank_that_is_behind_in_the_order_of_collectives_is_named():
    line = (
        "[rank{0}]:[E] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, "
    )
    text = "".join(f"{line.format(rank, 37 + (rank != 1))}Timeout(ms)=600000) ran\n" for rank in range(4))
    first = cause(text)
    assert (first.rank, first.node, first.collective) == (1, "n1", "ALLREDUCE, number 38")


@for_each(
    "state, code, nodes, kind, node",
    [
        ("NODE_FAIL", "0:0", {"n2": Node("DOWN+NOT_RESPONDING", "Not responding")}, "slurm.node-failure", "n2"),
        ("OUT_OF_MEMORY", "0:125", {}, "slurm.out-of-memory", ""),
        ("TIMEOUT", "0:0", {}, "slurm.time-limit", ""),
        ("CANCELLED", "0:15", {}, "cancelled", ""),
        ("FAILED", "139:0", {}, "exit-code", ""),
        ("COMPLETED", "0:0", {"n1": Node("IDLE+DRAIN", "Xid 79")}, "none", ""),
        ("RUNNING", "0:0", {}, "none", ""),
    ],
)
def test_without_a_word_in_the_logs_slurm_is_believed(state, code, nodes, kind, node):
    answer = judged(Job("7", "ann", state, code, ["n1", "n2"], 2), [], nodes)
    assert (answer.cause.kind, answer.cause.node) == (kind, node)
    assert list(answer.nodes) == list(nodes)


def test_the_node_that_prints_the_end_of_a_job_is_not_its_cause():
    """srun labels what slurmstepd of the first node prints, whichever node was lost."""
    line = "0: slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-26T00:10:46{} ***\n"
    of = {
        "TIMEOUT": " DUE TO TIME LIMIT",
        "NODE_FAIL": " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        "CANCELLED": "",
    }
    for state, words in of.items():
        first = cause(line.format(words), Job("7", "ann", state, "", ["n1", "n2"], 2))
        assert (first.node, first.rank) == ("", None), state
    lost = cause(
        line.format(of["NODE_FAIL"]) + "srun: error: Node failure on n2\n", Job("7", "a", "NODE_FAIL", "", ["n1", "n2"])
    )
    assert (lost.kind, lost.node) == ("slurm.node-failure", "n2")


def test_a_running_job_stands_still_when_its_logs_no_longer_grow():
    running = Job("7", "ann", "RUNNING", "", ["n0"], 1)
    assert cause("step 1\n", running, quiet_s=601).kind == "stalled"
    assert cause("step 1\n", running, quiet_s=599).kind == "none"


def test_one_rank_that_stands_elsewhere_than_the_others_is_named_and_two_are_not():
    stacks = {f"n{rank // 2}/rank{rank}": "wait (a.py:1), called by main" for rank in range(4)}
    stalled = Cause("stalled", "no log grows")
    odd = elsewhere(stalled, stacks | {"n1/rank2": "read (b.py:7)"})
    assert (odd.node, odd.rank, odd.stack) == ("n1", 2, "read (b.py:7)")
    assert elsewhere(stalled, stacks | {"n1/rank2": "read (b.py:7)", "n1/rank3": "x (c.py:1)"}) is stalled


SHOWN = """\
JobId=7 JobName=x UserId=root(0) StdOut=/etc/shadow
   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   NodeList=n[0-1]
   NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Comment=   StdOut=/etc/shadow
   StdErr={log}
   StdIn=/dev/null
   StdOut={log}
"""


def test_a_name_or_comment_of_a_job_changes_no_other_field():
    fields = answers.job_fields(SHOWN.format(log="/home/ann/a b.log"))
    assert fields["UserId"] == "ann(1000)"
    assert fields["StdOut"] == "/home/ann/a b.log"
    assert fields["NodeList"] == "n[0-1]"


def test_accounted_jobs_keep_a_delimiter_in_the_last_column():
    table = "JobID|State|WorkDir\n7|CANCELLED by 1000|/home/a|b\nbroken\n"
    assert answers.accounted(table) == [{"JobID": "7", "State": "CANCELLED by 1000", "WorkDir": "/home/a|b"}]


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A Slurm that answers about job 7, and records what it was asked to do."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    shown = tmp_path / "shown"
    shown.write_text(SHOWN.format(log=tmp_path / "job.log"))
    programs = {
        "scontrol": f'case "$*" in *job*) cat {shown};; *) echo "NodeName=n1 State=DOWN Reason=Xid 79 [root@x]";; esac',
        "sacct": 'echo "JobID|User|State|ExitCode|NodeList|Start|End|WorkDir"; echo "7|ann|CANCELLED by 1000|0:0||||/"',
        "squeue": 'printf "CANCELLED\\037None\\037\\n"',
    }
    for name in ("scontrol", "sacct", "squeue", "srun", "sbatch", "scancel"):
        program = bin_folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$*" >>{tmp_path}/asked\n{programs.get(name, "")}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder), prepend=":")
    return tmp_path


def test_the_verb_only_reads_and_says_what_it_could_not_see(slurm, capsys):
    assert main(["why", "7", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["job"]["by"] == "user 1000"
    assert any("No such file" in line for line in answer["not_seen"])
    assert any("--on-nodes" in line for line in answer["not_seen"])
    assert not {line.split()[0] for line in (slurm / "asked").read_text().splitlines()} & {"srun", "sbatch", "scancel"}
    (slurm / "job.log").write_text(RAISED)
    assert main(["why", "7"]) == 0
    screen = capsys.readouterr().out
    assert "first cause rank 2 on n1: ValueError: 3 columns" in screen
    assert "node        n1: down: Xid 79" in screen
