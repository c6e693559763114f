"""What the kernel calls and does not import: MODULE, or MODULE:FUNCTION. A reader, a domain or a room is one line here.

Each is imported when it is first called, so that a run loads what its own files need. Found by name, never by a scan.
"""

import importlib
from functools import cache
from typing import Any

READERS = ("bringup.readers.files",)
"""Modules with FILES (the name of a file below raw/ -> its reader) and TOGETHER (readers of several files)."""

DOMAINS = {
    **{
        name: f"bringup.domains.{name}"
        for name in ("fabric", "filesystem", "gpu", "load", "names", "nccl", "node", "rails", "slurm", "sweep")
    },
    "training": "bringup.training.domain.ends",
}
"""The first part of what `from: computed` names -> its module."""

RISES, SETTING = "bringup.domains.load:rises", "bringup.domains.slurm:setting"
TRAINING = "bringup.training.records.folder:TrainingRecords"
OF_TRAINING, OF_EVIDENCE = "bringup.training.domain.records:of_training", "bringup.domains.provenance:of_folder"
"""Facts from other files than those of raw/. The second one compares the checksums of what was read."""

NUMBERS = "bringup.domains.auto:of_run"
CAUSES = "bringup.domains.blame:blame"
FIRST_ERROR = "bringup.domains.nccl:first_error"
NAMES, NAMED = "bringup.domains.gpu_names:names_of", "bringup.domains.gpu_names:named"
XIDS, EXIT_CODES = "bringup.readers.known.xid", "bringup.readers.known.exit_codes:EXIT_CODES"
SIGNATURES = "bringup.readers.known.signatures:SIGNATURES"
SIGNS = "bringup.readers.known.signs:in_run"
DRILLED, DRILLS_ANSWER = "bringup.drill.evidence:drilled", "bringup.drill.evidence:diagnosable"
SOAKED, SOAK_SHOWN = "bringup.soak.counted:observed", "bringup.soak.records:shown"


ROOMS = (
    "bringup.accept",
    "bringup.soak",
    "bringup.compare",
    "bringup.drill",
    "bringup.why",
    "bringup.preflight",
    "bringup.health",
)
"""Rooms with verbs of their own (verbs.py). `git rm -r` one, take its name out here, and the rest goes on."""


@cache
def called(name: str) -> Any:
    """Return the function, or the module, of this name."""
    module, _, function = name.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, function) if function else imported
