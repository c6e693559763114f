"""Files that a person names: -o, --junit, --prometheus. A file that is there is refused without --force.

`-` is standard output. Devices, fifos, folders and the evidence of a run are refused before any work is done.
"""

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bringup.kernel import results
from bringup.kernel.errors import UsageError
from bringup.kernel.records import files

OF_A_RUN = {
    *(results.RUN, results.CLOSED, results.CLOSED + results.SIGNATURE, results.PROFILE, results.SITE),
    *(results.OWN_CHECKS, results.RUN_ARGS, results.METRICS, results.CONTINUED),
    *(results.OBSERVATIONS, results.VERDICTS, results.REPORT),
}


class Output(NamedTuple):
    option: str  # as the user wrote it, for messages
    path: Path
    force: bool = False  # over a file that is there

    @property
    def is_standard_output(self) -> bool:
        return str(self.path) == "-"


def check(outputs: Sequence[Output]) -> None:
    """Raise UsageError for the first that cannot be written."""
    taken: dict[Path, str] = {}
    for output in outputs:
        target = output.path if output.is_standard_output else _target(output)
        if target in taken:
            both = f"{taken[target]} and {output.option} both name {output.path}"
            raise UsageError(f"{both}: give each a file of its own")
        taken[target] = output.option


def write(output: Output, content: str | bytes) -> None:
    """Write one output. Raises UsageError when the file may not be written."""
    if output.is_standard_output and isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    elif output.is_standard_output:
        sys.stdout.write(str(content))
    else:
        target = _target(output)
        mode = stat.S_IMODE(target.stat().st_mode) & 0o666 if target.exists() else None  # who could read it still can
        data = content if isinstance(content, bytes) else content.encode()
        files.write(target, data, replace=mode is not None, mode=mode)


def make_folder(option: str, path: Path) -> None:
    """Make the folder, if it is not there. Raises UsageError."""
    named = f"{option} {path}"
    _refuse_evidence(Path(os.path.realpath(path)) / "new", named)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{named}: no folder can be made there ({error.strerror}); name a new one") from error


def write_in(folder: Path, name: str, data: bytes) -> None:
    """Write a new file of this folder, and nowhere else. Raises UsageError."""
    if name != Path(name).name or name in ("", ".."):
        raise UsageError(f"{folder}: {name!r} is not the name of a file in it; nothing was written outside of it")
    files.write(folder / name, data)


def _target(output: Output) -> Path:
    """Return where it is written: a link is followed, but none that somebody may have put into a results folder."""
    path, named = output.path, f"{output.option} {output.path}"
    if path.is_symlink() and any((path.parent / name).exists() for name in (results.RUN, results.PLAYBOOK)):
        why = "is a link in a results folder, where none is followed"
        raise UsageError(f"{named}: {why}; name a file elsewhere, -o FILE")
    target = Path(os.path.realpath(path))
    _refuse_evidence(target, named)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{named}: is a link to {target}, which is not there; name a new file") from None
        if not target.parent.is_dir():
            raise UsageError(f"{named}: there is no folder {target.parent}; make it first") from None
        return target
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}; name another file") from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"{named}: is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{named}: is not a regular file; name a new file, or - for standard output")
    if not output.force:
        raise UsageError(f"{named}: exists already; it is left as it is: name a new file, or add --force")
    return target


def _refuse_evidence(target: Path, named: str) -> None:
    """Raise UsageError for a file that a run wrote itself: only derived files may be added to its folder."""
    for folder in target.parents:
        if results.holds(folder, results.RUN) and (target.parent != folder or target.name in OF_A_RUN):
            raise UsageError(f"{named}: is inside the evidence of a run; name a file outside of {folder}")
