"""compare: training runs side by side, each with evidence that holds, none twice."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.compare import action as comparing
from bringup.kernel.errors import NotComparable
from bringup.kernel.records import Outcome, read_record, write_record
from bringup.training.comparison import sidebyside
from bringup.training.records import RunArgs, TrainMetrics, summary_of
from factory import an_entry
from loops import case_for_each, for_each
from runs_for_tests import reseal
from trained_runs import RECORDS, STEMS, change, change_speed, run_of


def beside(folders: list[Path]) -> sidebyside.SideBySide:
    return sidebyside.compare([an_entry(folder) for folder in folders])


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """A run of each strategy."""
    return [shutil.copytree(RECORDS / stem, tmp_path / f"{stem}-x") for stem in STEMS]


def test_all_strategies_are_compared_with_the_smallest_run(folders):
    compared = beside(folders)
    assert compared.rows[0].name == "run_1gpu"
    assert {row.entry.metrics.observed.kind for row in compared.rows} == {"single", "ddp", "fsdp", "hsdp"}
    assert compared.rows[0].scaling == 1.0
    assert compared.disagreeing == []
    assert "1e-05" in compared.note
    for row in compared.cells:
        assert len(row) == len(compared.header)


@case_for_each(
    ("learning_rate", 0.01, "learning_rate 0.001 vs 0.01"),
    ("global_batch", 128, "global_batch 64 vs 128"),
    ("dataloader_workers", 4, "dataloader_workers 0 vs 4"),
    ("compute_dtype", "bfloat16", "compute_dtype float32 vs bfloat16"),
    ("torch", "2.11.0", "torch 2.13.0"),
)
def test_unlike_runs_are_refused_with_the_field(folders, field, value, says):
    change(folders[-1], "run_args.json", **{field: value})
    with pytest.raises(NotComparable, match=says):
        beside(folders)


def test_a_strategy_field_may_differ(folders):
    change(folders[-1], "run_args.json", reshard_after_forward=False, timeout_s=600)
    assert len(beside(folders).rows) == len(STEMS)


def column(compared: sidebyside.SideBySide, name: str) -> list[str]:
    return [row[compared.header.index(name)] for row in compared.cells]


def test_the_variant_of_a_run_is_what_was_observed(folders):
    assert set(column(beside(folders), "variant")) == {"plain", "ZeRO-3"}
    change(folders[-1], "metrics.json", observed_reshard_after_forward=False, observed_recomputed_layers=4)
    change(folders[-1], "run_args.json", gradient_accumulation=2)
    assert column(beside(folders), "variant")[-1] == "ZeRO-2, accumulation 2, recomputation"
    change(folders[0], "run_args.json", ddp_bucket_cap_mb=100)
    assert column(beside(folders), "variant")[0] == "buckets of 100 MiB"


def test_mfu_is_a_column_and_unknown_where_no_peak_is_known(folders):
    change(folders[0], "metrics.json", mfu=0.415)
    assert column(beside(folders), "MFU") == ["41.5 %", *["unknown"] * (len(STEMS) - 1)]


def test_the_screen_says_nothing_of_mfu_where_all_ran_on_a_cpu(folders):
    def screen() -> str:
        compared = beside(folders)
        return str([*compared.columns[1], *compared.reasons])

    assert "MFU" not in screen()
    change(folders[-1], "metrics.json", observed_devices=["GPU-a", "GPU-b", "GPU-c", "GPU-d"])
    assert "MFU: " in screen()


def test_a_field_that_may_differ_is_a_column_and_no_other_field_may(folders):
    change(folders[-1], "run_args.json", attention="eager")
    with pytest.raises(NotComparable, match=r"attention sdpa vs eager; --vary FIELD allows .* \(attention\)"):
        beside(folders)
    compared = sidebyside.compare([an_entry(folder) for folder in folders], ["attention"])
    assert column(compared, "attention") == ["sdpa"] * (len(STEMS) - 1) + ["eager"]
    assert compared.disagreeing == []
    change(folders[-1], "run_args.json", learning_rate=0.01)
    with pytest.raises(NotComparable, match=r"learning_rate 0.001 vs 0.01; --vary"):
        sidebyside.compare([an_entry(folder) for folder in folders], ["attention"])


@case_for_each(
    ({}, 0.01, ["run_hsdp_2node"], "1.0e-02 DISAGREES"),
    ({"attention": "eager"}, 0.01, ["run_hsdp_2node"], "1.0e-02 DISAGREES"),
    ({"global_batch": 128}, 0.5, [], "other global_batch"),  # what it learns is something else
)
def test_losses_have_to_agree_where_nothing_that_is_learnt_differs(folders, changed, gap, disagreeing, shown):
    losses = read_record(folders[-1] / "metrics.json", TrainMetrics).loss
    change(folders[-1], "run_args.json", **changed)
    change(folders[-1], "metrics.json", loss=[loss + gap for loss in losses])
    compared = sidebyside.compare([an_entry(folder) for folder in folders], list(changed))
    assert [row.name for row in compared.disagreeing] == disagreeing
    assert column(compared, "loss gap")[-1] == shown
    gap_of_last = compared.rows[-1].gap  # the report of trainings takes the greatest of all gaps
    assert (gap_of_last is None) is (not disagreeing)


def test_a_field_that_no_training_has_is_refused_by_name_and_a_baseline_lets_none_differ(two, refused):
    assert "--vary batch: no argument of a training is called so" in refused("compare", *two, "--vary", "batch")
    assert "exclude each other" in refused("compare", two[0], "--baseline", two[1], "--vary", "attention")


@pytest.fixture
def two(tmp_path) -> list[Path]:
    """Two runs of one strategy, closed, with the same arguments."""
    return [run_of("run_ddp_2node", tmp_path / name) for name in ("first", "second")]


def test_two_healthy_runs_are_compared_and_their_outcome_is_shown(two, capsys, shown):
    assert shown(0, "compare", *two).count("PASS") == 2
    change_speed(two[1], 1.0)  # another number, and evidence of it
    (two[1] / "raw/rank0.jsonl").unlink()
    reseal(two[1])
    main(["compare", *map(str, two)])
    assert "INCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize("baseline", [False, True])
def test_a_run_whose_numbers_were_changed_is_refused(two, refused, baseline):
    metrics = json.loads((two[1] / "metrics.json").read_text())
    (two[1] / "metrics.json").write_text(json.dumps(metrics | {"tokens_per_s": 3 * metrics["tokens_per_s"]}))
    for arguments in ([two[0], "--baseline", two[1]], [two[1], "--baseline", two[0]]) if baseline else ([*two],):
        message = refused("compare", *arguments)
        assert "metrics.json was changed after the run was closed" in message
        assert "only when its evidence holds" in message


def test_what_is_no_whole_run_is_refused_by_name(two, tmp_path, refused):
    assert "holds no run" in refused("compare", two[0], tmp_path)
    message = refused("compare", bare("run_ddp_2node", tmp_path / "bare"), "--baseline", two[0])
    assert "bare is without run.json, closed.json, raw, so it is not judged" in message
    (two[1] / "metrics.json").unlink()
    reseal(two[1])
    assert "did not finish" in refused("compare", *two)
    (two[0] / "closed.json").unlink()
    assert "run.closed" in refused("compare", *two)


@pytest.mark.parametrize("baseline", [False, True])
def test_a_copy_is_the_same_run_and_counts_once(two, tmp_path, refused, baseline):
    copy = shutil.copytree(two[0], tmp_path / "elsewhere")
    arguments = [two[1], "--baseline", two[0], copy] if baseline else [two[0], copy]
    assert "a run counts once" in refused("compare", *arguments)
    arguments = [two[0], copy, "--baseline", two[1]] if baseline else [two[0], two[1], two[0]]
    assert "a run counts once" in refused("compare", *arguments)
    assert "a run counts once" in refused("compare", two[0], "--baseline", copy)
    if not baseline:  # the records alone
        records = shutil.copytree(two[0], tmp_path / "copy", ignore=lambda *_: ["run.json", "closed.json", "raw"])
        assert "hold the same metrics.json" in refused("compare", two[0], records)


def bare(stem: str, folder: Path, **changed: object) -> Path:
    """The two records of a training, as a colleague sends them."""
    folder.mkdir(parents=True)
    for file in ("run_args.json", "metrics.json"):
        shutil.copyfile(RECORDS / stem / file, folder / file)
    change(folder, "metrics.json", **changed)
    return folder


def test_two_files_of_a_training_are_compared_and_not_judged(tmp_path, capsys):
    mine, theirs = run_of("run_ddp_2node", tmp_path / "mine"), bare("run_1gpu", tmp_path / "theirs")
    assert main(["compare", str(mine), str(theirs)]) == 2
    out, err = capsys.readouterr()
    lines = out.splitlines()
    judged = next(line for line in lines if line.startswith("judged"))
    assert re.split(r"\s{2,}", judged) == ["judged", "NOT JUDGED", "PASS"]
    assert [line.split()[-1] for line in lines if re.match(r"(single|ddp) \dx\d  +\S+$", line)] == ["theirs", mine.name]
    assert "NOT JUDGED: theirs: without run.json, closed.json, raw" in out
    assert "Not known: whether they are as the run wrote them" in out
    assert err == ""


def test_committed_records_are_compared_too_and_json_stays_json(tmp_path, capsys):
    folders = [bare(stem, tmp_path / stem) for stem in ("run_1gpu", "run_fsdp_1node")]
    (folders[1] / "run.json").write_text("{}")  # the plan, without the evidence
    assert main(["compare", "--json", *map(str, folders)]) == 2
    out, err = capsys.readouterr()
    assert [row["judged"] for row in json.loads(out)["runs"]] == ["NOT JUDGED"] * 2
    assert "NOT JUDGED: run_fsdp_1node: without closed.json, raw" in err


def test_losses_of_runs_that_are_not_judged_have_to_agree_all_the_same(tmp_path, capsys):
    losses = read_record(RECORDS / "run_ddp_1node/metrics.json", TrainMetrics).loss
    other = bare("run_ddp_1node", tmp_path / "other", loss=[loss + 0.01 for loss in losses])
    assert main(["compare", str(bare("run_1gpu", tmp_path / "one")), str(other)]) == 1
    assert "the losses of other do not agree" in capsys.readouterr().err


def test_records_that_contradict_each_other_are_refused(tmp_path, refused):
    first, two = bare("run_1gpu", tmp_path / "first"), bare("run_ddp_1node", tmp_path / "two")
    shutil.copyfile(first / "run_args.json", two / "run_args.json")
    assert "they are of two runs" in refused("compare", first, two)
    (two / "run_args.json").unlink()
    assert "run_args.json: cannot be read" in refused("compare", first, two)


def test_a_summary_that_says_another_number_than_its_field_is_refused(tmp_path, shown, refused):
    first, two = bare("run_1gpu", tmp_path / "first"), bare("run_ddp_1node", tmp_path / "two")
    args, metrics = read_record(two / "run_args.json", RunArgs), read_record(two / "metrics.json", TrainMetrics)
    head = summary_of(args, metrics, (0.9, None))
    write_record(two / "metrics.json", metrics.model_copy(update={"summary": head}), replace=True)
    assert "NOT JUDGED" in shown(2, "compare", first, two)
    better = head.model_copy(update={"tokens_per_s": 2 * head.tokens_per_s})
    write_record(two / "metrics.json", metrics.model_copy(update={"summary": better}), replace=True)
    assert "the summary of metrics.json is not what its other fields" in refused("compare", first, two)


def test_runs_are_compared_against_a_profile_that_is_named(two, shown, refused):
    (two[0] / "profile.yaml").unlink()
    assert "judge it with --profile NAME" in refused("compare", *two)
    assert shown(0, "compare", *two, "--profile", "local-cpu").count("PASS") == 2


def test_of_tuning_only_what_differs_is_named_and_another_wording_is_no_difference(folders):
    args = json.loads((folders[0] / "run_args.json").read_text())
    first, second, *_ = tuning = args["tuning"]
    for number, folder in enumerate(folders):
        change(folder, "run_args.json", tuning=tuning | {first: f"off, in words number {number}"})
    assert len(beside(folders).rows) == len(STEMS)
    del tuning[first]
    change(folders[0], "run_args.json", tuning=tuning)
    with pytest.raises(NotComparable, match=f"tuning {first}: not there vs off") as unlike:
        beside(folders)
    assert second not in str(unlike.value)


@pytest.mark.parametrize(("gap", "agree"), [(1.9e-2, True), (2.1e-2, False)])
def test_losses_in_bf16_agree_within_its_own_tolerance(folders, gap, agree):
    for folder in folders:
        change(folder, "run_args.json", compute_dtype="bfloat16")
    losses = read_record(folders[0] / "metrics.json", TrainMetrics).loss
    change(folders[-1], "metrics.json", loss=[*losses[:-1], losses[-1] + gap])
    assert ("run_hsdp_2node" not in [row.name for row in beside(folders).disagreeing]) is agree


def test_of_another_dtype_no_tolerance_is_known(folders):
    for folder in folders:
        change(folder, "run_args.json", compute_dtype="float16")
    assert "no tolerance is known for float16;" in beside(folders).note
    assert not any(row.agrees for row in beside(folders).rows)


def test_runs_without_losses_do_not_agree(folders):
    first, *others = (an_entry(folder) for folder in folders)
    silent = replace(others[-1], metrics=others[-1].metrics.model_copy(update={"loss": []}))
    row = sidebyside.row_of(silent, first, "silent")
    assert (row.gap, row.agrees) == (None, False)


def test_on_80_columns_a_run_is_a_column_and_arguments_that_differ_are_lines(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", *map(str, folders)]) == 2  # records alone: nothing was judged
    shown = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in shown if tmp_path.name not in line and "NOT JUDGED" not in line) <= 80
    assert shown[0].split("  ")[-1].strip().startswith(("fsdp", "hsdp"))
    assert any(line.startswith("tokens/s ") for line in shown)
    assert any(line.startswith("per_device_batch: ") for line in shown)


def test_scaling_without_a_run_on_one_gpu_is_the_recorded_one_or_unknown(folders):
    """A ratio of two strategies was called scaling."""
    several = [folder for folder in folders if "1gpu" not in folder.name]
    assert column(beside(several), "scaling") == ["unknown"] * len(several)
    for folder in several:
        entry = an_entry(folder)
        change(folder, "metrics.json", summary=summary_of(entry.args, entry.metrics, (0.75, None)).model_dump())
    assert column(beside(several), "scaling") == ["0.75"] * len(several)


@for_each(("pass", 0), ("no-limit", 0), ("warn", 0), ("incomplete", 2), ("fail", 1))
def test_runs_that_failed_are_compared_and_the_exit_code_says_so(folders, outcome, code):
    entries = [replace(an_entry(folder), outcome=Outcome(outcome)) for folder in folders]
    assert comparing._exit_code(sidebyside.compare(entries)) == code


def test_what_a_start_costs_stands_side_by_side_so_that_it_is_a_curve_over_ranks(folders):
    times = {"process_group_s": 1.0, "first_collective_s": 2.0, "load_s": 3.0, "first_step_s": 4.0}
    for ranks, folder in enumerate(folders, start=1):
        change(folder, "metrics.json", startup={"import_s": 10.0 * ranks, **times})
    assert sorted(column(beside(folders), "imports s")) == [f"{10 * ranks:.1f}" for ranks in range(1, len(folders) + 1)]
    assert sorted(column(beside(folders), "start-up s")) == [
        f"{10 * ranks + 10:.1f}" for ranks in range(1, len(folders) + 1)
    ]
