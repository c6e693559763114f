"""Files that a person names: -o, --junit, --prometheus, --plot. Nothing that is not ours is written over.

A file is written where nothing is, or over one that begins as the same verb writes it. `-` is standard output.
Devices, fifos, folders, other people's files and the evidence of a run are refused before any work is done.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup import results
from bringup.errors import UsageError
from bringup.records import files

# bytes at the beginning of a file in which its mark stands; of an archive at the end, too
_LOOKED_AT = 1024
OF_A_RUN = {
    results.RUN,
    results.CLOSED,
    results.CLOSED + results.SIGNATURE,
    results.PROFILE,
    results.SITE,
    results.OWN_CHECKS,
    results.RUN_ARGS,
    results.METRICS,
    results.CONTINUED,
    results.OBSERVATIONS,
    results.VERDICTS,
    results.REPORT,
}


@dataclass(frozen=True)
class Kind:
    """What is written, and what every file of this kind begins with."""

    name: str
    mark: str | None  # None: never written over


PAGE = Kind("a page of bringup", "<!-- made by bringup -->")
JUNIT = Kind("JUnit XML of bringup", '<testsuites name="bringup"')
CTRF = Kind("a test report (CTRF) of bringup", '"generatedBy": "bringup"')
PROMETHEUS = Kind("gauges of bringup", "# HELP bringup_verdicts ")
PICTURE = Kind("a picture of bringup", "made by bringup")
ARCHIVE = Kind("an archive of bringup", "evidence, packed by bringup")
TICKET = Kind("a ticket of bringup", "Made by bringup from what its runs recorded.")
CERTIFICATE = Kind("a certificate of bringup", "It holds until ")
CERTIFIED = Kind("a certificate of bringup", '"holds_until": ')
SIGNATURE = Kind("a signature of SSH", "-----BEGIN SSH SIGNATURE-----")
BASELINE = Kind("a baseline of bringup", '"groups": [')
PROFILE = Kind("a profile", None)  # people edit profiles


@dataclass(frozen=True)
class Output:
    option: str  # as the user wrote it, for messages
    path: Path
    kind: Kind

    @property
    def is_standard_output(self) -> bool:
        return str(self.path) == "-"


def check(outputs: Sequence[Output]) -> None:
    """Raises UsageError for the first that cannot be written."""
    taken: dict[Path, str] = {}
    for output in outputs:
        target = output.path if output.is_standard_output else _target(output)
        if target in taken:
            raise UsageError(
                f"{taken[target]} and {output.option} both name {output.path}: give each a file of its own"
            )
        taken[target] = output.option


def write(output: Output, content: str | bytes) -> None:
    """Raises UsageError when the file may not be written."""
    if output.is_standard_output:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            sys.stdout.write(content)
        return
    target = _target(output)
    mode = stat.S_IMODE(target.stat().st_mode) & 0o666 if target.exists() else None  # who could read it still can
    data = content if isinstance(content, bytes) else content.encode()
    files.write(target, data, replace=mode is not None, mode=mode)


def make_folder(option: str, path: Path) -> None:
    """A new one, or one that is there. Raises UsageError."""
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
    """Where it is written: a link is followed, but none that somebody may have put into a results folder."""
    path, named = output.path, f"{output.option} {output.path}"
    if path.is_symlink() and any((path.parent / name).exists() for name in (results.RUN, results.PLAYBOOK)):
        raise UsageError(
            f"{named}: is a link in a results folder, where none is followed; name a file elsewhere, -o FILE"
        )
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
    if output.kind.mark is None or output.kind.mark.encode() not in _ends(target, output.kind, named):
        was = "exists already" if output.kind.mark is None else f"exists and is not {output.kind.name}"
        raise UsageError(f"{named}: {was}; it is left as it is: name a new file, or remove this one")
    return target


def _ends(path: Path, kind: Kind, named: str) -> bytes:
    try:
        with path.open("rb") as stream:
            beginning = stream.read(_LOOKED_AT)
            if kind is ARCHIVE:
                stream.seek(max(0, path.stat().st_size - _LOOKED_AT))
                beginning += b"\n" + stream.read()
            return beginning
    except OSError as error:
        raise UsageError(f"{named}: exists and cannot be read ({error.strerror}); name a new file") from error


def _refuse_evidence(target: Path, named: str) -> None:
    """In a run's folder only derived files may be added, and none that a run itself writes."""
    for folder in target.parents:
        if _is_run(folder) and (target.parent != folder or target.name in OF_A_RUN):
            raise UsageError(f"{named}: is inside the evidence of a run; name a file outside of {folder}")


def _is_run(folder: Path) -> bool:
    try:
        return (folder / results.RUN).exists()
    except OSError:  # a folder that we may not look into
        return False
