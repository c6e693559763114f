"""On which node a rank ran, of jobs that torchrun or srun started; and where nothing says it, no node is named."""

from dataclasses import replace

import pytest
from bringup.why.job import Answer, Cause, Job, Text, elsewhere, judged
from bringup.why.places import HOW_TO_LEARN, Step
from loops import for_each

TWO, FOUR = ["n0", "n1"], ["n0", "n1", "n2", "n3"]
TORCHRUN = Job("7", "ann", "FAILED", "1:0", TWO, 2, steps=[Step(TWO, 2, "Cyclic")])  # 8 ranks in each task
TORCHRUN_4 = Job("7", "ann", "FAILED", "1:0", FOUR, 4, steps=[Step(FOUR, 4, "Cyclic")])
TASKS = Job("7", "ann", "FAILED", "1:0", TWO, 8, steps=[Step(TWO, 8, "Block", 4)])  # a rank each
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
WAITED = (
    "[rank{0}]:[E1] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran\n"
)
LISTED = "  host      : {}\n  rank      : {} (local_rank: {})\n  exitcode  : -6 (pid: 7)\n"
BEHIND = "".join(WAITED.format(rank, 38 - (rank == 1)) for rank in range(16))


def raised(rank: int, label: str = "") -> str:
    frame = '  File "train.py", line 9, in step'
    lines = ("Traceback (most recent call last):", frame, "    loss.backward()", ECC)
    return "".join(f"{label}[rank{rank}]: {line}\n" for line in lines)


def answer(log: str, job: Job) -> Answer:
    return judged(job, [Text("slurm-7.out", log, 0.0)], {})


def place(log: str, job: Job) -> tuple[str, str]:
    cause = answer(log, job).cause
    return cause.who, cause.node


@for_each(
    (raised(1), TORCHRUN, 1, ""),  # it is on n0, and n1 was named
    (raised(1) + LISTED.format("gpu-7.lab", 1, 1), Job("x.log", "", "UNKNOWN"), 1, "gpu-7"),
    (raised(1) + LISTED.format("localhost", 1, 1), Job("x.log", "", "UNKNOWN"), 1, ""),
    (BEHIND, TORCHRUN, 1, ""),
    (BEHIND + LISTED.format("n0", 0, 0) + LISTED.format("n1", 8, 0), TORCHRUN, 1, "n0"),
    (raised(3), TORCHRUN_4, 3, ""),  # n3 was named
    (raised(1), replace(TASKS, steps=[Step(TWO, 8, "Cyclic", 4)]), 1, "n1"),  # n0 was named
    (raised(3, "0: "), TORCHRUN_4, 3, "n0"),
)
def test_a_rank_of_torchrun_is_no_task_of_slurm(log, job, rank, node):
    """With 8 ranks on each of two nodes, the healthy n1 was to be drained for the GPU of rank 1, which is in n0."""
    for known in (job, replace(job, steps=[])):
        if known.steps or node != "n1":  # without the accounting nobody knows that layout
            assert place(log, known) == (f"rank {rank}", node)


@for_each(TORCHRUN, replace(TASKS, steps=[]))
def test_where_the_node_is_not_known_the_answer_says_how_to_learn_it(job):
    assert answer(raised(1), job).not_seen == [f"the node of rank 1: {HOW_TO_LEARN}"]
    assert answer("step 1\n", job).not_seen == []


@for_each(
    ([Step(TWO, 8, "Block", 4)], "n1"),
    ([Step(TWO, 8, "BCyclic", 4)], "n1"),  # over the sockets of a node
    ([Step(TWO, 8, "CBlock", 4)], "n0"),
    ([Step(["n1", "n0"], 8, "Block", 4)], "n0"),  # a step's own order
    ([Step(TWO, 8, "Plane", 4)], ""),
    ([Step(TWO, 8, "Arbitrary", 4)], ""),
    ([Step(TWO, 8, "Block,Pack", 4)], "n1"),
    ([Step(TWO, 9, "Block", 4)], ""),  # 5 and 4, or 8 and 1
    ([Step(TWO, 7, "Block", 4)], ""),  # 4 and 3, or 3 and 4
    ([Step(TWO, 4, "Block", 4)], ""),  # its ranks are more than its tasks
    ([Step(TWO, 8, "Block", 4), Step(TWO, 8, "Block", 4)], "n1"),
    ([Step(TWO, 8, "Block", 4), Step(TWO, 8, "Cyclic", 4)], ""),
    ([Step(TWO, 8, "Block", 4), Step(["n0"], 1, "Cyclic")], ""),  # perhaps torchrun on one node
    ([Step(TWO, 8, "Block")], ""),  # not requested for each node: 7 on n0 and 1 on n1 where n1 has one free core
    ([Step(TWO, 8, "Cyclic")], ""),
    ([Step(TWO, 5, "Block")], "n1"),  # the last one
    ([Step(["n0", "n1", "n2", "n3", "n4"], 8, "Cyclic")], "n4"),  # of the first round
    ([Step([], 0, "")], ""),
    ([], ""),
)
def test_a_rank_of_srun_is_where_the_accounting_laid_its_task_out(steps, node):
    assert place(raised(4), replace(TASKS, steps=steps)) == ("rank 4", node)


def test_a_layout_that_a_line_of_srun_contradicts_is_not_believed():
    lost = "srun: error: n0: task {}: Terminated\n"
    assert place(raised(4) + lost.format(3), TASKS)[1] == "n1"
    assert place(raised(4) + lost.format(7), TASKS)[1] == ""
    two = replace(TASKS, steps=[Step(TWO, 6, "Cyclic", 3), Step(TWO, 8, "Block", 4)])
    assert place(raised(4, "4: ") + "7: [rank7]: step\n", two)[1] == "n1"  # the first has no task 7


@for_each(
    (raised(2, "2: "), "rank 2", "n1"),
    ("2: ValueError\n" + raised(8, "1: "), "rank 8", "n0"),  # torchrun's task 1 began on n0, srun says
    ("0: [rank0]: step\n", "task 0", "n0"),
)
def test_lines_with_both_labels_say_whether_a_rank_is_a_task(labels, who, node):
    end = f"srun: error: {node}: task {labels[0] if who != 'rank 8' else 1}: Exited with exit code 1\n"
    assert place(labels + end, replace(TASKS, steps=[], tasks=4)) == (who, node)


def test_a_line_that_only_srun_labels_is_of_a_task_in_which_any_rank_may_be():
    log = "1: ValueError: 3 columns\n1: step\n"
    failed = '1: Traceback (most recent call last):\n1:   File "t.py", line 9, in load\n' + log
    assert place(failed + "srun: error: n1: task 1: Exited with exit code 1\n", TORCHRUN) == ("task 1", "n1")


@for_each(
    ([("n0", 5, 5), ("n2", 17, 1)], 3, "n0"),
    ([("n0", 5, 5), ("n2", 17, 1)], 20, "n2"),
    ([("n0", 5, 5), ("n2", 17, 1)], 9, ""),  # perhaps 8 on each node, perhaps 16
    ([("n0", 0, 0), ("n1", 8, 0), ("n2", 16, 0), ("n3", 24, 0)], 31, "n3"),
    ([("n0", 0, 0), ("n1", 8, 0), ("n2", 16, 0)], 31, ""),
    ([("elsewhere", 5, 5)], 5, ""),
)
def test_the_list_of_torchrun_tells_the_hosts_of_the_ranks_between(listed, rank, node):
    assert place(raised(rank) + "".join(LISTED.format(*each) for each in listed), TORCHRUN_4)[1] == node


def test_lists_of_two_launchers_that_print_at_once_are_told_apart():
    """The host was that of the other launcher's line."""
    both = [[f"{task}: {line}" for line in LISTED.format(f"n{task}", 8 * task, 0).splitlines()] for task in (0, 1)]
    mixed = "".join(f"{line}\n" for pair in zip(*both, strict=True) for line in pair)
    assert place(BEHIND + mixed, TORCHRUN) == ("rank 1", "n0")


def test_of_a_running_job_a_launcher_that_stands_elsewhere_is_called_a_task():
    stacks = {f"n0/rank{rank}": "wait (a.py:1)" for rank in range(4)}
    odd = elsewhere(Cause("stalled", "no log grows"), stacks | {"n1/task1": "read (b.py:7)"})
    assert (odd.node, odd.who) == ("n1", "task 1")


@pytest.mark.parametrize("task", [3, 0])
def test_a_task_that_is_named_twice_has_no_node(task):
    """Two steps of a job, in which the task ran on two nodes."""
    twice = "".join(f"srun: error: {node}: task {task}: Exited with exit code 1\n" for node in TWO)
    assert place(raised(8, f"{task}: ") + twice, replace(TASKS, steps=[]))[1] == ""
