"""A bad argument costs one line and exit code 2, on every rank, before torch is imported."""

import functools
import os
import subprocess
from pathlib import Path

import pytest
import warm_python
from loops import case_for_each, for_each
from programs import ROOT, ran
from scripts_for_tests import refused

SOURCE = ROOT / "training/src"
FAST = ("--recipe", "fast", "--warmup-steps", "1")
WITHOUT_TORCH = (
    "import sys, runpy; sys.modules['torch'] = sys.modules['transformers'] = None; "
    "sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@functools.cache
def without_torch() -> str:
    """A Python that has all but torch, and what comes with it, in memory."""
    return warm_python.start(
        os.environ, ("bringup.kernel.records", "bringup.training.formulae.memory", "bringup.training.formulae.models")
    )


def start(entrypoint: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The entrypoint in a Python in which importing torch or transformers is an error."""
    command = [without_torch(), "-c", WITHOUT_TORCH, str(SOURCE), str(SOURCE / f"{entrypoint}.py"), *options]
    return ran(command, timeout=60, env=os.environ | environment)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path


@case_for_each(
    (("--nope",), "unrecognized arguments: --nope"),
    (("--hsdp",), "unrecognized arguments: --hsdp"),
    (("--step", "5"), "unrecognized arguments: --step"),
    (("--steps", "0"), "0 is not 1 or more"),
    (("--sequence-length", "1"), "1 is not 2 or more: a token is predicted from those before it"),
    (("--save-steps", "middle"), "argument --save-steps: "),
    (("--steps", "many"), "invalid int value: 'many'"),
    (("--learning-rate", "nan"), "nan is not more than 0"),
    (("--steps", "2"), "--warmup-steps 2 leaves nothing to measure"),
    (FAST, "--recipe fast compiles in its second step: give --warmup-steps 2 or more"),
    (("--model", "gpt"), "expected one of llama3-70b, llama3-8b, mistral-7b, smollm3-3b, tiny"),
    (("--dataset", "alpaca"), "--dataset alpaca: expected generated, a hub name like owner/name, a folder, or a file"),
    (("--global-batch", "7"), "not divisible by 2 rank(s) x 1 accumulation step(s); the nearest that is: 8"),
    (("--rows-at-once", "3"), "not divisible by 2 rank(s) x 3 row(s) at once; the nearest that is: 6"),
    (("--sync-each-batch",), "--sync-each-batch changes nothing here: a step of one micro-step reduces once"),
    (("--no-reshard-after-forward",), "under FSDP only"),
    (("--ddp-bucket-cap-mb", "0"), "0 is not 1 or more"),
    (("--run-dir", "/nowhere"), "no such run folder"),
    (("--model", "/nowhere/model"), "--model /nowhere/model: no such file or folder, seen from "),
    (("--dataset", "texts.jsonl"), "--dataset texts.jsonl: no such file or folder, seen from "),
)
def test_bad_argument_is_one_line_and_exit_code_2(run_dir, options, expected):
    done = start("train_ddp_single_node", "--run-dir", str(run_dir), *options, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    refused(done, expected)
    assert list((run_dir / "raw").iterdir()) == []


def test_a_path_is_looked_for_at_once_but_not_from_outside_of_a_container():
    inside = start("train_ddp_single_node", "--check", "--dataset", "texts.jsonl", WORLD_SIZE="2", SLURM_JOB_ID="7")
    assert (inside.returncode, inside.stderr) == (0, "")
    here = start("train_ddp_single_node", "--check", "--dataset", "texts.jsonl", WORLD_SIZE="2")
    refused(here, "--dataset texts.jsonl: no such file or folder, seen from ")


@for_each(
    ("train_single_gpu", "1", ("--gradient-accumulation", "2", "--sync-each-batch"), "one rank reduces nothing"),
    ("train_fsdp_single_node", "2", ("--ddp-bucket-cap-mb", "100"), "means something under DDP only"),
    ("train_ddp_single_node", "2", ("--ddp-bucket-cap-mb", "100"), None),
    ("train_fsdp_multi_node", "8", ("--shard-size", "4"), "is the size of a shard group of --hsdp; give both"),
    ("train_fsdp_multi_node", "8", ("--hsdp", "--shard-size", "2"), None),
)
def test_an_option_that_means_nothing_there_is_refused(program, ranks, options, says):
    done = start(program, "--check", *options, WORLD_SIZE=ranks)
    assert (done.returncode, done.stderr.count("\n")) == ((2, 1) if says else (0, 0))
    assert (says or "") in done.stderr


def test_only_one_rank_per_node_complains_but_all_leave_with_2(run_dir):
    done = start("train_ddp_single_node", "--nope", WORLD_SIZE="2", RANK="1", LOCAL_RANK="1")
    assert (done.returncode, done.stderr) == (2, "")


@case_for_each(
    ("explode", "no-fsdp, no-checkpointing"),
    ("kill-rank:1", "kill-rank:R@STEP"),
    ("no-fsdp:1", "no-fsdp, no-checkpointing"),
    ("same-rows:0", "can never fire with 1 rank(s)"),
    ("kill-rank:1@3", "can never fire with 1 rank(s)"),
    ("hang-rank:0@25", "can never fire with 1 rank(s) and 24 step(s)"),
)
def test_a_drill_that_could_not_fire_is_refused(run_dir, drill, expected):
    injected = str(SOURCE.parent / "injected")
    done = start("train_single_gpu", "--run-dir", str(run_dir), BRINGUP_DRILL=drill, PYTHONPATH=injected)
    refused(done, expected)


def test_a_program_knows_nothing_of_a_drill_that_was_not_injected_from_outside(run_dir):
    done = start("train_single_gpu", "--run-dir", str(run_dir), "--check", BRINGUP_DRILL="explode")
    assert (done.returncode, done.stderr) == (0, "")
    for path in (SOURCE.parent / "env.sh", *SOURCE.rglob("*.py"), *(SOURCE.parent / "slurm").iterdir()):
        assert "BRINGUP_DRILL" not in path.read_text(), path


def test_a_second_run_never_writes_over_the_first(run_dir):
    (run_dir / "raw" / "rank0.jsonl").write_text("evidence\n")
    refused(start("train_single_gpu", "--run-dir", str(run_dir)), "a run never writes over another")
    assert (run_dir / "raw" / "rank0.jsonl").read_text() == "evidence\n"


@for_each(*sorted(path.stem for path in SOURCE.glob("train_*_*.py")))
def test_help_teaches_without_torch(entrypoint):
    done = start(entrypoint, "--help")
    assert done.returncode == 0
    for lesson in ("per step", "What it proves", "Does not prove", "Launch", "--global-batch"):
        assert lesson in done.stdout or (lesson == "per step" and "Between nodes" in done.stdout)


def test_an_unforeseen_error_still_leaves_its_reason(run_dir):
    done = start("train_single_gpu", "--run-dir", str(run_dir))  # torch cannot be imported here
    assert done.returncode == 1
    facts = (run_dir / "raw" / "rank0.jsonl").read_text()
    assert '"train.rank.state", "value": "raised"' in facts
    assert "ModuleNotFoundError" in facts


@for_each(
    (1, ("--rows-at-once", "1"), 64, 1),
    (8, ("--rows-at-once", "1"), 8, 1),
    (16, ("--rows-at-once", "2"), 2, 2),
    (16, ("--gradient-accumulation", "2"), 2, 2),
    # a profile's workload, and the options of a job after it: the later counts
    (16, ("--rows-at-once", "1", "--gradient-accumulation", "2"), 2, 2),
    (16, ("--gradient-accumulation", "2", "--rows-at-once", "1"), 4, 1),
    (16, (), 1, 4),
)
def test_rows_at_once_give_each_number_of_ranks_its_micro_steps_for_the_same_batch(ranks, options, micro_steps, rows):
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from recipe import arguments; "
        "args = arguments.parse('', takes_hsdp=False, sharded=False); "
        "print(args.gradient_accumulation, args.per_device_batch)"
    )
    command = [without_torch(), "-c", program, str(SOURCE), "--check", "--global-batch", "64", *options]
    done = ran(command, env=os.environ | {"WORLD_SIZE": str(ranks)})
    assert (done.stdout, done.stderr) == (f"{micro_steps} {rows}\n", "")
