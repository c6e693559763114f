"""srun calls a node of its step by a number when the connection to it breaks; the allocation says which one it is."""

from bringup.kernel import judge
from bringup.kernel.facts import speakers
from bringup.kernel.run_folder import RunFolder
from bringup.readers import launcher, srun
from bringup.run import open as opening
from factory import a_run
from loops import case_for_each
from runs_for_tests import FAIL, OPEN, opened

LINE = "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node {}\n"


@case_for_each(
    LINE.format(1),
    "srun: error: Aborting, io error and missing step on node 1\n",
    "srun: error: _server_read: fd 17 error reading header: Connection reset by peer\n" + LINE.format(1),
)
def test_the_number_is_the_place_in_the_nodes_of_the_step(line):
    (observation,) = srun.launch_errors(line, "f", ["n4", "n7"]).observations
    assert (observation.quantity, observation.subject) == ("slurm.launch.error", "n7")
    assert "io error" in str(observation.value)
    assert "node 1" in str(observation.value)


def test_a_number_names_nobody_where_the_nodes_are_not_known_or_too_few():
    for nodes in ([], ["n0"]):
        assert srun.launch_errors(LINE.format(1), "f", nodes).observations == []


def test_a_node_that_was_not_allocated_has_no_number():
    """bringup run leaves out a node that is down: n2 is the second one of the job then, and the third of the plan."""
    run = a_run("run_ddp_2node", ["n0", "n1", "n2"]).model_copy(update={"allocated": ["n0", "n2"]})
    (lost,) = launcher.log(LINE.format(1), "raw/launch.log", run).observations
    assert (lost.quantity, lost.subject) == ("launcher.node_lost", "n2")


@case_for_each(
    ("inventory.jsonl", ["n0", "n1", "n2", "n3"], 1),
    ("launch.log", ["n0", "n1", "n2", "n3"], 1),
    ("inventory-n2.jsonl", ["n2"], 1),
    ("collectives-2.err", ["n0", "n1"], 2),
    ("collectives-1gpu.jsonl", ["n0"], 1),
    ("all_reduce_perf-4.err", ["n0", "n1", "n2", "n3"], 2),
    ("sweep.jsonl", ["n0", "n1", "n2", "n3"], 2),
    ("bad-exit.txt", ["n0", "n1", "n2", "n3"], 2),
    ("pairs-1-2.jsonl", ["n1", "n3"], 1),  # as its .step says
    ("clock.jsonl", [], 1),  # a damaged one
)
def test_the_nodes_of_a_step_follow_from_its_name_or_stand_beside_it(name, nodes, tasks):
    placed = {"pairs-1-2": "1 n3,n1\n", "clock": "1 n3,n9\n"}
    stem = name.rpartition(".")[0]
    step_of = speakers.of_file(stem, a_run("discovery", ["n0", "n1", "n2", "n3"]), placed.get(stem))
    assert (step_of.nodes, step_of.tasks_per_node) == (nodes, tasks)


def test_a_node_that_is_lost_while_srun_launches_is_the_first_cause(tmp_path, monkeypatch):
    """24 verdicts were incomplete, and nobody was named."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    folder = opened("run_ddp_2node", tmp_path)
    (folder / "raw/launch.log").write_text(LINE.format(1) + "srun: Job step aborted: Waiting up to 12 seconds\n")
    opening.close_run(folder, 1)
    assert RunFolder(folder).run.allocated is None, "all of them"
    verdicts = {(v.gate, v.subject): v for v in judge.judge_folder(folder).verdicts.verdicts}
    for rank in (2, 3):
        lost = verdicts["train.rank.finished", f"n1/rank{rank}"]
        assert (lost.outcome, lost.value) == (FAIL, "lost with its node")
    assert verdicts["train.rank.finished", "n0/rank0"].outcome is OPEN
    assert "first n1/rank2 lost with its node" in str(verdicts["train.exit_code", "job"].cause)
