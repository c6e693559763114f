"""--report-to: Trainer's own reporters, offline and into the run's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "training" / "src"))
sys.path.append(str(ROOT / "infrastructure-validation" / "probes"))

from recipe import reporting  # noqa: E402
from recipe.fast import recipes  # noqa: E402
from test_training_runs import launch  # noqa: E402


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("WANDB_MODE", "WANDB_DIR", "TENSORBOARD_LOGGING_DIR", "WANDB_PROJECT", "WANDB_SILENT"):
        monkeypatch.setenv(name, "")  # so that it is taken away again
        monkeypatch.delenv(name)
    return monkeypatch


def asked(tmp_path: Path, *reporters: str) -> Any:
    return SimpleNamespace(report_to=list(reporters), run_dir=tmp_path, recipe="plain", dataloader_workers=0)


@pytest.mark.usefixtures("environment")
def test_by_default_nothing_is_reported_and_no_folder_is_made(tmp_path: Path) -> None:
    assert reporting.trainer_arguments(asked(tmp_path)) == {"report_to": []}
    assert list(tmp_path.iterdir()) == []
    assert "WANDB_MODE" not in os.environ


@pytest.mark.usefixtures("environment")
def test_wandb_is_offline_and_writes_into_the_run(tmp_path: Path) -> None:
    given = reporting.trainer_arguments(asked(tmp_path, "wandb"))
    assert (given["report_to"], given["logging_strategy"]) == (["wandb"], "steps")
    assert os.environ["WANDB_MODE"] == "offline"
    assert Path(os.environ["WANDB_DIR"]) == tmp_path / "reports"


def test_what_the_user_has_set_is_kept(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WANDB_MODE", "online")
    reporting.trainer_arguments(asked(tmp_path, "wandb"))
    assert os.environ["WANDB_MODE"] == "online"


@pytest.mark.usefixtures("environment")
def test_the_plain_recipe_leaves_logging_on_for_a_report_and_says_so(tmp_path: Path) -> None:
    with_report, without = asked(tmp_path, "wandb"), asked(tmp_path)
    assert "logging_strategy" not in recipes.trainer_arguments(with_report)
    assert recipes.trainer_arguments(without)["logging_strategy"] == "no"
    assert recipes.NO_LOGGING not in recipes.choose(with_report)
    assert recipes.NO_LOGGING in recipes.choose(without)


def test_tensorboard_gets_the_loss_of_a_real_training(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    program = str(ROOT / "training/src/train_single_gpu.py")
    run = launch(tmp_path / "run", [[sys.executable, program, "--steps", "12", "--report-to", "tensorboard"]])
    assert run.codes == [0], run.output
    events = accumulator.EventAccumulator(str(run.folder / "reports/tensorboard"))
    events.Reload()
    losses = events.Scalars("train/loss")
    assert [event.step for event in losses] == [10]
    mean = sum(run.metrics().loss[:10]) / 10
    assert losses[0].value == pytest.approx(mean, rel=1e-3)
    assert run.args().report_to == ["tensorboard"]
