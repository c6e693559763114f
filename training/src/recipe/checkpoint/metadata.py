"""Reads `.metadata`, which is a pickle, as nothing but what torch writes there.

What the pickle may name is a closed table. Nothing is looked up in a module, because pickle follows dotted names there:
`os.system`, of a module that imports os.
"""

from __future__ import annotations

import pathlib
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata

METADATA = ".metadata"
_ENCODING = metadata._MEM_FORMAT_ENCODING


class CheckpointError(RuntimeError):
    """This rank could not write or read its part. One line: step, rank, file, cause."""


def _member(of: object, name: object) -> _ENCODING:
    """All that getattr may do: Python 3.11.2, of Debian 12, pickles a member of an Enum as getattr(Class, name)."""
    if of is not _ENCODING or not isinstance(name, str) or name not in _ENCODING.__members__:
        raise CheckpointError(f"{METADATA} holds getattr({of!r}, {name!r}), which no checkpoint of ours does")
    return _ENCODING.__members__[name]


_TENSOR = (metadata.TensorStorageMetadata, metadata.TensorProperties, metadata.ChunkStorageMetadata, _ENCODING)
_WHOLE = (metadata.Metadata, metadata.MetadataIndex, metadata.StorageMeta, filesystem._StorageInfo)
# No BytesStorageMetadata: torch unpickles such an entry without any list, and all that we save is tensors.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "getattr"): _member,
    ("pathlib._local", "PosixPath"): pathlib.PosixPath,  # written by Python 3.13; older ones have no such module
    ("pathlib", "PosixPath"): pathlib.PosixPath,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("torch", "Size"): torch.Size,
    **{(kind.__module__, kind.__name__): kind for kind in (*_TENSOR, *_WHOLE)},
    **{
        ("torch", name): getattr(torch, name)
        for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")
    },
}


class CarefulReader(dcp.FileSystemReader):
    """torch's reader of checkpoints, which does not trust .metadata."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Read the metadata, without its note of where it was written. Raises CheckpointError for anything else."""
        with (Path(str(self.path)) / METADATA).open("rb") as stream:
            read = _Unpickler(stream).load()
        if type(read) is not metadata.Metadata:
            raise CheckpointError(f"{METADATA} holds a {type(read).__name__}, not the metadata of a checkpoint")
        for part in read.storage_data.values():
            if part.relative_path != Path(part.relative_path).name:
                raise CheckpointError(f"{METADATA} names {part.relative_path!r}, which lies outside of the checkpoint")
        read.storage_meta = metadata.StorageMeta()
        return read


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise CheckpointError(f"{METADATA} holds {module}.{name}, which no checkpoint of ours does")
        return _ALLOWED[module, name]
