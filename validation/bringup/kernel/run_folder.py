"""A run's folder, opened once. Who judges it, or reports it, takes this value and no path."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from bringup.kernel.errors import FileError, RecordError, RunError
from bringup.kernel.plan.gate import Gate, Gates
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile, parse
from bringup.kernel.records import Closed, Record, Run, files
from bringup.kernel.records.base import parse_record
from bringup.kernel.results import CLOSED, METRICS, OWN_CHECKS, PROFILE, RAW, RUN, RUN_ARGS, SITE, UNREADABLE

CHANGED = "other bytes at a second look"  # stands instead of a checksum, too
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Seal:
    """The content of closed.json, read once: the signature is verified for the bytes that were judged."""

    content: str = ""
    closed: Closed | None = None
    why: str | None = None  # closed.json is there and cannot be read


class RunFolder:
    """Its records, the names in raw/ and the checksums of its files, each as it was first seen. What is asked for is
    read then. Of a file only the checksum stays in memory, and one with other bytes at a second look cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: dict[str, tuple[str, int]] = {}  # name -> checksum and bytes of what was read

    @cached_property
    def run(self) -> Run:
        """Return the record of the run. Raises RunError when the folder is not a run's."""
        try:
            (self.path / RUN).lstat()
            run = self.record(RUN, Run)
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(
                f"{self.path}: not a results folder (no {RUN}); `bringup runs` lists what there is"
            ) from None
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({error.strerror}); read it as its owner") from error
        except RecordError as error:
            raise RunError(str(error)) from error
        if run.phase not in PHASES:
            known = f"is unknown to this version; it knows {', '.join(PHASES)}"
            raise RunError(f"{self.path / RUN}: phase {run.phase!r} {known}")
        return run

    @cached_property
    def seal(self) -> Seal | None:
        """Return closed.json; None: there is none."""
        if not self.is_there(CLOSED):
            return None
        try:
            content = self.text(CLOSED, Closed)
            return Seal(content, parse_record(self.path / CLOSED, content, Closed))
        except RecordError as error:
            return Seal(why=self.within(error))

    @cached_property
    def profile(self) -> Profile:
        """Return the expectations that the run was opened with. Raises FileError."""
        path = self.path / PROFILE
        try:
            text = self.text(PROFILE, Profile)
            if self._seen[PROFILE][0] != self.run.profile_sha256:
                raise FileError(f"{path}: changed since the run was opened")
            return parse(text, str(path), strict=False)
        except (FileError, RecordError) as error:
            raise FileError(f"{error}; judge it with --profile NAME") from error

    @cached_property
    def own_checks(self) -> Gates:
        """Return the checks of its site that were planned. Raises FileError, RecordError."""
        if not self.is_there(OWN_CHECKS):
            return {}
        from bringup.kernel.plan import own  # few runs have some

        return own.parse(self.text(OWN_CHECKS, Gate), str(self.path / OWN_CHECKS))

    @cached_property
    def raw(self) -> files.Below:
        """Return the names of what stands in raw/, from the folder of the run."""
        return files.below(self.path, RAW)

    def is_there(self, name: str) -> bool:
        """Say whether something of this name stands there, whatever it is."""
        return os.path.lexists(self.path / name)

    def within(self, error: RecordError) -> str:
        """Return what it says, with the names that files have within the folder."""
        return str(error).replace(f"{self.path}/", "")

    def record(self, name: str, kind: type[R]) -> R:
        """Read a record. Raises RecordError."""
        return parse_record(self.path / name, self.text(name, kind), kind)

    def text(self, name: str, kind: type) -> str:
        """Read a whole file, in UTF-8, which should be a `kind`. Raises RecordError."""
        try:
            return self.read(name).whole()
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{self.path / name}: cannot be read as {kind.__name__}: {error}") from error

    def read(self, name: str, most: int = files.MOST_BYTES) -> files.Content:
        """Read a file, or its beginning. Raises OSError."""
        parts, left = list[bytes](), most
        for block in self.blocks(name):
            if left > 0:
                parts.append(block[:left])
            left -= len(block)
        return files.Content(b"".join(parts), max(0, -left))

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file; what is written behind them after the first look is left to the next one who opens
        the folder. Raises OSError; at the end, too, if they are not those of the first look."""
        digest, size = hashlib.sha256(), 0
        _, most = self._seen.get(name, ("", sys.maxsize))
        with files.opened(self.path / name, self.path) as fd:
            while block := os.read(fd, min(files.BLOCK_BYTES, most - size)):
                digest.update(block)
                size += len(block)
                yield block
        seen = digest.hexdigest(), size
        if self._seen.setdefault(name, seen) != seen:
            self._seen[name] = CHANGED, size
            raise OSError(5, CHANGED, str(self.path / name))

    def checksums(self) -> dict[str, str]:
        """Return checksums of all evidence: the plan, the site and its checks, raw/, and training's records. Those of
        what was read are of the bytes that were read. The profile's checksum is in the plan; closed.json holds the
        checksums, and its signature comes after it. For a file that cannot be read: UNREADABLE and the reason.

        They show a change to who does not expect one. Who may write to the folder can make them anew: only a signature
        shows that (run/signature.py)."""
        known = {name: self._checksum(name) for name in (RUN, SITE, OWN_CHECKS, RUN_ARGS, METRICS, *self.raw.files)}
        return {name: checksum for name, checksum in known.items() if checksum is not None}

    def _checksum(self, name: str) -> str | None:
        """Return that of a file. None: not a regular file."""
        try:
            if name not in self._seen:
                for _ in self.blocks(name):
                    pass
            return self._seen[name][0]
        except (FileNotFoundError, files.NotAFile):
            return None
        except OSError as error:
            return f"{UNREADABLE}{error.strerror}"
