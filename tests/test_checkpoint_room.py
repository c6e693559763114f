"""The size of a checkpoint is known before it is written, and it is refused where it has no room."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import folders
import pytest
import torch
import torch.distributed.checkpoint as dcp
from programs import beside_a_small_disk
from recipe.checkpoint import resume, state
from recipe.strategy import Refused
from test_checkpoints import one_process, refusal
from tiers import in_test_all

pytestmark = pytest.mark.filterwarnings("default")

MIB = 2**20


@pytest.fixture
def require(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """resume.require_free() in a folder with so many MiB (None: its filesystem does not say), for `count` at a time."""

    def ask(free: float | None, count: int) -> None:
        of_space = None if free is None else free / 1024
        monkeypatch.setattr(folders, "left", lambda path, with_quota: folders.Left(of_space, "", 0, "", None))
        resume.require_free(100 * MIB, count, tmp_path / "checkpoints")

    return ask


@pytest.mark.parametrize("tied", [True, False])
def test_the_prediction_is_what_torch_writes(tmp_path, tied):
    """Also of bfloat16 parameters, of parameters that are not trained, and of buffers that are kept."""
    model = torch.nn.Module()
    model.embedding = torch.nn.Embedding(300, 64)
    model.head = torch.nn.Linear(64, 300, bias=False)
    model.narrow = torch.nn.Linear(64, 128).to(torch.bfloat16)
    model.frozen = torch.nn.Linear(64, 200).requires_grad_(False)
    model.register_buffer("kept", torch.zeros(1000))
    if tied:
        model.head.weight = model.embedding.weight
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    trainer: Any = SimpleNamespace(model_wrapped=model, optimizer=torch.optim.AdamW(trained))
    of_rank = {"rank0.random": state.random_state(), "rank0.rows": torch.zeros(0, dtype=torch.int64)}
    dcp.save(state.tensors_of(trainer) | of_rank, storage_writer=dcp.FileSystemWriter(tmp_path))
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert resume.bytes_of(model, shards=1, ranks=1) == pytest.approx(written, rel=0.01)


def test_it_is_counted_on_a_model_without_weights():
    with torch.device("meta"):
        model = torch.nn.Linear(1000, 10**9, bias=False)
    alone = resume.bytes_of(model, shards=1, ranks=1)
    assert 0 < alone - 12 * 10**12 < MIB
    assert resume.bytes_of(model, shards=1024, ranks=1024) == pytest.approx(alone, rel=1e-5)


def test_what_fits_is_said_and_leaves_nothing(require, tmp_path, capsys):
    require(300, 3)
    require(None, 3)  # a filesystem that does not say its size is not full
    output = capsys.readouterr().out
    assert "a checkpoint will take 100.0 MiB, 3 at a time; free for them: 300.0 MiB\n" in output
    assert "free for them: unknown\n" in output
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_what_does_not_fit_is_refused_with_both_numbers(require):
    with pytest.raises(Refused) as refused:
        require(299, 3)
    expected = "expected room for 300.0 MiB (predicted, 3 at a time) in "
    assert str(refused.value).startswith(f"checkpoints: {expected}")
    assert "observed 299.0 MiB free: make room there, " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_training_whose_checkpoints_do_not_fit_is_refused_before_its_first_step(tmp_path):
    small = tmp_path / "small"
    mounted = beside_a_small_disk(small, "4m")  # of 2.8 MB each, and two stay while another one is written
    run = one_process(tmp_path / "run", "--save-steps", "3", "--checkpoint-dir", str(small), under=mounted)
    message = refusal(run)
    assert "(predicted, 3 at a time)" in message
    assert "observed 4.0 MiB free: " in message
    assert "step 1/6" not in run.output


@in_test_all
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_rows_that_do_not_fit_are_refused_before_they_are_made(tmp_path):
    """A file that is mapped into memory and outgrows its filesystem ends the process with SIGBUS, without a word."""
    small = tmp_path / "small"
    mounted = beside_a_small_disk(small, "1m")
    large, under = ("--sequence-length", "4096", "--global-batch", "16"), ("env", f"TMPDIR={small}", *mounted)
    run = one_process(tmp_path / "run", *large, under=under)
    assert f"{small}/bringup-rows-" in run.output
    assert "cannot hold the tokenised rows (96 x 4096 x 4 bytes): No space left on device" in refusal(run)
