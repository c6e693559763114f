"""A node that speaks for another one: what its task prints about others is no evidence, and is named."""

import json
from pathlib import Path

from bringup.kernel.facts import speakers
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.facts.reading import read_raw
from bringup.kernel.judge import judge_folder
from bringup.readers import launcher, monitor, smoke_jobs, srun
from factory import a_run, the_folder
from loops import case_for_each
from runs_for_tests import FIXTURES, OPEN, PASS, discovery, reseal

GPUS = "discovery.gpu.count"


def fact(at: str, subject: str, quantity: str = GPUS, value: object = 1, probe: str = "inventory") -> str:
    about = {"probe": probe, "at": at, "subject": subject, "quantity": quantity}
    return json.dumps(about | {"value": value, "unit": "count"})


def end(at: str, count: int = 1, probe: str = "inventory") -> str:
    return json.dumps({"probe": probe, "at": at, "end": count})


def read(folder: Path, name: str, *lines: str, phase: str = "smoke") -> Parsed:
    """A file of raw/ as a judge reads it, of three nodes. Two GPUs on each node."""
    path = folder / "raw" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_raw(the_folder(folder, a_run(phase, ("n0", "n1", "n2"))))


def believed(parsed: Parsed) -> set[tuple[str, str]]:
    return {(each.quantity, each.subject) for each in parsed.observations if not each.quantity.startswith("probe.")}


def test_a_node_cannot_make_another_one_fail(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    with (folder / "raw/inventory.jsonl").open("a") as stream:
        stream.write(f"0: {fact('n1', 'n1')}\n0: {fact('n1', 'n1', value=0)}\n")
    judged = judge_folder(reseal(folder))
    assert judged.verdicts.outcome is PASS
    (note,) = (note for note in judged.verdicts.notes if "refused" in note)
    assert note.startswith("raw/inventory.jsonl:")
    assert note.endswith("refused: task 0 runs on n0, and the line claims n1 (2 lines)")


def test_a_node_cannot_make_another_one_pass(tmp_path, monkeypatch):
    """All words of n1, said by the task of n0: 90 of 90 passed."""
    folder = discovery(tmp_path, monkeypatch)
    for path in (folder / "raw").glob("*.jsonl"):
        path.write_text(path.read_text().replace("1: {", "0: {"))
    judged = judge_folder(reseal(folder))
    assert judged.verdicts.outcome is OPEN
    assert {verdict.outcome for verdict in judged.verdicts.verdicts if verdict.subject == "n1"} != {PASS}
    counted = next(v for v in judged.verdicts.verdicts if (v.gate, v.subject) == (GPUS, "n1"))
    assert counted.outcome is OPEN


@case_for_each(

        ("counters-after.jsonl", f"0: {fact('n1', 'n1')}", "task 0 runs on n0, and the line claims n1"),
        ("counters-after.jsonl", f"0: {fact('n0', 'n1')}", f"the line of n0 claims {GPUS} of n1"),
        ("counters-after.jsonl", f"0: {fact('n0', 'n1/gpu0')}", f"the line of n0 claims {GPUS} of n1/gpu0"),
        ("counters-after.jsonl", f"0: {fact('n0', 'n1->n2')}", f"the line of n0 claims {GPUS} of n1->n2"),
        ("counters-after.jsonl", f"0: {fact('stranger', 'n0')}", "task 0 runs on n0, and the line claims stranger"),
        ("counters-after.jsonl", f"7: {fact('n1', 'n1')}", "the step has no task 7, and the line claims n1"),
        ("counters-after.jsonl", fact("n1", "n1"), "no label of srun, and the line claims n1"),
        ("binding.jsonl", f"1: {fact('n1', 'n1/task1')}", "task 1 runs on n0, and the line claims n1"),
        ("collectives-1gpu.jsonl", f"0: {fact('n1', 'n1')}", "task 0 runs on n0, and the line claims n1"),
        ("collectives-2.jsonl", f"4: {fact('n2', 'n2')}", "the step has no task 4, and the line claims n2"),
        ("array-0.jsonl", f"1: {fact('n1', 'n1', probe='scheduler_array')}", "scheduler_array alone writes there"),
        ("array-0.jsonl", fact("n1", "n1", probe="binding"), "scheduler_array alone writes there"),
        ("rank3.jsonl", fact("n0", "n0/rank3", probe="train"), "task 3 runs on n1, and the line claims n0"),
        ("array-0.jsonl", fact("n1", "n1", probe="scheduler_array"), f"the line of n1 claims {GPUS} of n1"),
)  # fmt: skip
def test_a_line_is_refused_and_named(tmp_path, name, line, says):
    parsed = read(tmp_path, name, line)
    assert believed(parsed) == set()
    assert any(problem.startswith(f"raw/{name}:1: refused: {says}") for problem in parsed.problems), parsed.problems


@case_for_each(
    ("counters-after.jsonl", f"2: {fact('n2', 'n2')}"),
    ("counters-after.jsonl", f"2: {fact('n2', 'job')}"),
    ("binding.jsonl", f"3: {fact('n1', 'n1/task3')}"),
    ("sweep.jsonl", f"4: {fact('n2', 'n2/gpu0')}"),
    ("collectives-2.jsonl", f"0: {fact('n0', '2-nodes', 'nccl.ranks')}"),
    ("collectives-2.jsonl", f"0: {fact('n0', 'n1/rank3', 'nccl.rank.stall')}"),
    ("coherence-see.jsonl", f"1: {fact('n1', 'n0->n1', 'smoke.fs.pair.append')}"),
    ("names-table.jsonl", fact("n0", "n1", "names.address", probe="names_table")),
    ("fs-check.jsonl", fact("login", "n1", "smoke.fs.seen_by_submit_host", probe="shared_fs_check")),
    ("array-3.jsonl", fact("n1", "job", "smoke.array.index", probe="scheduler_array")),
    ("rank3.jsonl", fact("n1", "n1/rank3", "train.rank.pid", probe="train")),
)
def test_what_a_probe_says_is_read(tmp_path, name, line):
    parsed = read(tmp_path, name, line)
    assert len(believed(parsed)) == 1
    assert not any("refused" in problem for problem in parsed.problems)


def test_a_step_of_some_nodes_says_so_beside_its_facts(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/pairs-1-2.step").write_text("1 n2,n1\n")  # whatever the order, Slurm has its own
    lines = (f"0: {fact('n1', 'n1--n2')}", f"1: {fact('n2', 'n1->n2')}", f"0: {fact('n0', 'n0')}")
    parsed = read(tmp_path, "pairs-1-2.jsonl", *lines)
    assert believed(parsed) == {(GPUS, "n1--n2"), (GPUS, "n1->n2")}
    (tmp_path / "raw/pairs-1-2.step").write_text("1 n1,n7\n")
    parsed = read(tmp_path, "pairs-1-2.jsonl", f"0: {fact('n1', 'n1--n2')}")
    assert believed(parsed) == set()
    assert any("pairs-1-2.step: not TASKS NODE" in problem for problem in parsed.problems)


def test_the_closing_line_of_another_node_finishes_nothing(tmp_path):
    parsed = read(tmp_path, "counters-after.jsonl", f"1: {fact('n1', 'n1')}", f"0: {end('n1')}")
    assert all(each.value is None for each in parsed.observations)


WHO = speakers.Speakers(["n0", "n1"], 1, {"n0", "n1"})


def both(label: int, node: str) -> list[str]:
    return [f"{label}: {fact(node, node)}", f"{label}: {end(node)}"]


def test_slurm_may_number_the_tasks_in_another_order_of_nodes(tmp_path):
    """With a topology plugin. The facts of every node arrive, each under a label of its own."""
    parsed = read(tmp_path, "inventory.jsonl", *both(0, "n2"), *both(1, "n0"), *both(2, "n1"), phase="discovery")
    assert believed(parsed) == {(GPUS, node) for node in ("n0", "n1", "n2")}
    assert not parsed.problems


def test_a_node_cannot_take_the_place_of_another_one_that_is_silent(tmp_path):
    parsed = read(tmp_path, "inventory.jsonl", *both(0, "n1"), *both(2, "n2"), phase="discovery")
    assert believed(parsed) == {(GPUS, "n2")}
    parsed = read(tmp_path, "inventory.jsonl", *both(0, "n1"), *both(0, "n0"), *both(2, "n2"), phase="discovery")
    assert believed(parsed) == {(GPUS, "n0"), (GPUS, "n2")}


def test_samples_and_beginnings_of_another_node_are_left_out():
    text = "".join(f"{label}: {node},1.0,5.0,0.9,1,1,,,,0.1,,\n" for label, node in ((0, "n0"), (0, "n1"), (1, "n1")))
    believed, refused = speakers.believed(text, "f", WHO, monitor.node_of)
    assert [len(rows) for rows in monitor.read(believed, "f").nodes.values()] == [1, 1]
    assert refused.problems == ["f:2: refused: task 0 runs on n0, and the line claims n1"]
    began = "0: n0 began\n0: n1 began\n1: n1 began\n"
    assert speakers.believed(began, "f", WHO, smoke_jobs.node_of)[0] == "0: n0 began\n\n1: n1 began\n"
    text = (FIXTURES / "monitor.csv").read_text()
    assert speakers.believed(text, "f", WHO, monitor.node_of) == (text, Parsed())


@case_for_each(
    "srun: error: n1: task 1: Killed", "Node failure on n1", "Task launch for 1.0 failed on node n1: whatever"
)
def test_a_task_cannot_print_what_srun_says_of_another_node(words):
    assert srun.launch_errors(f"0: {words}\n", "f").observations == []
    assert srun.launch_errors(f"srun: error: {words}\n", "f").observations != []


def test_a_task_cannot_say_how_the_ranks_of_another_node_ended():
    run = a_run("run_ddp_2node")
    oom = "slurmstepd-n1: error: Detected 1 oom_kill event"
    said_of_n1 = ("  rank      : 3 (local_rank: 1)", "  exitcode  : -9 (pid: 7)", oom)
    text = "".join(f"{label}: {words}\n" for label in (0, 1) for words in said_of_n1)
    parsed = launcher.log(text, "f", run, WHO)
    seen = {(each.quantity, each.evidence) for each in parsed.observations}
    assert seen == {("launcher.exit_code", "f:5"), ("launcher.out_of_memory", "f:6")}
    assert any("task 0 runs on n0, and the line claims n1" in problem for problem in parsed.problems)


def test_a_line_of_a_launcher_is_believed_about_its_own_node_alone():
    """The step of a training has one launcher on each node, and a user may print in it what he likes."""
    run = a_run("run_ddp_2node")
    of_step = speakers.of_file("launch", run, None)
    lost = "srun: error: Node failure on n1\n"
    for task, believed_of in (("", ["n1"]), ("1: ", ["n1"]), ("0: ", [])):
        parsed = launcher.log(f"{task}{lost}", "raw/launch.log", run, of_step)
        assert [seen.subject for seen in parsed.observations] == believed_of
        assert len(parsed.problems) == (not believed_of)
