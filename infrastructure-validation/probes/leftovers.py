"""What earlier jobs left on a node that this job has alone: processes, zombies, what is stuck in the kernel, /dev/shm.

Left alone are the system's users, who is logged in (a terminal, ssh, tmux under a terminal), services of the system and
of a user's own systemd, what cron started, CUDA MPS, containers, and everything inside a job's cgroup. A process counts
when it is older than this program. Where /proc hides other users' processes (hidepid), nothing is known.
"""

import os
import re
import time
from pathlib import Path
from stat import S_ISREG

PROC = Path("/proc")
SHM = "/dev/shm"  # noqa: S108  # what stays there is the question
FIRST_UID = 1000  # of people: login.defs(5), UID_MIN
NO_PERSON = (range(61184, 65520), range(65534, 65536), range(2**32 - 2, 2**32))  # systemd.io/UIDS-GIDS: made up, nobody
MPS = "nvidia-cuda-mps"  # as the kernel cuts the names of its programs
IN_JOB = re.compile(r"/(?:job_\d+|slurmstepd\.scope/s[0-9A-Z]{13})(?:/|$)", re.MULTILINE)  # or its SLUID: 26.05
OF_A_SERVICE = re.compile(
    r"/(?!slurmd)[^/]+\.service(?:/|$)|/user@\d+|docker|containerd|kubepods|libpod|crio|machine\.slice"
)
LOGIN = ("sshd", "sshd-session", "login", "cron", "crond", "atd")
KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
LOOKS, BETWEEN_S = 3, 1.0  # at processes that may be stuck
SHOWN = 4
GIB = 2**30
MOST_FILES = 20000
UNSEEN_BYTES = 64 * 2**20  # in folders that may not be read: too little to matter to the next job


class Process:
    """Raises OSError, ValueError and IndexError: it ended, or may not be seen."""

    def __init__(self, pid):
        folder = PROC / str(pid)
        stat = (folder / "stat").read_text(errors="replace")
        fields = stat.rpartition(")")[2].split()
        status = (folder / "status").read_text(errors="replace")
        self.pid, self.name = pid, stat.partition("(")[2].rpartition(")")[0]
        self.state, self.parent, self.terminal = fields[0], int(fields[1]), int(fields[4])
        self.is_kernel, self.started = bool(int(fields[6]) & KERNEL_THREAD), int(fields[19])
        self.uid = int(re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE).group(1))
        self.is_nested = len((re.search(r"^NSpid:(.*)", status, re.MULTILINE) or ["", "0"])[1].split()) > 1
        self.switches = tuple(re.findall(r"ctxt_switches:\s+(\d+)", status))
        self.cgroup = (folder / "cgroup").read_text(errors="replace") if self.state != "Z" else ""

    def __str__(self):
        return f"{self.name} ({self.pid}) of user {self.uid}"


def leftovers(facts):
    quantities = {"processes": "count", "zombies": "count", "blocked": "count", "shm": "GiB"}
    try:
        known = look()
        own = known[os.getpid()]
        Process(1)
    except (OSError, ValueError, IndexError, KeyError):
        for name, unit in quantities.items():
            facts.unknown(f"discovery.left.{name}", unit, "/proc shows no processes of other users (hidepid)")
        return
    logged_in = {each.uid for each in known.values() if each.terminal or comes_from(each, known, LOGIN)}
    before = {pid: each for pid, each in known.items() if each.started < own.started and not each.is_nested}
    _say(facts, "processes", [each for each in before.values() if is_left(each, own, logged_in)])
    suspects = {pid: each for pid, each in before.items() if each.state in "DZ" and not each.is_kernel}
    for _ in range(LOOKS - 1 if suspects else 0):
        time.sleep(BETWEEN_S)
        later = look(suspects)
        suspects = {pid: each for pid, each in suspects.items() if _as_before(each, later.get(pid))}
    _say(facts, "zombies", [each for each in suspects.values() if each.state == "Z"])
    _say(facts, "blocked", [each for each in suspects.values() if each.state == "D"])
    try:
        shared_memory(facts, {own.uid} | logged_in)
    except OSError as error:
        facts.unknown("discovery.left.shm", "GiB", f"{SHM}: {error.strerror}")


def look(pids=None):
    known = {}
    for pid in pids or [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]:
        try:
            known[pid] = Process(pid)
        except (OSError, ValueError, IndexError, AttributeError):
            continue
    return known


def comes_from(process, known, names):
    """Whether it or a process above it has one of these names."""
    seen = set()
    while process is not None and process.pid not in seen:
        if process.name in names and process.pid != 1:
            return True
        seen.add(process.pid)
        process = known.get(process.parent)
    return False


def is_left(process, own, logged_in):
    if not is_person(process.uid) or process.is_kernel or process.state == "Z" or process.name == MPS:
        return False
    if IN_JOB.search(process.cgroup) or OF_A_SERVICE.search(process.cgroup) or process.uid in logged_in:
        return False
    if process.uid != own.uid:
        return True
    return process.state != "D" and of_another_job(process.pid)  # to read the environment of a stuck one may hang


def is_person(uid):
    return uid >= FIRST_UID and not any(uid in numbers for numbers in NO_PERSON)


def of_another_job(pid):
    """Of the user's own processes those that another job began; the job has the node alone."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    job = re.search(rb"(?:^|\0)SLURM_JOB_ID=(\d+)", environment)
    return job is not None and job.group(1).decode() != os.environ.get("SLURM_JOB_ID")


def _as_before(process, later):
    """Still in the same state, and it never ran in between."""
    return later is not None and (later.started, later.state, later.switches) == (
        process.started,
        process.state,
        process.switches,
    )


def shared_memory(facts, alone):
    """Of people other than those that may have a use for it here."""
    sizes, counted, unread = {}, 0, []
    for count, status in enumerate(_files(SHM, unread.append)):
        if count > MOST_FILES:
            unread.append(f"more than {MOST_FILES} files")
            break
        counted += status.st_blocks * 512
        if is_person(status.st_uid) and status.st_uid not in alone:
            sizes[status.st_uid] = sizes.get(status.st_uid, 0) + status.st_blocks * 512
    space = os.statvfs(SHM)
    hidden = (space.f_blocks - space.f_bfree) * space.f_frsize - counted
    if unread and hidden > UNSEEN_BYTES:
        why = f"{SHM} was not read whole ({unread[0]}): whose {hidden / GIB:.2f} GiB of it are is not known"
        facts.unknown("discovery.left.shm", "GiB", why)
        return
    owners = [f"{size / GIB:.2f} GiB of user {uid}" for uid, size in sorted(sizes.items(), key=lambda item: -item[1])]
    facts.saw("discovery.left.shm", round(sum(sizes.values()) / GIB, 3), "GiB", remark=_shown(owners))


def _files(folder, cannot):
    for path, _, names in os.walk(folder, onerror=cannot):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))  # noqa: PTH118
            except OSError:
                continue
            if S_ISREG(status.st_mode):
                yield status


def _say(facts, name, processes):
    facts.saw(f"discovery.left.{name}", len(processes), "count", remark=_shown(list(map(str, processes))))


def _shown(words):
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more or "none"
