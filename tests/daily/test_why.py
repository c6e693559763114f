"""The first cause of a job that bringup did not start, from logs as programs print them; and Slurm's words about it."""

import io
import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.daily.first_cause import Cause, Job, Text, elsewhere, judged
from bringup.daily.places import Step
from bringup.evidence import slurm as answers
from bringup.evidence.node_states import Node
from bringup.known_faults.signatures import SIGNATURES
from loops import for_each
from programs import program
from runs_for_tests import FIXTURES

JOB = Job("7", "ann", "FAILED", "1:0", ["n0", "n1", "n2", "n3"], 4)
NOBODY = ""


def cause(text: str, job: Job = JOB, **known) -> Cause:
    return judged(job, [Text("job.log", text, 0.0)], known.pop("nodes", {}), **known).cause


@for_each(
    "file, kind, node, who, words",
    [
        ("torch/rank-raised-2.13.log", "python", "", 1, "inconsistent tensor size"),
        ("torch/out-of-memory-2.5.log", "gpu.out-of-memory", "", 0, "Tried to allocate 29.76 GiB"),
        ("torch/port-in-use-2.13.log", "torch.port-in-use", "", NOBODY, "EADDRINUSE"),
        ("torch/rank-killed-2.13.log", "torch.killed", "", NOBODY, "signal"),
        ("torch/watchdog-default-group-2.6.log", "collective", "", NOBODY, "is not known"),  # of how many ranks
        ("torch/watchdog-sub-group-2.5.log", "collective", "", NOBODY, "is not known"),  # one of 4 waited
        ("torch/gloo-timed-out-2.7.log", "gloo.remote-gone", "", 2, "unbound_buffer"),  # nothing but a consequence
        ("warn/completion-through-torch.log", "nccl.ib-completion", "", NOBODY, "error 12"),
        ("warn/ofi-undeliverable-through-torch.log", "nccl.ofi-transfer", "", 3, "UNDELIVERABLE"),
        ("slurm/oom-kill-event-23.11.txt", "slurm.out-of-memory", "n6", "task 0", "oom_kill"),
        ("slurm/step-out-of-memory-22.05.txt", "slurm.out-of-memory", "n0", "task 0", "Out Of Memory"),
        ("slurm/node-failure.txt", "slurm.node-failure", "n3", NOBODY, "Node failure on n3"),
        ("slurm/time-limit.txt", "slurm.time-limit", "", NOBODY, "TIME LIMIT"),
        ("slurm/no-such-program-22.05.txt", "host.not-executable", "n0", "task 0", "nosuchprogram"),
        ("slurm/exit-code-22.05.txt", "exit-code", "n0", "task 0", "Exited with exit code 3"),
        ("slurm/task-killed-22.05.txt", "killed", "n1", "task 1", "Killed"),
    ],
)
def test_a_log_of_a_real_program_says_who_was_first(file, kind, node, who, words):
    first = cause((FIXTURES / "real" / file).read_text())
    assert (first.kind, first.node, first.who) == (kind, node, f"rank {who}" if isinstance(who, int) else who), first
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
    known = {"stack": "<module> (train.py:9)", "evidence": "job.log:8", "do": answer.cause.do}
    assert answer.cause == Cause("python", "ValueError: 3 columns", "n1", 2, **known)
    assert any("Connection closed by peer" in line for line in answer.then)


def test_a_fatal_error_of_python_shows_its_innermost_frame():
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "k.py", line 3 in kernel\n  File "k.py", line 9 in <module>\n\nExtension modules: x\n'
    )
    for job in (JOB, Job("7", "ann", "TIMEOUT", "0:0", ["n1", "n2"], 2)):  # none outlives it
        assert cause(text, job).stack == "kernel (k.py:3)"


WAITED = (
    "[rank{0}]:[E1] [Rank {1}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={2}, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran\n"
)
GROUP = (
    "[rank{0}]:[E1] [PG ID 1 PG GUID {3} Rank {1}] failure detected by watchdog at work sequence id: {2} PG status\n"
)
EIGHT = Job("7", "ann", "FAILED", "1:0", ["n0", "n1"], 8, steps=[Step(["n0", "n1"], 8, "Block", 4)])


@for_each(
    "job, waits, rank",
    [
        (JOB, [(rank, rank, 38 - (rank == 1), "") for rank in range(4)], 1),
        # rank 0 was accused of being behind where most ranks were, and one was ahead of its group
        *((JOB, [(rank, rank, 38 - (rank < behind), "") for rank in range(4)], NOBODY) for behind in (2, 3)),
        (EIGHT, [(4 + rank, rank, 38 - (rank == 1), "") for rank in range(4)], NOBODY),  # groups without a name
        *(
            (
                EIGHT,
                [(rank, rank % 4, 38 - rank // 4, name and f"{2 + rank // 4}(mesh_shard)") for rank in range(7)],
                NOBODY,
            )
            for name in (True, "")
        ),
        (EIGHT, [(rank, rank, 38, "") for rank in range(4)], NOBODY),  # the others may be in another group
        (EIGHT, [(rank, rank % 4, 38 - (rank == 6), "3(mesh_shard)") for rank in range(4, 8)], 6),
        (EIGHT, [(rank, rank, 38, "0(default_pg)") for rank in range(7)], 7),
    ],
)
def test_a_rank_that_is_behind_is_named_only_where_it_is_one_of_the_fewer_in_one_process_group(job, waits, rank):
    first = cause("".join((WAITED + (GROUP if wait[3] else "")).format(*wait) for wait in waits), job)
    assert (first.kind, first.who) == ("collective", rank if rank == NOBODY else f"rank {rank}"), first
    assert ("is not known" in first.words) is (rank == NOBODY)
    assert first.collective == "ALLREDUCE, number 38" or rank != 1


def test_a_rank_of_nine_digits_in_a_log_makes_no_list():
    text = WAITED.format(9_999_999, 9_999_999, 38)  # two digits less: a list of them takes a second, and not all memory
    tracemalloc.start()
    assert cause(text).who == NOBODY
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


CAUGHT = '0: Traceback (most recent call last):\n0:   File "t.py", line 9, in load\n0: OSError: no shard 7\n'


@for_each("state, kind", [("RUNNING", "stalled"), ("TIMEOUT", "slurm.time-limit"), ("CANCELLED", "cancelled")])
@for_each("more", ["", "0: step 2\n"])
def test_an_exception_that_a_program_may_have_caught_is_no_first_cause(state, kind, more):
    job = Job("7", "ann", state, "", ["n0", "n1"], 2)
    answer = judged(job, [Text("job.log", CAUGHT + more, 0.0)], {}, quiet_s=700)
    assert answer.cause.kind == kind
    assert answer.then == ["task 0: OSError: no shard 7 (job.log:3)"]
    ended = CAUGHT + "srun: error: n0: task 0: Exited with exit code 1\n"
    assert cause(ended, job).words.startswith("OSError"), "srun saw its end"


def test_of_two_exceptions_of_a_rank_the_one_behind_which_it_printed_nothing_is_the_cause():
    last = CAUGHT.replace("OSError: no shard 7", "ValueError: 3 columns")
    assert cause(f"{CAUGHT}0: step 2\n{last}").words == "ValueError: 3 columns"
    chained = "0: \n0: During handling of the above exception, another exception occurred:\n0: \n"
    assert cause(f"{CAUGHT}{chained}{last}").words == "OSError: no shard 7"
    waited = WAITED.format(1, 1, 38)
    assert cause(f"{CAUGHT}0: step 2\n{waited}").kind == "collective"


@for_each(
    "state, quiet_s, words",
    [
        ("SUSPENDED", 700, "suspended"),
        ("COMPLETING", 700, "waits until its last processes"),
        ("DEADLINE", 700, "its deadline"),
        ("RUNNING", 601, "none of its logs has grown"),
        ("RUNNING", 599, "nothing speaks against"),
    ],
)
def test_a_state_has_words_of_its_own_and_a_running_job_stands_still_when_its_logs_no_longer_grow(
    state, quiet_s, words
):
    assert words in cause("step 1\n", Job("7", "ann", state, "", ["n0"], 1), quiet_s=quiet_s).words


def test_a_log_that_was_not_read_is_not_called_silent():
    failed = Job("7", "ann", "FAILED", "1:0", ["n0"], 1, logs=["/x.log"])
    assert judged(failed, [], {}).cause.words == "its script ended with 1; its logs could not be read"
    assert "no line of its logs" in cause("step 1\n", failed).words


@for_each(
    "state, code, nodes, kind, node",
    [
        ("NODE_FAIL", "0:0", {"n2": Node("DOWN+NOT_RESPONDING", "Not responding")}, "slurm.node-failure", "n2"),
        ("NODE_FAIL", "0:0", {node: Node("DOWN", "Not responding") for node in ("n1", "n2")}, "slurm.node-failure", ""),
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
    failure = " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
    for state, words in (("TIMEOUT", " DUE TO TIME LIMIT"), ("NODE_FAIL", failure), ("CANCELLED", "")):
        first = cause(line.format(words), Job("7", "ann", state, "", ["n1", "n2"], 2))
        assert (first.node, first.rank) == ("", None), state
    lost = line.format(failure) + "srun: error: Node failure on n2\n"
    lost = cause(lost, Job("7", "a", "NODE_FAIL", "", ["n1", "n2"]))
    assert (lost.kind, lost.node) == ("slurm.node-failure", "n2")
    of_another_job = (
        "slurmstepd-n9: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks were killed.\n"
    )
    assert cause(of_another_job, Job("7", "a", "FAILED", "", ["n1", "n2"], 2)).node == ""


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
   Socks/Node=* NtasksPerN:B:S:C=4:0:*:* CoreSpec=*
   Comment=   StdOut=/etc/shadow
   StdErr={log}
   StdIn=/dev/null
   StdOut={log}
"""


def test_a_name_or_comment_of_a_job_changes_no_other_field_and_a_delimiter_stays_in_the_last_column():
    fields = answers.job_fields(SHOWN.format(log="/home/ann/a b.log"))
    assert fields["UserId"] == "ann(1000)"
    assert fields["StdOut"] == "/home/ann/a b.log"
    assert fields["NodeList"] == "n[0-1]"
    table = "JobID|State|WorkDir\n7|CANCELLED by 1000|/home/a|b\nbroken\n"
    assert answers.accounted(table) == [{"JobID": "7", "State": "CANCELLED by 1000", "WorkDir": "/home/a|b"}]


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A Slurm that answers about job 7, and records what it was asked to do."""
    shown = tmp_path / "shown"
    shown.write_text(SHOWN.format(log=tmp_path / "job.log"))
    programs = {
        "scontrol": f'case "$*" in *job*) cat {shown};; *) echo "NodeName=n1 State=DOWN Reason=Xid 79 [root@x]";; esac',
        "sacct": 'echo "JobID|User|State|ExitCode|NodeList|Start|End|WorkDir"; echo "7|ann|CANCELLED by 1000|0:0||||/"',
        "squeue": 'printf "CANCELLED\\037None\\037\\n"',
    }
    for name in ("scontrol", "sacct", "squeue", "srun", "sbatch", "scancel"):
        put(tmp_path, name, programs.get(name, ""))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
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


def test_a_job_of_bringup_is_read_where_its_script_keeps_its_log_and_a_late_one_is_called_late(slurm, capsys):
    """It said "No such file" of a log that lay beside it, and of a job at four times its length that nothing speaks
    against it."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 22 * 60 - 10))
    shown = SHOWN.format(log=slurm / "nccl_pairwise-7.log").replace("JobState=FAILED", "JobState=RUNNING")
    (slurm / "shown").write_text(f"{shown}   StartTime={begun}\n")
    for kept in ("nccl_pairwise-7.out", "slurm-logs/nccl_pairwise-7-r1.out"):  # of bringup run; of sbatch
        (slurm / kept).parent.mkdir(exist_ok=True)
        (slurm / kept).write_text("round 1\n")
        assert main(["why", "7"]) == 0
        screen = capsys.readouterr().out
        assert "No such file" not in screen
        (slurm / kept).unlink()
    # 17 min, but where this checkout ran a playbook on two nodes: then as it took there
    assert re.search(r"first cause it takes longer than this step should: 22 min, overdue since \d+ min\n", screen)
    assert "bringup why 7 --on-nodes" in screen


STEPS = """case "$*" in
*allocations*) echo "JobID|User|State"; echo "7|ann|FAILED";;
*) echo "JobID|NTasks|Layout|NodeList"; printf "%s\\n" "7|||n[0-1]" "7.batch|1|Unknown|n0" "7.0|8|Block|n[0-1]";;
esac"""


def test_the_accounting_says_on_which_node_a_rank_of_srun_ran(slurm, capsys):
    put(slurm, "sacct", STEPS)
    (slurm / "job.log").write_text("[rank4]: Traceback (most recent call last):\n[rank4]: ValueError: 3 columns\n")
    assert main(["why", "7"]) == 0
    assert "first cause rank 4 on n1: ValueError: 3 columns" in capsys.readouterr().out
    put(slurm, "sacct", STEPS.replace("Block", "Unknown"))
    assert main(["why", "7"]) == 0
    screen = capsys.readouterr().out
    assert "first cause rank 4: ValueError: 3 columns" in screen
    assert "srun --label" in screen


def put(slurm: Path, name: str, script: str) -> None:
    program(slurm / "bin" / name, f'echo {name} "$*" >>{slurm}/asked\n{script}')


def asked(slurm: Path, name: str) -> list[str]:
    return [line for line in (slurm / "asked").read_text().splitlines() if line.split()[0] == name]


ENDED = "   Partition=gpu OverSubscribe=NO StartTime=2026-11-25T10:00:00 EndTime=2026-11-25T11:00:00\n"
FACT = {"probe": "job_processes", "at": "n0"}
SEEN = {"subject": "n0/PCI:0000:c1:00", "quantity": "job.kernel.xid_79", "value": 1, "unit": "count"}


def on_nodes(slurm: Path, capsys, change: tuple[str, str], seen: dict[str, object]) -> dict:
    """The answer about a failed job on n0 and n1, of which n0 says so much."""
    answer = "".join(f"echo '0: {json.dumps(FACT | rest)}'; " for rest in (seen, {"end": 1}))
    shown = SHOWN.format(log="/dev/null").replace("   NodeList", f"{ENDED}   ExitCode=1:0\n   NodeList")
    (slurm / "shown").write_text(shown.replace(*change) if change[0] else shown)
    node = 'echo "NodeName=n$n State=IDLE Gres=gpu:h100:2 Version=1"'
    put(slurm, "scontrol", f'case "$*" in *job*) cat {slurm}/shown;; *) for n in 0 1; do {node}; done;; esac')
    put(slurm, "sacct", "exit 1")
    put(slurm, "srun", f"{answer} echo 'srun: n1 is away' >&2; exit 1")
    assert main(["why", "7", "--on-nodes", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@for_each(
    "change, kind",
    [
        (("", ""), "gpu.xid"),
        (("OverSubscribe=NO", "OverSubscribe=OK"), "exit-code"),  # another job's GPU, perhaps
        (("OverSubscribe=NO", "OverSubscribe=NO Exclusive=NO"), "exit-code"),  # every job's words on Slurm 26.05
        (("OverSubscribe=NO", "OverSubscribe=NO Exclusive=NODE"), "gpu.xid"),
        (("OverSubscribe=NO", "OverSubscribe=OK AllocTRES=cpu=4,node=2,gres/gpu=4"), "gpu.xid"),  # all of the nodes'
        (("StartTime=2026-11-25T10:00:00", "StartTime=Unknown"), "exit-code"),
        (("EndTime=2026-11-25T11:00:00", "EndTime=Unknown"), "exit-code"),
        (("JobState=FAILED", "JobState=COMPLETED"), "none"),
    ],
)
def test_a_fault_of_a_gpu_is_the_cause_only_where_time_and_gpu_are_the_jobs(slurm, capsys, change, kind):
    answer = on_nodes(slurm, capsys, change, SEEN)
    assert answer["cause"]["kind"] == kind
    assert "Xid 79" in json.dumps(answer)
    assert any("n1: no whole answer" in line for line in answer["not_seen"])
    step = asked(slurm, "srun")[-1]
    assert "--partition=gpu" in step
    if not change[0]:
        assert float(step.split()[-1]) - float(step.split()[-2]) == 3600


@for_each(
    "line, change, kind",
    [
        (SIGNATURES["kernel.oom-job"].example, ("", ""), "kernel.oom-job"),
        (SIGNATURES["kernel.nvme"].example, ("", ""), "kernel.nvme"),
        (SIGNATURES["kernel.hung-task"].example, ("", ""), "exit-code"),  # follows from something
        (
            SIGNATURES["kernel.oom-job"].example,
            ("OverSubscribe=NO", "OverSubscribe=OK"),
            "exit-code",
        ),  # of another job?
        (SIGNATURES["kernel.nvme"].example, ("JobState=FAILED", "JobState=COMPLETED"), "none"),
    ],
)
def test_a_message_of_the_kernel_in_the_time_of_a_job_is_its_cause_where_nothing_else_says_why(
    slurm, capsys, line, change, kind
):
    answer = on_nodes(slurm, capsys, change, {"subject": "n0", "quantity": "job.kernel", "value": line, "unit": "text"})
    assert answer["cause"]["kind"] == kind
    assert answer["cause"]["node"] == ("n0" if kind.startswith("kernel") else "")
    assert line.split(":")[0] in json.dumps(answer)


def test_what_nccl_itself_says_to_try_is_the_next_step_and_no_cause():
    first = cause((FIXTURES / "real/job/nccl-hint.log").read_text(), Job("7", "ann", "FAILED", "1:0", ["n0", "n1"], 8))
    assert first.kind == "nccl.ib-completion"
    assert first.do.endswith(
        "; NCCL's hint: set NCCL_NET_GDR_LEVEL=0; if that resolves it, disable ACS following your vendor documentation."
    )


def test_a_node_that_is_not_usable_takes_no_step(slurm, capsys):
    assert main(["why", "7", "--on-nodes"]) == 0
    assert "kernel logs and processes of n1: not usable now" in capsys.readouterr().out
    assert "--nodelist=n0 --nodes=1 " in asked(slurm, "srun")[0]


ARRAY = (
    "JobId={0} ArrayJobId=5 ArrayTaskId={1} JobName=x\n   UserId=ann(1000) JobState=FAILED\n   NodeList=n0 NumTasks=1\n"
)


def test_an_array_is_asked_for_one_task_at_a_time(slurm, capsys, refused):
    records = [ARRAY.format(7, 1), ARRAY.format(5, 2)]
    (slurm / "shown").write_text("\n".join(records))
    assert "5_1, 5_2" in refused("why", "5")
    (slurm / "shown").write_text(records[0] + f"   StdOut={slurm}/%j-%A-%a.log\n")
    assert main(["why", "5_1", "--on-nodes", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    assert (job["id"], job["number"], job["logs"]) == ("5_1", "7", [f"{slurm}/7-5-1.log"])
    assert "job_processes.py 7 " in asked(slurm, "srun")[0]
    put(slurm, "scontrol", "exit 1")
    put(slurm, "sacct", 'echo "JobID|JobIDRaw|State"; echo "5_1|7|FAILED"; echo "5_2|5|FAILED"')
    assert "5_1, 5_2" in refused("why", "5")


def test_times_are_asked_for_as_they_are_read(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    for name in ("scontrol", "sacct", "squeue"):
        put(slurm, name, f"echo $SLURM_TIME_FORMAT >>{slurm}/formats; exit 1")
    main(["why", "7"])
    assert set((slurm / "formats").read_text().split()) == {"standard"}


def test_a_log_is_asked_about_without_slurm_and_what_is_not_known_is_said(tmp_path, monkeypatch, capsys, refused):
    """It said that the file is not a job number."""
    monkeypatch.setenv("PATH", "")
    (tmp_path / "a log.txt").write_text(RAISED)
    assert main(["why", str(tmp_path / "a log.txt")]) == 0
    screen = capsys.readouterr().out
    assert "first cause rank 2 on n1: ValueError: 3 columns" in screen
    assert "not known: --state, --nodes, --tasks" in screen
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"step 1 \xff\n")))  # no UTF-8
    assert main(["why", "-", "--state", "TIMEOUT", "--nodes", "n[0-1]", "--tasks", "4"]) == 0
    screen = capsys.readouterr().out
    assert "standard input: timeout, 2 nodes n0,n1\n" in screen
    assert "the job's time limit was reached" in screen
    assert "no-such-file" in refused("why", "no-such-file")
