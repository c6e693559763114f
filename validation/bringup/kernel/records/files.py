"""The only code that reads or writes files below a results folder, which somebody else may have made or may write to.

Reading: regular files alone, no link in any part below the folder that was named, no hard link to a file whose owner is
not that of the folder, never more than a limit. What else stands there (a link, a FIFO that would be waited for, a
device without an end) is an OSError in words.
Writing: under a name that nobody can guess, then moved to its place. What stands there is never opened.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.errors import RecordError

MOST_BYTES = 3 * 2**26
"""The most that is read of one file: 192 MiB. The facts of 4,096 nodes have 150 MiB; a longer log repeats itself."""
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


class NotAFile(OSError):
    """Something else stands in the place of a file. `strerror` says what."""


CHANGED = "other bytes at a second read"  # stands instead of a checksum
_checksums: ContextVar[dict[Path, str] | None] = ContextVar("checksums", default=None)


@contextmanager
def checksums_of_reads() -> Iterator[None]:
    """Keep the SHA-256 of each file that is read within: its owner may replace it after that. `checksum` gives them."""
    token = _checksums.set({})
    try:
        yield
    finally:
        _checksums.reset(token)


def checksum(path: Path, beneath: Path) -> str:
    """Return the SHA-256 of the bytes that were read of this file, or read it. Raises OSError."""
    known = _checksums.get()
    if known is not None and path in known:
        return known[path]
    with opened(path, beneath) as fd:
        return _rest(fd, hashlib.sha256())


def _rest(fd: int, digest: hashlib._Hash) -> str:
    while piece := os.read(fd, 2**20):
        digest.update(piece)
    return digest.hexdigest()


def read(path: Path, beneath: Path | None = None, most: int = MOST_BYTES) -> Content:
    """Read the file, or its beginning. beneath: a folder above it, which may be a link itself; no part below it may be
    one. Default: the folder that the file is in. Raises OSError."""
    with opened(path, beneath) as fd:
        size = os.fstat(fd).st_size
        parts, left = [], most
        while left > 0 and (part := os.read(fd, min(left, 2**20))):
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        if (known := _checksums.get()) is not None:
            digest = _rest(fd, hashlib.sha256(data))
            known[path] = digest if known.get(path, digest) == digest else CHANGED
        return Content(data, max(0, size - most))


def read_text(path: Path, beneath: Path | None = None) -> str:
    """Read the whole file, in UTF-8. Raises OSError, UnicodeDecodeError."""
    content = read(path, beneath)
    if content.left_out:
        raise OSError(27, f"it has more than {MOST_BYTES // 2**20} MiB", str(path))
    return content.data.decode("utf-8")


@contextmanager
def opened(path: Path, beneath: Path | None = None) -> Iterator[int]:
    """Yield a descriptor of the file, for reading. Raises OSError."""
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


def below(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Return (regular files in all folders below, sorted; what else stands there, or cannot be listed -> why). Do not
    follow links, nor the folder's own."""
    files: list[Path] = []
    others: dict[Path, str] = {}
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            fd = os.open(current, _FOLDER)
        except FileNotFoundError:
            continue
        except OSError as error:
            is_link = os.path.islink(current)  # noqa: PTH114  # false, too, where that cannot be seen
            others[current] = "a link; it was not read" if is_link else f"cannot be read: {error.strerror}"
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    path = current / entry.name
                    if entry.is_file(follow_symlinks=False):
                        files.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                    else:
                        kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "no file")
                        others[path] = f"{kind}; it was not read"
        finally:
            os.close(fd)
    return sorted(files), others


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
