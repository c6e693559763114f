"""The size of a checkpoint is known before it is written, and it is refused where it has no room."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import folders
import pytest
from bringup.records import CheckpointRoom
from loops import for_each
from test_checkpoints import one_process, refusal
from test_training_runs import SOURCE

sys.path.append(str(SOURCE))
pytestmark = pytest.mark.filterwarnings("default")

MIB = 2**20
HOSTS = ["n0"] * 4  # ranks, so ten files


def left(space_mib: float | None, files: int = folders.NO_LIMIT, *, by_quota: bool = False) -> folders.Left:
    says = "/ckpt, by quota" if by_quota else "/ckpt"
    return folders.Left(None if space_mib is None else space_mib / 1024, says, files, says, by_quota)


@pytest.fixture
def found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., CheckpointRoom]:
    """require() in a folder with this room, for so many checkpoints at a time."""
    from recipe import checkpoint_room

    def ask(room: folders.Left, at_once: int) -> CheckpointRoom:
        monkeypatch.setattr(folders, "left", lambda path: room)
        return checkpoint_room.require(100 * MIB, at_once, tmp_path / "checkpoints", HOSTS)

    return ask


@pytest.mark.parametrize("tied", [True, False])
def test_the_prediction_is_what_torch_writes(tmp_path: Path, tied: bool) -> None:
    """Also of bfloat16 parameters, of parameters that are not trained, and of buffers that are kept."""
    import io

    import torch
    import torch.distributed.checkpoint as dcp
    from recipe import checkpoint_room, training_state

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
    tensors = training_state.tensors_of(trainer)
    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(tmp_path))
    written = sum(path.stat().st_size for path in tmp_path.iterdir())

    own = io.BytesIO()
    torch.save({"random": training_state.random_state(), "rows": torch.zeros(0)}, own)
    assert checkpoint_room.bytes_of(model, shards=1, ranks=1) == pytest.approx(written + own.tell(), rel=0.01)


def test_it_is_counted_on_a_model_without_weights() -> None:
    import torch
    from recipe import checkpoint_room

    with torch.device("meta"):
        model = torch.nn.Linear(1000, 10**9, bias=False)
    alone = checkpoint_room.bytes_of(model, shards=1, ranks=1)
    assert 0 < alone - 12 * 10**12 < MIB
    assert checkpoint_room.bytes_of(model, shards=1024, ranks=1024) == pytest.approx(alone, rel=1e-5)


@for_each(
    ("first", "save_steps", "rehearse_at", "last", "at_once"),
    [
        (0, 0, 0, 0, 0),  # none is sure
        (0, 0, 6, 6, 1),  # the rehearsal's, which is removed
        (6, 0, 6, 0, 0),  # a resumed training that is past it
        (0, 12, 0, 12, 1),  # the last alone
        (0, 5, 6, 12, 3),  # 5, 6, 10, 12: two are kept and one is written
        (10, 5, 6, 12, 1),
    ],
)
def test_as_many_are_counted_as_lie_there_at_the_same_time(
    first: int, save_steps: int, rehearse_at: int, last: int, at_once: int
) -> None:
    from recipe import checkpoint_room

    assert checkpoint_room.saves(first, 12, save_steps, 2, rehearse_at) == (last, at_once)


def test_what_fits_is_recorded_and_leaves_nothing(found_out: Callable[..., CheckpointRoom], tmp_path: Path) -> None:
    room = found_out(left(300), 3)
    assert (room.predicted_bytes, room.predicted_files, room.at_once) == (100 * MIB, 10, 3)
    assert (room.free_bytes, room.free_files, room.limited_by) == (300 * MIB, None, "filesystem")
    assert room.quota is not None
    assert "no tool on n0 reports one" in room.quota
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_folder_that_counts_neither_bytes_nor_files_is_unknown_and_not_full(
    found_out: Callable[..., CheckpointRoom],
) -> None:
    room = found_out(left(None), 3)
    assert (room.free_bytes, room.free_files) == (None, None)


@pytest.mark.parametrize(
    ("room", "says"),
    [
        (left(299), "expected room for 300.0 MiB (predicted, 3 at a time)"),
        (left(299), "observed 299.0 MiB free on n0 (by filesystem)"),
        (left(200, by_quota=True), "observed 200.0 MiB free on n0 (by quota)"),
        (left(300, files=29), "expected room for 30 files (predicted, 3 at a time)"),
        (left(300, files=29), "observed 29 files free on n0"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(
    found_out: Callable[..., CheckpointRoom], room: folders.Left, says: str
) -> None:
    from recipe.strategy import Refused

    with pytest.raises(Refused) as refused:
        found_out(room, 3)
    assert says in str(refused.value)
    assert "--keep-checkpoints" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_is_touched_where_no_checkpoint_is_sure(
    found_out: Callable[..., CheckpointRoom], tmp_path: Path
) -> None:
    assert found_out(left(0), 0).free_bytes is None
    assert not (tmp_path / "checkpoints").exists()


def test_a_folder_that_another_node_does_not_see_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from recipe import checkpoint_room
    from recipe.strategy import Refused

    monkeypatch.setattr(checkpoint_room.group, "gather", lambda mine: [mine, mine, False, True])
    with pytest.raises(Refused, match=r"was made on n0 and is not seen on n1 \(rank 2\); give a --checkpoint-dir"):
        checkpoint_room.require(100 * MIB, 1, tmp_path, ["n0", "n0", "n1", "n1"])


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"rehearse_at_most": 11}, "--rehearse-at-most 11 GiB"),
        ({"checkpoint_timeout_s": 119}, "what --checkpoint-timeout 119 s reads at 0.1 GB/s"),
    ],
)
def test_a_rehearsal_that_would_write_more_than_it_may_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: dict[str, int], why: str
) -> None:
    import io

    import torch
    from recipe import resume
    from recipe.rank import RankFacts

    monkeypatch.setattr(resume, "job_of", lambda resolved: SimpleNamespace(shards=1))
    screen = io.StringIO()
    limits = {"rehearse_at_most": 160, "checkpoint_timeout_s": 1800} | limits
    options = {"rehearse_resume": True, "save_steps": 0, "keep_checkpoints": 2, "steps": 12} | limits
    folders_of = {"run_dir": tmp_path, "checkpoint_dir": None, "rehearse_in": None, "resume": None}
    args: Any = SimpleNamespace(**folders_of, global_batch=8, **options)
    resolved: Any = SimpleNamespace(strategy="single", gradient_accumulation=1, model_dump=lambda mode: {})
    watch: Any = None
    checkpoints = resume.Checkpoints(args, resolved, ["n0"], RankFacts("n0", screen), watch)
    with torch.device("meta"):
        checkpoints.require_room(torch.nn.Linear(1000, 10**6, bias=False))  # 12 GB
    assert checkpoints.rehearse_at == 0
    assert checkpoints.room.at_once == 0
    assert screen.getvalue().count(f"its checkpoint would take 11.2 GiB, more than {why}") == 2
    assert not (tmp_path / "checkpoints").exists()
    assert "not rehearsed" in checkpoints.fields()["checkpoint_reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_training_whose_checkpoints_do_not_fit_is_refused_before_its_first_step(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    # room for one checkpoint of 2.8 MB, and two lie there while the last one is written
    mounted = ("unshare", "-m", "bash", "-c", f'mount -t tmpfs -o size=4m tmpfs "{small}" && exec "$0" "$@"')
    run = one_process(tmp_path / "run", "--save-steps", "3", "--checkpoint-dir", str(small), under=mounted)
    message = refusal(run)
    assert "(predicted, 2 at a time)" in message
    assert "observed 4.0 MiB free on n0 (by filesystem)" in message
    assert "step 1/6" not in run.output


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_rows_that_do_not_fit_are_refused_before_they_are_made(tmp_path: Path) -> None:
    """A file that is mapped into memory and outgrows its filesystem ends the process with SIGBUS, without a word."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = ("unshare", "-m", "bash", "-c", f'mount -t tmpfs -o size=1m tmpfs "{small}" && exec "$0" "$@"')
    run = one_process(
        tmp_path / "run", "--sequence-length", "4096", "--global-batch", "16", "--data-cache", str(small), under=mounted
    )
    assert f"{small} cannot hold the tokenised rows (96 x 4096 x 4 bytes): No space left on device" in refusal(run)


def test_a_rehearsal_writes_to_the_scratch_folder_and_leaves_nothing_there(tmp_path: Path) -> None:
    from test_training_runs import launch

    program = [sys.executable, str(SOURCE / "train_single_gpu.py"), "--steps", "6", "--sequence-length", "32"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = launch(tmp_path / "run", [[*program, "--rehearse-in", str(scratch)]])
    assert run.codes == [0], run.output
    assert run.value(0, "train.checkpoint.resumable") == 0
    assert list(scratch.iterdir()) == []
    assert not (run.folder / "checkpoints").exists()

    nowhere = tmp_path / "file"
    nowhere.touch()
    run = launch(tmp_path / "again", [[*program, "--rehearse-in", str(nowhere)]])
    assert run.codes == [0], run.output
    assert f"the rehearsal writes to {run.folder}/checkpoints, because {nowhere}/again cannot be written" in run.output
    assert run.value(0, "train.checkpoint.resumable") == 0
