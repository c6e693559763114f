#!/usr/bin/env python3
"""Run a command in the namespaces of a process: enter.py PID COMMAND...

Like nsenter(1), and three things it does not do: without root the capabilities survive exec, so an ordinary user can
make faults in a cluster of their own; the working directory is kept; and the command does not outlive its caller.
"""

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 47, 2
CAPABILITY_VERSION_3 = 0x20080522
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, operation: str) -> None:
    if result != 0:
        sys.exit(f"cluster: {operation} failed: {os.strerror(ctypes.get_errno())}")


def join_namespaces(pid: str) -> None:
    # all are opened before the first is joined; user first, because it grants the rights for the others
    names = ("user", "cgroup", "ipc", "uts", "net", "pid", "mnt")
    current = {name: Path(f"/proc/self/ns/{name}").stat().st_ino for name in names}
    for name, fd in [(name, os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)) for name in names]:
        if os.fstat(fd).st_ino != current[name]:  # without root, those that are one's own already cannot be joined
            check(libc.setns(fd, 0), f"joining the {name} namespace of process {pid}")
        os.close(fd)


def keep_capabilities() -> None:
    """Without root they are lost at exec, unless they are ambient; and for that they must be inheritable."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    everything = (1 << (last + 1)) - 1
    low, high = everything & 0xFFFFFFFF, everything >> 32
    header, sets = struct.pack("Ii", CAPABILITY_VERSION_3, 0), struct.pack("6I", low, low, low, high, high, high)
    check(libc.capset(header, sets), "capset")
    for capability in range(last + 1):
        check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0), f"keeping capability {capability}")


def main(pid: str, *command: str) -> int:
    folder = Path(os.environ.get("PWD", "/"))
    join_namespaces(pid)
    if os.geteuid() != 0:
        keep_capabilities()
    child = os.fork()  # a process enters a PID namespace only by being born in it
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        os.chdir(folder if folder.is_dir() else "/")  # a node has a /tmp of its own
        try:
            os.execvp(command[0], command)  # noqa: S606 -- the caller's own command, as it is
        except OSError as error:
            print(f"cluster: {command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    for ours_too in (signal.SIGINT, signal.SIGQUIT):  # Ctrl-C is the command's affair
        signal.signal(ours_too, signal.SIG_IGN)
    status = os.waitpid(child, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
