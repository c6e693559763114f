"""The only code that reads or writes files below a results folder, which somebody else may have made or may write to.

Reading: regular files alone, no link in any part below the folder that was named, no hard link to a file whose owner is
not that of the folder, never more than a limit. What else stands there (a link, a FIFO that would be waited for, a
device without an end) is an OSError in words.
Writing: under a name that nobody can guess, then moved to its place. What stands there is never opened.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.errors import RecordError

MOST_BYTES = 3 * 2**26
"""The most that is read of one file: 192 MiB. The facts of 4,096 nodes have 150 MiB; a longer log repeats itself."""
BLOCK_BYTES = 2**20  # of one read
MOST_OF_A_LOG = 2**27
"""128 MiB: its lines may be short, and each of them costs."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Content(NamedTuple):
    data: bytes
    left_out: int  # bytes behind the limit, which were not read

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", errors="replace")

    def whole(self) -> str:
        """Return the text, where nothing is left out. Raises OSError, UnicodeDecodeError."""
        if self.left_out:
            raise OSError(27, f"it has more than {MOST_BYTES // 2**20} MiB")
        return self.data.decode("utf-8")


class Below(NamedTuple):
    """The names of what stands in a folder and in those below it, as seen from the folder above. Files are sorted."""

    files: list[str]
    folders: list[str]
    others: dict[str, str]  # what else stands there, or cannot be listed -> why


class NotAFile(OSError):
    """Something else stands in the place of a file. `strerror` says what."""


def read(path: Path, most: int = MOST_BYTES) -> Content:
    """Read the file, or its beginning. Raises OSError."""
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        parts, left = [], most
        while left > 0 and (part := os.read(fd, min(left, BLOCK_BYTES))):
            parts.append(part)
            left -= len(part)
        return Content(b"".join(parts), max(0, size - most))


def read_text(path: Path) -> str:
    """Read the whole file, in UTF-8. Raises OSError, UnicodeDecodeError."""
    return read(path).whole()


@contextmanager
def opened(path: Path, beneath: Path | None = None) -> Iterator[int]:
    """Yield a descriptor of the file, for reading. beneath: a folder above it, which may be a link itself, and no part
    below it; default: the folder that the file is in. Raises OSError."""
    beneath = path.parent if beneath is None else beneath
    with _folder(beneath, path.relative_to(beneath).parts[:-1]) as folder:
        _refuse_other_than_files(path.name, folder, path)
        fd = os.open(path.name, _FILE, dir_fd=folder)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotAFile(22, "it is not a regular file", str(path))
            if status.st_nlink > 1 and status.st_uid != os.fstat(folder).st_uid:
                raise NotAFile(22, "a hard link to a file of somebody else is in the place of a file", str(path))
            yield fd
        finally:
            os.close(fd)


@contextmanager
def _folder(beneath: Path, parts: tuple[str, ...]) -> Iterator[int]:
    fd = os.open(beneath, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _refuse_other_than_files(name: str, folder: int, path: Path) -> None:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if kind := _KINDS.get(stat.S_IFMT(mode)):
        raise NotAFile(22, f"{kind} is in the place of a file", str(path))


def is_file(path: Path) -> bool:
    """Say whether it is a regular file, and no link to one. Raises PermissionError where that cannot be seen."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def below(above: Path, name: str = "") -> Below:
    """List the folder `name` of the folder `above`. Do not follow links, nor the folder's own."""
    seen = Below([], [], {})
    waiting = [name]
    while waiting:
        current = waiting.pop()
        try:
            fd = os.open(above / current, _FOLDER)
        except FileNotFoundError:
            continue
        except OSError as error:
            is_link = os.path.islink(above / current)  # noqa: PTH114  # false, too, where that cannot be seen
            seen.others[current] = "a link; it was not read" if is_link else f"cannot be read: {error.strerror}"
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    inner = f"{current}/{entry.name}" if current else entry.name
                    if entry.is_file(follow_symlinks=False):
                        seen.files.append(inner)
                    elif entry.is_dir(follow_symlinks=False):
                        seen.folders.append(inner)
                        waiting.append(inner)
                    else:
                        kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "no file")
                        seen.others[inner] = f"{kind}; it was not read"
        finally:
            os.close(fd)
    seen.files.sort(key=lambda name: name.split("/"))
    return seen


def write(path: Path, content: bytes | Iterable[bytes], *, replace: bool = False, mode: int | None = None) -> None:
    """Write atomically: a reader sees the old file, the new file, or none. Without `replace` an existing file is a
    RecordError: evidence is never overwritten. What is not a regular file is never replaced. mode: None: as the umask
    says. Raises OSError."""
    part = f".{path.name}.{secrets.token_hex(8)}.part"
    try:
        with _folder(path.parent, ()) as folder:
            _write(path, [content] if isinstance(content, bytes) else content, part, folder, replace, mode)
    except FileExistsError as error:
        raise RecordError(f"{path}: already written; a record is never overwritten") from error
    except NotAFile as error:
        raise RecordError(f"{path}: {error.strerror}, and is not replaced; remove it first") from error
    except OSError as error:  # of a full disk Python does not say which file it was
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def _write(path: Path, content: Iterable[bytes], part: str, folder: int, replace: bool, mode: int | None) -> None:
    fd = os.open(part, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.writelines(content)
            if mode is not None:
                os.fchmod(fd, mode)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            with suppress(FileNotFoundError):
                _refuse_other_than_files(path.name, folder, path)
            os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)  # atomic on NFS too
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
