"""bringup tune: what does not fit is left out with its bytes, the rest is trained alike and put side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.cli import main
from bringup.compare import entries, sidebyside
from bringup.errors import NotComparable, UsageError
from bringup.judge import Judged
from bringup.run import train_here, tune
from trained_runs import run_of

STEMS = {"single": "run_1gpu", "ddp": "run_ddp_1node", "fsdp": "run_fsdp_1node"}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[train_here.Request]:
    """Requests, instead of trainings; each gets a finished run of its strategy."""
    requests: list[train_here.Request] = []

    def train(request: train_here.Request) -> tuple[Path, int]:
        requests.append(request)
        if "--no-reshard-after-forward" in request.options:
            raise UsageError("no room for ZeRO-2")
        place = tmp_path / str(len(requests))
        shutil.rmtree(place, ignore_errors=True)
        return run_of(STEMS[request.strategy], place), 0

    monkeypatch.setattr(train_here, "gpus", lambda: 0)
    monkeypatch.setattr(train_here, "train", train)
    return requests


def test_what_fits_is_trained_alike_and_compared(trained, capsys):
    words = ["tune", "--model", "tiny", "--ranks", "2", "--rows", "4", "--sequence-length", "128", "--float32"]
    assert main([*words, "--profile", "local-cpu", "--steps", "12"]) == 0
    out = capsys.readouterr().out
    assert [request.strategy for request in trained] == ["single", "ddp", "fsdp", "fsdp"]
    assert [request.ranks for request in trained] == [1, 2, 2, 2]
    shared = (
        "--model tiny --sequence-length 128 --global-batch 8 --rows-at-once 4 --no-activation-checkpointing --no-bf16"
    )
    for request in trained:
        assert request.options[: len(shared.split())] == shared.split()
        assert request.options[-2:] == ["--steps", "12"]
    assert "left out: ZeRO-2: no room for ZeRO-2" in out
    assert "run_fsdp_1node" in out
    assert "Which strategy on 2 ranks of 1 node(s): cannot tell: no GPU was at work" in out


def test_what_does_not_fit_is_not_started_and_its_bytes_are_shown(trained, capsys):
    words = ["tune", "--model", "llama3-70b", "--ranks", "8", "--profile", "h100-8x400g"]
    assert main(words) == 2
    out = capsys.readouterr().out
    assert trained == []
    left_out = [line for line in out.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 4
    assert all("does not fit: " in line and "GiB at the peak" in line for line in left_out)


def test_what_is_computed_for_each_strategy_is_not_an_option(trained, capsys):
    assert main(["tune", "--model", "tiny", "--ranks", "2", "--profile", "local-cpu", "--rows-at-once=2"]) == 2
    assert "tune sets --rows-at-once itself" in capsys.readouterr().err
    assert trained == []


def test_a_run_whose_evidence_does_not_hold_leaves_the_table_of_the_others(trained, capsys, monkeypatch):
    def entry(judged: Judged) -> entries.Entry:
        if judged.run.phase == "run_ddp_1node":
            raise NotComparable("a file was changed")
        return made(judged)

    made = entries.entry
    monkeypatch.setattr(entries, "entry", entry)
    words = ["tune", "--model", "tiny", "--ranks", "2", "--rows", "4", "--sequence-length", "128", "--float32"]
    assert main([*words, "--profile", "local-cpu"]) == 2
    out = capsys.readouterr().out
    assert "left out: DDP: a file was changed" in out
    assert "run_fsdp_1node" in out

    def compare(runs: list[entries.Entry]) -> None:
        raise NotComparable("of two models")

    monkeypatch.setattr(sidebyside, "compare", compare)
    assert main([*words, "--profile", "local-cpu"]) == 2
    assert "not compared: of two models" in capsys.readouterr().out


def test_one_rank_has_nothing_to_choose_from(trained, capsys):
    assert main(["tune", "--model", "tiny", "--ranks", "1"]) == 2
    assert "needs 2 or more" in capsys.readouterr().err
    assert trained == []


def test_on_a_cluster_each_strategy_is_a_job_of_its_phase(monkeypatch, tmp_path, capsys):
    jobs = []

    def run_phase(phase, nodes, gpus, environment, *more, name, **rest):
        jobs.append((phase.stem, nodes, gpus, environment["BRINGUP_TRAIN_ARGS"].split()))
        return SimpleNamespace(folder=run_of(STEMS[phase.strategy.replace("hsdp", "fsdp")], tmp_path / name))

    monkeypatch.setattr(tune, "run_phase", run_phase)
    monkeypatch.setattr(tune.sweep, "nodes_of", lambda *request: (["n0", "n1"], 2))
    monkeypatch.setattr(tune, "REPOSITORY", tmp_path)
    words = ["tune", "--model", "tiny", "--nodes", "2", "--sequence-length", "128", "--profile", "local-cpu"]
    main([*words, "--steps", "12"])
    assert [(stem, nodes, gpus) for stem, nodes, gpus, _ in jobs] == [
        ("run_1gpu", ["n0"], 2),
        *((f"run_{kind}_2node", ["n0", "n1"], 2) for kind in ("ddp", "fsdp", "fsdp", "hsdp")),
    ]
    for stem, _, _, options in jobs:
        assert options[options.index("--global-batch") + 1] == "4", stem  # one for all: 2 nodes x 2 GPUs x 1 row
        assert options[-2:] == ["--steps", "12"]
    assert [("--no-reshard-after-forward" in options) for *_, options in jobs] == [False, False, True, False, False]
    assert "run_ddp_1node" in capsys.readouterr().out
    assert main([*words, "--ranks", "2"]) == 2
    assert "leave out --ranks" in capsys.readouterr().err
