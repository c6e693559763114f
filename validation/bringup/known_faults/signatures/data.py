"""What is printed about the Python environment, the model, the data and checkpoints. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "model and data"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="data.import",
        area=_AREA,
        patterns=(r"ModuleNotFoundError: .", r"ImportError: ."),
        cause="the Python environment of this node lacks a package or a library, or is another one",
        do="which python in the job; make venv; discovery.python and discovery.library.* show which node differs",
        source="Python",
        example="ModuleNotFoundError: No module named 'torch'",
    ),
    Signature(
        id="data.hub",
        area=_AREA,
        patterns=(
            r"LocalEntryNotFoundError: ",
            r"OfflineModeIsEnabled: ",
            r"couldn't connect to 'https?://",
            r"GatedRepoError",
            r"RepositoryNotFoundError",
            r"cannot be (had|loaded)",
        ),
        cause="the model or the data set is not in the cache, and the hub cannot be asked from here (or not without a token)",
        do="on a host that can: hf download NAME (--repo-type dataset); HF_HOME on a filesystem that all nodes see",
        source="huggingface_hub",
        example="huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache",
    ),
    Signature(
        id="data.checkpoint",
        area=_AREA,
        patterns=(
            r"(CheckpointException|checkpoint \S+ .*(corrupt|not complete|damaged))",
            r"PytorchStreamReader failed",
            r"invalid load key",
        ),
        cause="a checkpoint is damaged or incomplete",
        do="resume from the one before; smoke.fs.* if files came out damaged on a shared filesystem",
        source="torch.distributed.checkpoint",
        example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    ),
)
