"""bringup sweep: which options a variant has, what its table says, and that what finished is not run again."""

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from bringup.compare import sweep
from bringup.compare import sweep_rows as table
from bringup.kernel import results as runs
from bringup.kernel.errors import RunError, UsageError
from bringup.kernel.judge import judge_folder
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, read_record, write_record
from bringup.report import run_folders
from bringup.report.campaigns import Sweep, SweepRow
from bringup.training import fields as plan
from bringup.training.comparison.entries import Entry
from bringup.training.records import RunArgs
from compare.test_regression import make_run
from loops import case_for_each, for_each
from recipe import arguments
from rich.console import Console
from runs_for_tests import reseal
from trained_runs import change, run_of

FSDP, DDP = PHASES["run_fsdp_1node"], PHASES["run_ddp_1node"]


# --- what varies


def test_fields_are_the_arguments_of_a_training():
    assert set(plan.FIELDS) <= set(RunArgs.model_fields)


@for_each(
    (["batch=1"], "no field is called 'batch'"),
    (["global_batch="], "expected global_batch=VALUE,VALUE"),
    (["global_batch=8,0"], "'0' is not a number from 1"),
    (["attention=fast"], "'fast' is not one of eager, sdpa"),
    (["compile=1"], "'1' is not one of yes, no"),
    (["compile=yes", "compile=no"], "twice"),
    (["per_device_batch=1", "gradient_accumulation=2"], "follows from the other"),
    (["nodes=1,2"], "needs a training across nodes"),
    (["reshard_after_forward=no"], "run_ddp_1node is ddp"),
)
def test_what_cannot_be_varied_is_refused_in_one_line(words, says):
    with pytest.raises(UsageError, match=says):
        plan.read(words, DDP if "is ddp" in says else FSDP)


def test_over_numbers_of_nodes_the_batch_stays_or_grows_with_them_and_one_node_has_its_own_training():
    across = PHASES["run_ddp_2node"]
    assert plan.read(["nodes=4,1,2"], across) == {"nodes": ["4", "1", "2"]}
    base = ["--model", "tiny", "--global-batch", "8"]
    strong = plan.curve(["4", "1", "2"], base, weak=False)
    assert strong == [{"nodes": "1"}, {"nodes": "2"}, {"nodes": "4"}]
    assert [plan.phase_of(across, settings).stem for settings in strong] == ["run_ddp_1node", *["run_ddp_2node"] * 2]
    assert [plan.options(base, settings)[-1] for settings in plan.curve(["2", "4"], base, weak=True)] == ["8", "16"]
    for refused in (lambda: plan.curve(["2", "3"], base, weak=True), lambda: plan.curve(["1"], [], weak=True)):
        with pytest.raises(UsageError, match="--weak needs --global-batch"):
            refused()
    with pytest.raises(UsageError, match="no training of hsdp takes one node"):
        plan.phase_of(PHASES["run_hsdp_2node"], {"nodes": "1"})


def test_strategies_are_a_list_and_each_has_its_own_training():
    across = PHASES["run_fsdp_2node"]
    assert plan.read(["strategy=ddp,fsdp,hsdp"], across) == {"strategy": ["ddp", "fsdp", "hsdp"]}
    asked = plan.variants({"strategy": ["single", "ddp", "fsdp", "hsdp"]}, grid=False, strategy="fsdp")
    stems = [plan.phase_of(across, settings).stem for settings in asked]
    assert stems == ["run_fsdp_2node", "run_1gpu", "run_ddp_2node", "run_hsdp_2node"]
    assert plan.phase_of(FSDP, {"strategy": "ddp"}).stem == "run_ddp_1node"
    assert plan.options(["--steps", "5"], {"strategy": "ddp"}) == ["--steps", "5"]
    with pytest.raises(UsageError, match="no training of hsdp takes one node"):
        plan.phase_of(FSDP, {"strategy": "hsdp"})
    with pytest.raises(UsageError, match="'zero2' is not one of single, ddp, fsdp, hsdp"):
        plan.read(["strategy=zero2"], across)


def test_a_curve_says_what_a_rank_does_against_the_fewest_nodes(tmp_path):
    few, more = make_run(tmp_path / "one", speed=1.0), make_run(tmp_path / "two", speed=0.8)
    rows = rows_of(({"nodes": "1"}, [few]), ({"nodes": "2"}, [more]))
    assert [row.efficiency for row in rows] == [1.0, pytest.approx(0.8)]
    header, cells = table.table(rows)
    assert [line[header.index("tokens/s of a rank")] for line in cells] == ["100.0 %", "80.0 %"]


VARY = {"reshard_after_forward": ["yes", "no"], "gradient_accumulation": ["2", "4"]}


def test_one_field_at_a_time_is_varied_and_a_grid_has_every_combination():
    assert plan.read(["reshard_after_forward=yes,no", "gradient_accumulation=2,4,2"], FSDP) == VARY
    labels = [plan.label(settings) for settings in plan.variants(VARY, grid=False, strategy=FSDP.strategy)]
    assert labels == ["base", *(f"{field}={value}" for field, values in VARY.items() for value in values)]
    grid = [plan.label(settings) for settings in plan.variants(VARY, grid=True, strategy=FSDP.strategy)]
    assert len(grid) == 5
    assert grid[-1] == "reshard_after_forward=no, gradient_accumulation=4"


@for_each(
    ({}, "--global-batch 64 --rows-at-once 1 --no-reshard-after-forward --steps=5"),
    ({"reshard_after_forward": "yes"}, "--global-batch 64 --rows-at-once 1 --steps=5"),
    ({"reshard_after_forward": "no"}, "--global-batch 64 --rows-at-once 1 --steps=5 --no-reshard-after-forward"),
    (
        {"gradient_accumulation": "4"},  # the programs refuse both
        "--global-batch 64 --no-reshard-after-forward --steps=5 --gradient-accumulation 4",
    ),
    ({"global_batch": "8"}, "--rows-at-once 1 --no-reshard-after-forward --steps=5 --global-batch 8"),
    ({"compile": "yes"}, "--global-batch 64 --rows-at-once 1 --no-reshard-after-forward --steps=5 --recipe fast"),
)
def test_the_options_of_a_variant_are_those_of_the_base_without_what_it_changes(settings, expected):
    base = ["--global-batch", "64", "--rows-at-once", "1", "--no-reshard-after-forward", "--steps=5"]
    assert " ".join(plan.options(base, settings)) == expected


@pytest.mark.parametrize("field", plan.FIELDS)
def test_every_value_is_an_option_that_the_programs_take(field, tmp_path, monkeypatch):
    groups = ["--hsdp"] if field == "shard_size" else []
    monkeypatch.setattr(arguments, "WORLD", 16 if groups else 2)
    for value in plan.FIELDS[field].values or {"8": ()}:
        options = plan.options(["--bf16", "--global-batch", "32", "--gradient-accumulation", "2"], {field: value})
        words = ["train_fsdp_multi_node.py", "--check", "--warmup-steps", "2", *groups, *options]
        monkeypatch.setattr(sys, "argv", words)
        args = arguments.parse("", takes_hsdp=True, sharded=field != "ddp_bucket_cap_mb")
        if hasattr(args, field):
            assert plan.as_requested(getattr(args, field)) == value


# --- the table


def repeated(tmp_path: Path, name: str, speed: float, count: int, level: float, **more: Any) -> list[Entry]:
    wander = random.Random(len(name))
    how = {"speed": speed, "wander": wander, "noise_level": level, **more}
    return [make_run(tmp_path / f"{name}{index}", **how) for index in range(count)]


def rows_of(*variants: tuple[dict[str, str], list[Entry]]) -> list[SweepRow]:
    return table.rows([table.Variant(settings, entries) for settings, entries in variants])


def test_a_difference_within_the_noise_is_called_so_and_a_larger_one_is_not(tmp_path):
    base = repeated(tmp_path, "base", 1.0, 5, 0.01)
    rows = rows_of(
        ({}, base),
        ({"attention": "eager"}, repeated(tmp_path, "same", 1.0, 5, 0.01)),
        ({"compile": "yes"}, repeated(tmp_path, "faster", 1.2, 5, 0.01)),
        ({"dataloader_workers": "4"}, repeated(tmp_path, "slowest", 0.8, 5, 0.01)),
    )
    assert [row.against_base for row in rows] == [None, "within noise", "faster", "slower"]
    assert rows[2].change == pytest.approx(0.2, abs=0.03)
    assert rows[2].low > 0
    assert [row.outcome for row in rows] == [Outcome.PASS] * 4


def test_where_the_noise_hides_a_difference_that_would_matter_nothing_is_told(tmp_path):
    base = repeated(tmp_path, "base", 1.0, 3, 0.2)
    rows = rows_of(({}, base), ({"attention": "eager"}, repeated(tmp_path, "other", 1.1, 3, 0.2)))
    assert rows[1].against_base == "cannot tell"
    assert rows[1].low < 0 < rows[1].high


def test_of_single_runs_nothing_is_said(tmp_path):
    base, other = ([make_run(tmp_path / name, speed=speed)] for name, speed in (("base", 1.0), ("near", 1.01)))
    row = rows_of(({}, base), ({"attention": "eager"}, other))[1]
    assert (row.against_base, row.low, row.change) == ("cannot tell", None, pytest.approx(0.01))


def test_a_variant_whose_losses_disagree_fails_and_another_batch_does_not(tmp_path):
    base = repeated(tmp_path, "base", 1.0, 1, 0.0)
    losses = [loss + 0.1 for loss in base[0].metrics.loss]
    wrong = repeated(tmp_path, "wrong", 1.0, 1, 0.0, metrics={"loss": losses})
    other = repeated(tmp_path, "other", 1.0, 1, 0.0, metrics={"loss": losses}, args={"global_batch": 128})
    rows = rows_of(({}, base), ({"attention": "eager"}, wrong), ({"global_batch": "128"}, other))
    assert [row.outcome for row in rows] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
    assert "loss gap 1.0e-01 DISAGREES" in str(rows[1].failed)
    assert rows[2].loss_gap == "other global_batch"


def test_a_run_that_was_not_what_was_requested_is_said(tmp_path):
    entry = repeated(tmp_path, "base", 1.0, 1, 0.0)[0]
    assert table.not_applied({"gradient_accumulation": "1"}, entry) is None
    assert table.not_applied({"compile": "yes"}, entry) == "compile: yes was requested, the run had no"
    assert table.is_base({"compile": "no"}, entry)
    assert not table.is_base({"compile": "yes"}, entry)
    assert not table.is_base({}, entry)


# --- runs


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout with a sweep of two variants on a cluster of one node; a job is a fixture's run."""
    monkeypatch.setattr(runs, "REPOSITORY", tmp_path)
    monkeypatch.setattr(sweep, "REPOSITORY", tmp_path)
    monkeypatch.setattr(sweep, "nodes_of", lambda count, nodelist, phase, environment: (["n0"], 2))
    monkeypatch.setattr(sweep.text, "shown_path", lambda path: str(Path(path).relative_to(tmp_path)))
    monkeypatch.setattr(sweep.terminal, "console", lambda: Console(file=io.StringIO()))
    folder = tmp_path / runs.SWEEPS / "s"
    folder.mkdir(parents=True)
    place = {"name": "s", "phase": "run_ddp_1node", "nodes": ["n0"], "profile": "local-cpu", "site": None}
    variants = [{}, {"attention": "sdpa"}, {"attention": "eager"}]
    varied = {"options": ["--steps", "12"], "vary": {"attention": ["sdpa", "eager"]}, "variants": variants}
    write_record(folder / runs.SWEEP, Sweep(**place, **varied, grid=False, repeat=1, runs=[], rows=[]))
    return folder


class Jobs:
    """In the place of a job: a finished run of the fixture, or one that never finished."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.broken, self.submitted = tree, False, []

    def run(self, launch):
        environment, profile = launch.environment, launch.profile
        self.submitted.append((launch.name, environment["BRINGUP_TRAIN_ARGS"]))
        made = run_of("run_ddp_1node", self.tree.parents[3] / f"made-{len(self.submitted)}", reference=False)
        if "eager" in environment["BRINGUP_TRAIN_ARGS"]:
            change(made, "run_args.json", attention="eager")
            if self.broken:
                (made / "metrics.json").unlink()
        reseal(made)
        target = runs.folder_of(launch.phase, launch.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        made.rename(target)
        return judge_folder(target, profile)


@pytest.fixture
def jobs(tree, monkeypatch) -> Jobs:
    made = Jobs(tree)
    monkeypatch.setattr(sweep.Launch, "run", lambda launch: made.run(launch))
    return made


def test_what_finished_is_not_run_again_and_what_did_not_is(tree, jobs):
    jobs.broken = True
    assert sweep.run(tree, None) != 0
    # sdpa is what the base has: its own run would be a third of the same
    assert jobs.submitted == [("s-v0-k1", "--steps 12"), ("s-v2-k1", "--steps 12 --attention eager")]
    written = read_record(tree / runs.SWEEP, Sweep)
    assert [row.label for row in written.rows] == ["base", "attention=eager"]
    assert written.rows[1].failed
    assert written.rows[1].tokens_per_s is None
    assert "attention=eager" in (tree / "report.md").read_text()
    jobs.broken, jobs.submitted = False, []
    for name in ("s-v0-k1", "s-v2-k1"):  # as real jobs leave them
        (tree / "jobs" / name).mkdir(parents=True, exist_ok=True)
    assert sweep.run(tree, None) == 0
    assert [name for name, _ in jobs.submitted] == ["s-v2-k1-s2"]
    jobs.submitted = []
    assert sweep.run(tree, None) == 0
    assert jobs.submitted == []
    assert [run.folder for run in read_record(tree / runs.SWEEP, Sweep).runs] == [
        "training/results/run_ddp_1node-s-v0-k1",
        "training/results/run_ddp_1node-s-v2-k1-s2",
    ]


def test_compare_takes_the_folder_of_a_sweep_with_what_it_varies(tree, jobs, shown):
    assert sweep.run(tree, None) == 0
    gathered = run_folders.find([tree])
    assert [folder.name for folder in gathered.folders] == ["run_ddp_1node-s-v0-k1", "run_ddp_1node-s-v2-k1"]
    assert gathered.varied == ["attention"]
    compared = json.loads(shown(2, "compare", "--json", tree))  # each run is incomplete
    assert [row["attention"] for row in compared["runs"]] == ["sdpa", "eager"]


def test_a_sweep_in_a_copy_is_not_continued(tree, tmp_path):
    elsewhere = tmp_path / "copy" / runs.SWEEPS / "s"
    elsewhere.parent.mkdir(parents=True)
    tree.rename(elsewhere)
    with pytest.raises(RunError, match="is a copy"):
        sweep.run(elsewhere, None)


@case_for_each(
    ([], "sweep needs a training and what to vary"),
    (["smoke", "--vary", "compile=yes"], "not a training; there are run_1gpu"),
    (["run_1gpu", "--resume", "last"], "no sweep is here yet"),
)
def test_a_wrong_call_is_one_line_and_exit_code_2(refused, words, says):
    assert says in refused("sweep", *words)
