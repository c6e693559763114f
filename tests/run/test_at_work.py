"""What a step is busy with and expected to take while it runs; and what would run, before anything does."""

import os
from pathlib import Path

import pytest
from bringup.kernel import results
from bringup.kernel.plan import profile
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, write_record
from bringup.report.campaigns import Playbook, Step
from bringup.run import at_work, playbook
from factory import a_run

SCALING, DDP = PHASES["nccl_scaling"], PHASES["run_ddp_2node"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    return tmp_path


def raw_of(tree: Path, folder: str, *names: str) -> Path:
    """With these files, each a second newer than the one before."""
    raw = tree / folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for second, name in enumerate(names):
        (raw / name).touch()
        os.utime(raw / name, (second, second))
    return raw


def test_a_phase_is_busy_with_the_part_whose_files_are_the_newest(tree: Path):
    assert at_work.busy_with(SCALING, "x") == ""
    raw_of(tree, folder := "validation/results/nccl_scaling/x")
    assert at_work.busy_with(SCALING, "x") == ""
    raw_of(tree, folder, "collectives-2.err", "collectives-4.err", "collectives-4.jsonl", "monitor.err")
    assert at_work.busy_with(SCALING, "x") == "collectives on 4 nodes"


def test_a_training_says_its_step_and_a_line_that_is_being_written_says_nothing(tree: Path):
    raw = raw_of(tree, "training/results/run_ddp_2node-x")
    assert at_work.busy_with(DDP, "x") == ""
    (raw / "progress.jsonl").write_text('{"step": 11, "of": 60}\n{"step": 12, "of": 60}\n')
    assert at_work.busy_with(DDP, "x") == "step 12 of 60"
    (raw / "progress.jsonl").write_text('{"step": 12, "of')
    assert at_work.busy_with(DDP, "x") == ""


def played(tree: Path, name: str, nodes: list[str], outcome: Outcome = Outcome.PASS) -> None:
    step = Step(phase="nccl_scaling", folder="x", outcome=outcome, blocks=False, seconds=81.3)
    folder = tree / "validation/results/playbook" / name
    folder.mkdir(parents=True)
    book = Playbook(name=name, nodes=nodes, profile="p", planned=["nccl_scaling"], left_out=[], steps=[step])
    write_record(folder / "playbook.json", book)


def test_a_step_is_expected_to_take_what_it_took_on_as_many_nodes_and_else_what_the_plan_says(tree: Path):
    assert at_work.expected(SCALING, ["n0", "n1"]).words == "2 to 10 min"
    played(tree, "20260101-a", ["n0", "n1"])
    played(tree, "20260102-b", ["n0", "n1"], Outcome.FAIL)
    (tree / "validation/results/playbook/20260103-c").mkdir()
    (tree / "validation/results/playbook/20260103-c/playbook.json").write_text("{")
    assert at_work.expected(SCALING, ["n2", "n3"]).words == "about 81 s"
    assert at_work.expected(SCALING, ["n0"]).words == "2 to 10 min"


def test_a_training_is_expected_to_take_what_its_model_takes_and_one_that_is_late_names_why(tree: Path):
    """It said "4 to 52 min expected" of 17 s, and "1 to 5 min expected" in the 22nd minute of a step."""
    one_gpu = PHASES["run_1gpu"]
    for options in ("", "--steps 24", "--model tiny --steps 24"):
        assert at_work.expected(one_gpu, ["n0"], options).after(17) == "17 s of 1 to 3 min"
    assert at_work.expected(one_gpu, ["n0"], "--model smollm3-3b").words == "4 to 52 min"
    assert at_work.Expected(60, 300).after(22 * 60, "357024") == "22 min, overdue since 17 min; bringup why 357024"
    assert at_work.Expected(60, 60).after(100) == "100 s of about 60 s", "as slow as a busy machine is no fault"


def test_a_pair_is_counted_among_those_that_are_planned_and_a_scale_is_named(tree: Path):
    names = ("pairs-1-1-n0-n1.err", "pairs-1-2-n0-n2.err", "pairs-2-1-n0-n1.err")
    raw = raw_of(tree, "validation/results/nccl_pairwise/x", *names)
    write_record(raw.parent / "run.json", a_run("nccl_pairwise", plan={"nccl.pair.link": ["a", "b", "c"]}))
    assert at_work.busy_with(PHASES["nccl_pairwise"], "x") == "pair 2 of 3"


def test_a_dry_run_names_commands_nodes_and_minutes_and_what_is_kept_or_not_asked(tree: Path):
    request = playbook.Request(profile.load("h100-8x400g"), "h100-8x400g")
    phases, left_out = ["discovery", "smoke", "run_1gpu"], ["run_hsdp_2node: needs 2 nodes"]
    shown = playbook.dry_run(request, phases, left_out, ["smoke"], ["n0", "n1"])
    assert "sbatch infrastructure-validation/scripts/discover-environment.sbatch" in shown
    assert "smoke_test.sh" not in shown
    [one_gpu] = [line for line in shown.splitlines() if line.startswith("run_1gpu")]
    assert one_gpu.split()[1] == "n0"
    assert "KEPT       Smoke" in shown
    assert "NOT ASKED  run_hsdp_2node: needs 2 nodes" in shown
    assert shown.endswith("2 steps, 5 to 53 minutes and the queue. Nothing was submitted.")
