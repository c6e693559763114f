"""Where NCCL writes its log: a file for each process, and where one process measures several scales, for each of them.

NCCL reads NCCL_DEBUG_FILE once, with its first communicator. For the next scale its open file is replaced by another
one. That begins with what NCCL says once for a process: which plugins and NICs it found. What it says of the network of
a communicator stands behind that, and is not copied.
"""

import contextlib
import os
import re
from pathlib import Path

from facts import node_name

OF_A_COMMUNICATOR = re.compile(r"Using network|Assigned NET plugin|Init START")


class Log:
    """The log of this process. Where the user named a file, or NCCL writes none, nothing is replaced."""

    def __init__(self):
        self._chosen = "NCCL_DEBUG_FILE" not in os.environ
        self._folder = self._descriptor = self._name = None
        self._found = ""  # what NCCL said before its first communicator

    def begin(self, folder):
        """What NCCL says from now on is about the scale of this folder. Before torch is imported for the first time."""
        os.environ.setdefault("NCCL_DEBUG", "INFO")
        os.environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH")
        if not self._chosen:
            return
        if self._folder is None:
            self._folder = folder
            os.environ["NCCL_DEBUG_FILE"] = f"{folder}/nccl.%h.%p.log"
        elif self._is_open():
            self._write_to(Path(folder, self._name), self._found)

    def silence(self):
        """What NCCL says from now on is about no scale."""
        if self._chosen and self._is_open():
            self._write_to(Path(os.devnull), "")

    def _is_open(self):
        """Whether NCCL writes a log. Looks for its file among the open ones, once."""
        if self._descriptor is not None:
            return True
        for file in Path(self._folder).glob(f"nccl.*.{os.getpid()}.log"):
            for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
                with contextlib.suppress(OSError):  # the listing's own is closed
                    if os.path.samestat(os.fstat(number), file.stat()):
                        self._descriptor, self._name = number, file.name
                        self._found = before_communicators(file.read_text(errors="replace"))
                        return True
        return False

    def _write_to(self, file, text):
        other = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(other, text.encode())
        os.dup2(other, self._descriptor)
        os.close(other)


def before_communicators(text):
    """The lines before the first one about a communicator."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if OF_A_COMMUNICATOR.search(line)), len(lines))
    return "".join(lines[:first])


def of_this_node(logs):
    """A folder of its own: 32,768 files that are made at once in one folder of NFS wait for each other."""
    own = Path(logs, node_name())
    try:
        own.mkdir(exist_ok=True)
    except OSError:
        return logs  # NCCL says why it cannot write there
    return own


def writes_log(local, only):
    """Whether this rank asks NCCL for its log. Every rank's is judged, but those of pairs of nodes are not: there one
    for each node is kept for people, because 1,000 nodes with 8 GPUs would leave 160,000 files."""
    return local == 0 or not only
