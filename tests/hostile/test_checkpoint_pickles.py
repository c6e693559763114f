"""`.metadata` of a checkpoint is a pickle: what torch writes there is read, and nothing else runs or is read."""

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from bringup.training.records import CheckpointFile
from loops import case_for_each
from pydantic import ValidationError
from recipe.checkpoint import files as checkpoint
from recipe.checkpoint.state import CheckpointError
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo

pytestmark = pytest.mark.filterwarnings("default")

# Written by /usr/bin/python3 of Debian 12: it pickles a member of an Enum as getattr(Class, name).
OF_DEBIAN_12 = Path(__file__).resolve().parents[2] / "tests/fixtures/checkpoint-python-3.11.2"
METADATA = "torch.distributed.checkpoint.metadata"


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


def called(module: str, name: str, *arguments: bytes) -> bytes:
    """A pickle that calls what module and name say, with arguments that are pickled already."""
    return b"\x80\x04" + text(module) + text(name) + b"\x93(" + b"".join(arguments) + b"tR."


def looked_up(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def read(folder: Path) -> Any:
    return checkpoint.CarefulReader(str(folder)).read_metadata()


def refuses(folder: Path, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(folder)


def test_what_python_3_11_2_wrote_is_read() -> None:
    assert b"getattr" in (OF_DEBIAN_12 / ".metadata").read_bytes()
    tensors = {"model.weight": torch.zeros(2, 3), "optimizer.step": torch.zeros(())}
    dcp.load(tensors, storage_reader=checkpoint.CarefulReader(str(OF_DEBIAN_12)))
    assert tensors["model.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["optimizer.step"].item() == 3
    assert read(OF_DEBIAN_12).state_dict_metadata["model.weight"].properties.memory_format is torch.contiguous_format


def test_what_python_3_13_wrote_is_read_by_older_versions(tmp_path: Path) -> None:
    written = (OF_DEBIAN_12 / ".metadata").read_bytes()
    assert text("pathlib") in written
    (tmp_path / ".metadata").write_bytes(written.replace(text("pathlib"), text("pathlib._local")))
    read(tmp_path)


@case_for_each(
    ("posix", "system"),
    ("builtins", "eval"),
    (METADATA, "os.system"),  # the module imports os, and pickle follows dots
    (METADATA, "os"),
    (METADATA, "Enum"),
    ("torch.distributed.checkpoint.filesystem", "os.system"),
    ("torch", "os.system"),
    ("torch.serialization", "os.system"),
    ("pathlib", "os.system"),
    ("pathlib", "Path"),
    ("torch.serialization", "load"),
    (METADATA, "BytesStorageMetadata"),
)
def test_a_name_that_torch_does_not_write_is_refused(tmp_path: Path, module: str, name: str) -> None:
    (tmp_path / ".metadata").write_bytes(called(module, name, text(f"touch {tmp_path}/executed")))
    refuses(tmp_path, rf"\.metadata holds {module}\.{name}, which no checkpoint of ours does")
    assert not (tmp_path / "executed").exists()


@case_for_each(
    (looked_up(METADATA, "Metadata"), "__init__"),
    (looked_up("torch", "float32"), "to_real"),
    (looked_up("torch.serialization", "_get_layout"), "__globals__"),
    (looked_up(METADATA, "_MEM_FORMAT_ENCODING"), "mro"),
    (looked_up(METADATA, "_MEM_FORMAT_ENCODING"), "__init__.__globals__"),
    (text("a text"), "format"),
)
def test_getattr_gives_members_of_one_enum_and_nothing_else(tmp_path: Path, of: bytes, name: str) -> None:
    (tmp_path / ".metadata").write_bytes(called("builtins", "getattr", of, text(name)))
    refuses(tmp_path, r"\.metadata holds getattr\(.*which no checkpoint of ours does")


def test_an_entry_that_torch_would_unpickle_itself_is_refused(tmp_path: Path) -> None:
    class Command:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path}/executed",)

    content = io.BytesIO()
    torch.save(Command(), content)
    (tmp_path / "__0_0.distcp").write_bytes(content.getvalue())
    hostile = metadata.Metadata(
        state_dict_metadata={"model.weight": metadata.BytesStorageMetadata()},
        storage_data={metadata.MetadataIndex("model.weight"): _StorageInfo("__0_0.distcp", 0, content.tell())},
    )
    (tmp_path / ".metadata").write_bytes(pickle.dumps(hostile))
    with pytest.raises(dcp.CheckpointException, match="BytesStorageMetadata, which no checkpoint of ours does"):
        dcp.load({"model.weight": torch.zeros(2, 3)}, storage_reader=checkpoint.CarefulReader(str(tmp_path)))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("where", ["../elsewhere.distcp", "/etc/passwd", "below/__0_0.distcp"])
def test_a_file_outside_of_the_checkpoint_is_refused(tmp_path: Path, where: str) -> None:
    shutil.copytree(OF_DEBIAN_12, tmp_path, dirs_exist_ok=True)
    hostile = pickle.loads((tmp_path / ".metadata").read_bytes())
    for part in hostile.storage_data.values():
        part.relative_path = where
    (tmp_path / ".metadata").write_bytes(pickle.dumps(hostile))
    refuses(tmp_path, "which lies outside of the checkpoint")


def test_something_else_than_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps({"model.weight": 1}))
    refuses(tmp_path, "holds a dict, not the metadata of a checkpoint")


def test_the_names_in_a_checkpoint_lead_to_no_file_outside_of_it() -> None:
    """Who resumes opens each: a FIFO elsewhere would hold him up for ever."""
    for name in (".metadata", "__0_0.distcp"):
        assert CheckpointFile(name=name, rank=0, bytes=1).name == name
    for name in ("../x", "/x", "a/../../x", "..", "", "x\n"):
        with pytest.raises(ValidationError):
            CheckpointFile(name=name, rank=0, bytes=1)
