"""The first cause of a job that bringup did not start, from logs as programs print them."""

import tracemalloc

from bringup.readers.node_states import Node
from bringup.why.first_cause import _NO_LINE, judged
from bringup.why.job import elsewhere
from bringup.why.places import Step
from bringup.why.records import Cause, Job, Text
from loops import for_each
from runs_for_tests import FIXTURES

JOB = Job("7", "ann", "FAILED", "1:0", ["n0", "n1", "n2", "n3"], 4)
NOBODY = ""


def cause(text: str, job: Job = JOB, **known) -> Cause:
    return judged(job, [Text("job.log", text, 0.0)], known.pop("nodes", {}), **known).cause


@for_each(
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
)
def test_a_log_of_a_real_program_says_who_was_first(file, kind, node, who, words):
    first = cause((FIXTURES / "real" / file).read_text())
    assert (first.kind, first.node, first.who) == (kind, node, f"rank {who}" if isinstance(who, int) else who), first
    assert words in first.words


@for_each(
    (79, "gpu.xid", "GPU has fallen off the bus; reboot the node"),
    (48, "gpu.xid", "uncorrectable memory error"),
    (44, "of-program", "NVIDIA's table gives it to the program"),
    (999, "of-program", "unknown: look it up in NVIDIA's Xid catalogue"),
)
def test_a_message_of_the_driver_means_what_the_table_of_its_numbers_says(number, kind, words):
    first = cause(f"[5.0] NVRM: Xid (PCI:0000:9a:00): {number}, pid=3100, name=python3, Ch 0000002c\n")
    assert first.kind == kind and words in first.words, first
    raised = cause(
        f"NVRM: Xid (PCI:0000:9a:00): {number}, pid=7\n[rank2]: Traceback (most recent call last):\n"
        "[rank2]: ValueError: 3 columns\n"
    )
    assert raised.kind == ("gpu.xid" if kind == "gpu.xid" else "python")


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
GROUP = "[rank{0}]:[E1] [PG ID 1 PG GUID {3} Rank {1}] failure detected by watchdog at work sequence id: "
GROUP += "{2} PG status\n"
EIGHT = Job("7", "ann", "FAILED", "1:0", ["n0", "n1"], 8, steps=[Step(["n0", "n1"], 8, "Block", 4)])


@for_each(
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


@for_each(("RUNNING", "stalled"), ("TIMEOUT", "slurm.time-limit"), ("CANCELLED", "cancelled"))
@for_each("", "0: step 2\n")
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
    assert cause(f"{CAUGHT}0: step 2\n{WAITED.format(1, 1, 38)}").kind == "collective"


@for_each(
    ("SUSPENDED", 700, "suspended"),
    ("COMPLETING", 700, "waits until its last processes"),
    ("DEADLINE", 700, "its deadline"),
    ("RUNNING", 601, "none of its logs has grown"),
    ("RUNNING", 599, "nothing speaks against"),
)
def test_a_state_has_words_of_its_own_and_a_running_job_stands_still_when_its_logs_no_longer_grow(state, quiet_s, says):
    assert says in cause("step 1\n", Job("7", "ann", state, "", ["n0"], 1), quiet_s=quiet_s).words


@for_each(("", "completing"), (WAITED.format(1, 1, 38), "collective"))
def test_a_job_that_does_not_end_says_which_node_slurm_waits_for_and_what_its_reason_means(text, kind):
    node = Node("IDLE+DRAIN", "Kill task failed")
    answer = judged(Job("7", "ann", "COMPLETING", "0:15", ["n1"], 2), [Text("job.log", text, 0.0)], {"n1": node})
    assert (answer.cause.kind, answer.cause.node) == (kind, "n1" if kind == "completing" else "")
    assert "state D" in (answer.cause.do if kind == "completing" else answer.nodes["n1"])
    assert "waits until its last processes" in (answer.cause.words if kind == "completing" else answer.then[0])
    assert answer.nodes["n1"].startswith("idle+drain: Kill task failed (a process of the job did not end by SIGKILL")


def test_a_log_that_was_not_read_is_not_called_silent():
    failed = Job("7", "ann", "FAILED", "1:0", ["n0"], 1, logs=["/x.log"])
    assert judged(failed, [], {}).cause.words == "its script ended with 1; its logs could not be read"
    assert "no line of its logs" in cause("step 1\n", failed).words


@for_each(
    ("NODE_FAIL", "0:0", {"n2": Node("DOWN+NOT_RESPONDING", "Not responding")}, "slurm.node-failure", "n2"),
    ("NODE_FAIL", "0:0", {node: Node("DOWN", "Not responding") for node in ("n1", "n2")}, "slurm.node-failure", ""),
    ("OUT_OF_MEMORY", "0:125", {}, "slurm.out-of-memory", ""),
    ("TIMEOUT", "0:0", {}, "slurm.time-limit", ""),
    ("CANCELLED", "0:15", {}, "cancelled", ""),
    ("FAILED", "139:0", {}, "exit-code", ""),
    ("FAILED", "0:53", {}, "slurm.output", ""),  # a job of root in a folder with root_squash: it said "ended with 181"
    ("COMPLETED", "0:0", {"n1": Node("IDLE+DRAIN", "Xid 79")}, "none", ""),
    ("RUNNING", "0:0", {}, "none", ""),
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
    line = "slurmstepd-n9: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks were killed.\n"
    assert cause(line, Job("7", "a", "FAILED", "", ["n1", "n2"], 2)).node == "", "n9 is of another job"


def test_one_rank_that_stands_elsewhere_than_the_others_is_named_and_two_are_not():
    stacks = {f"n{rank // 2}/rank{rank}": "wait (a.py:1), called by main" for rank in range(4)}
    stalled = Cause("stalled", "no log grows")
    odd = elsewhere(stalled, stacks | {"n1/rank2": "read (b.py:7)"})
    assert (odd.node, odd.rank, odd.stack) == ("n1", 2, "read (b.py:7)")
    assert elsewhere(stalled, stacks | {"n1/rank2": "read (b.py:7)", "n1/rank3": "x (c.py:1)"}) is stalled


def test_what_nccl_itself_says_to_try_is_the_next_step_and_no_cause():
    first = cause((FIXTURES / "real/job/nccl-hint.log").read_text(), Job("7", "ann", "FAILED", "1:0", ["n0", "n1"], 8))
    assert first.kind == "nccl.ib-completion"
    hint = "set NCCL_NET_GDR_LEVEL=0; if that resolves it, disable ACS following your vendor documentation."
    assert first.do.endswith(f"; NCCL's hint: {hint}")


OFF_THE_BUS = "79, pid=1, GPU has fallen off the bus."
IGB = "igb 0000:17:00.0 eno1: igb: eno1 NIC Link is"
XID = "[9.0] NVRM: Xid (PCI:0000:3b:00): "
NFS = "[1.0] nfs: server {} not responding, still trying"


@for_each(
    (f"{NFS.format('a')}\n[2.0] nfs: server a OK", "none", _NO_LINE),
    (f"{NFS.format('a')}\n[2.0] nfs: server b OK", "kernel.nfs", "server a"),
    (f"{NFS.format('a')}\n[2.0] nfs: server a OK\n{NFS.format('a')}", "kernel.nfs", "server a"),
    (f"{IGB} Down\n{IGB} Up", "none", _NO_LINE),
    ("mlx5_core 0000:17:00.0 ib0: Link down\nmlx5_core 0000:18:00.0 ib1: Link up", "kernel.link-down", "ib0"),
    ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:17:00.0", "none", _NO_LINE),
    ("nvidia-nvswitch3: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress", "none", _NO_LINE),
    (f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)", "none", _NO_LINE),
    (f"{XID}13, pid=1, Graphics Exception\n{XID}{OFF_THE_BUS}", "gpu.xid", "Xid (PCI:0000:3b:00): 79"),
    (f"{XID}999, pid=1, something new", "of-program", "999"),
)
def test_what_ended_no_job_is_no_first_cause_but_is_shown(text, kind, words):
    answer = judged(JOB, [Text("dmesg.txt", text, 0.0)], {})
    assert answer.cause.kind == ("exit-code" if kind == "none" else kind), answer.cause
    assert words in answer.cause.words
    assert kind != "none" or any("dmesg.txt:1" in line for line in answer.then), answer.then


def test_an_xid_in_a_log_says_what_it_asks_for():
    for line in (f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)", f"{XID}149, Nonfatal, x"):
        assert "(it asks for nothing)" in judged(JOB, [Text("dmesg.txt", line, 0.0)], {}).then[0]
    assert cause(f"{XID}{OFF_THE_BUS}").do == "reboot the node"
    assert cause(f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)").do == "GPU Reset"


CUT_OFF = '  File "train.py", line 9, in main\n    step(batch)\n'
WAITS = "srun: Job 9 step creation still disabled, retrying (Requested nodes are busy)\n"
LOST = '  File "d.py", line 1, in num_nodes_waiting\nRendezvousError: connection to the C10d store has failed\n'


@for_each(
    (f"{CUT_OFF}ValueError: 3 columns\nstep 8\n", "python", "3 columns"),  # a log begins inside of a traceback
    (f"{CUT_OFF}step 8\n", "none", "no line of its logs says why"),
    ('n01: OSError: not there\nn02:   File "t.py", line 4, in f\n', "caught", "not there"),  # pdsh
    ("ValueError: 3 columns\nE0 failed (exitcode: 1) local_rank: 1 (pid: 9) of binary: p\n", "caught", "3 columns"),
    (WAITS, "slurm.step-waits", "its own job"),
    (f"{WAITS}srun: Step created for StepId=9.1\n", "none", ""),
    (LOST, "store", "rank 0"),
)
def test_some_lines_of_a_log_name_the_first_cause_in_them(text, kind, words):
    first = cause(text, Job(id="", user="", state="UNKNOWN"))
    assert first.kind == kind and words in first.words, first
