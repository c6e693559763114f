"""Faults in real trainings on CPU, their evidence, and when they end; the fast recipe; the benchmark of Trainer."""

import json
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from bringup.training.comparison.sidebyside import NotComparable, compare
from real_trainings import NOTHING_ELSE, SOURCE, STEPS, Finished, launch, one_node, two_nodes
from tiers import in_test_all

SINGLE = [sys.executable, str(SOURCE / "train_single_gpu.py")]


def progress(run: Finished, rank: int) -> dict[str, int]:
    return dict(json.loads((run.folder / f"raw/stacks/rank{rank}.json").read_text()))


def test_a_hung_rank_ends_the_job_after_the_timeout_leaves_its_stack_and_is_behind_the_others(tmp_path):
    options = ("--timeout", "6")
    run = one_node(tmp_path / "hung", "train_fsdp_single_node", *options, drill="hang-rank:1@3")
    assert run.codes == [1]
    assert run.seconds < 90
    assert sorted(run.ranks_as_ended) == ["-1", "1"]  # at once, and not after 30 s
    assert run.value(0, "train.rank.state") == "raised"
    assert "Timed out waiting 6000ms" in run.value(0, "train.rank.error")
    assert "train.rank.state" not in run.facts(1)
    hung, waiting = progress(run, 1), progress(run, 0)
    assert hung["step"] == waiting["step"] == 3
    assert hung["entered"] < waiting["entered"]
    stack = (run.folder / "raw/stacks/rank1.txt").read_text()
    main = stack[stack.rindex("Thread 0x") :].splitlines()
    assert "training/injected/rank_faults.py" in main[1]
    assert main[1].endswith("in after_step")


def test_a_rank_that_does_not_come_is_named_by_the_one_that_waits(tmp_path, monkeypatch):
    """--timeout is for hangs; the start has a patience of its own, and here it is longer."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "BRINGUP_START_S": "4"}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, str(SOURCE / "train_ddp_single_node.py"), *STEPS, "--timeout", "1"]
    run = launch(tmp_path / "late", [command])
    assert run.codes == [1]
    words = "1 of 2 ranks did not arrive within 4 s: rank 1 (n0); BRINGUP_START_S sets how long to wait"
    assert run.value(0, "train.rank.error") == f"Late: {words}"
    late = run.facts(0)["train.rank.late"]
    assert (late["subject"], late["value"], late["why"]) == ("n0/rank1", 4, words)


def test_a_hang_that_nobody_waits_for_ends_by_itself_and_says_where(tmp_path):
    run = launch(tmp_path / "alone", [[*SINGLE, *STEPS, "--timeout", "3", "--no-rehearse-resume"]], "hang-rank:0@3")
    assert run.codes == [1]
    assert run.seconds < 90
    assert run.value(0, "train.rank.state") == "hung"
    stood_still = "no step ended within 6 s after step 3, at after_step (rank_faults.py:"
    assert run.value(0, "train.rank.error").startswith(stood_still)
    assert "end" in run.facts(0)


def test_a_nan_is_said_by_the_rank_whose_loss_it_was(tmp_path):
    run = one_node(tmp_path / "nan", "train_ddp_single_node", "--no-rehearse-resume", drill="nan-rank:1@3")
    assert run.codes == [1]
    assert "step 3: the loss of this rank is nan" in run.value(1, "train.rank.error")
    assert "step 3: the gradient norm is nan, the loss of this rank was finite" in run.value(0, "train.rank.error")
    assert not (run.folder / "metrics.json").exists()


def test_a_full_device_says_what_filled_it(tmp_path):
    run = launch(tmp_path / "full", [[*SINGLE, *STEPS, "--no-rehearse-resume"]], "device-oom:0@3")
    assert run.codes == [1]
    error = run.value(0, "train.rank.error")
    assert error.startswith("OutOfMemoryError: out of device memory on n0 (cpu): parameters 0.00 GiB, gradients ")
    assert "optimizer 0.00 GiB" in error


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return launch(tmp_path_factory.mktemp("recipes") / "plain", [[*SINGLE, *STEPS, "--no-rehearse-resume"]])


@pytest.fixture(scope="module")
def plain_and_fast(plain: Finished, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Finished]:
    """The second is compiled, which takes a minute of a CPU."""
    command = [*SINGLE, *STEPS, "--no-rehearse-resume", "--recipe", "fast"]
    return plain, launch(tmp_path_factory.mktemp("recipes") / "fast", [command])


@in_test_all
def test_fast_computes_the_same_losses(plain_and_fast):
    plain, fast = plain_and_fast
    assert fast.codes == [0], fast.output
    assert fast.metrics().loss == pytest.approx(plain.metrics().loss, abs=1e-5)
    assert fast.metrics().grad_norm == pytest.approx(plain.metrics().grad_norm, rel=1e-4)


@in_test_all
def test_fast_is_recorded_and_not_compared_with_plain(plain_and_fast):
    from factory import an_entry

    plain, fast = plain_and_fast
    assert (plain.args().recipe, plain.args().compile) == ("plain", False)
    headers = (Path(sysconfig.get_path("include")) / "Python.h").is_file()
    compiles = shutil.which("g++") is not None and headers and " " not in sys.prefix
    assert fast.args().compile == compiles
    assert ("compile per block" in {what for what, state in fast.args().tuning.items() if state == "on"}) == compiles
    with pytest.raises(NotComparable, match="recipe plain vs fast"):
        compare([an_entry(plain.folder), an_entry(fast.folder)])


@in_test_all
def test_own_work_of_every_rank_is_timed_in_each_strategy(plain_and_fast):
    for run in plain_and_fast:
        times = run.metrics().rank_times_s
        for part in (times.fetch, times.forward, times.optimizer):
            assert all(0 < value < step for value, step in zip(part, times.step_p50, strict=True))


@in_test_all
def test_a_gradient_that_is_damaged_on_one_rank_parts_the_replicas(tmp_path):
    run = one_node(tmp_path / "flipped", "train_ddp_single_node", *NOTHING_ELSE, drill="flip-gradient:1@5")
    sums = run.metrics().parameter_checksums
    assert sums[0] != sums[1]
    norms = run.metrics().grad_norm
    assert norms[4] > 10 * norms[3]  # of rank 1: the highest counts


def test_a_rank_that_reads_the_rows_of_another_is_seen(tmp_path):
    metrics = one_node(tmp_path / "same-rows", "train_ddp_single_node", *NOTHING_ELSE, drill="same-rows:1").metrics()
    assert (metrics.sample_count, metrics.sample_distinct) == (6 * 8, 6 * 8 // 2)


def test_killed_rank_ends_the_job_and_leaves_no_last_word(tmp_path):
    run = two_nodes(tmp_path / "killed", 1, "train_ddp_multi_node", drill="kill-rank:1@3")
    assert run.codes == [1, 1]
    assert run.seconds < 60
    assert "-9" in run.ranks_as_ended
    assert not (run.folder / "metrics.json").exists()
    assert run.value(1, "train.rank.world_size") == 2
    assert "train.rank.state" not in run.facts(1)
    assert "end" not in run.facts(1)
    assert run.value(0, "train.rank.state") == "raised"
