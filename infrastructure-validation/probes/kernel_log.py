"""What the kernel's log says about GPUs: NVRM Xid messages by number and GPU. Unreadable is unknown, never "no Xid".

/dev/kmsg holds the ring buffer: old records are overwritten, so the facts say how far back it reaches. Where it may not be read
(kernel.dmesg_restrict=1), the journal is asked; it counts only when it holds the first message of this boot.
"""

import errno
import os
import re
import subprocess
from collections import Counter

KMSG = "/dev/kmsg"
JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat")
XID = re.compile(r"NVRM: Xid \((?P<gpu>[^)]{1,60})\): (?P<number>\d{1,4})\b")
MAX_RECORD = 8192  # the kernel refuses a smaller buffer with EINVAL


def kernel_log(facts):
    try:
        lines, reach = read_log()
    except (OSError, subprocess.SubprocessError) as error:
        why = f"the kernel log cannot be read: {getattr(error, 'strerror', None) or error}"
        facts.unknown("discovery.kernel_log.records", "count", why)
        facts.unknown("discovery.kernel_log.xids", "count", why)
        return
    found = xids(lines)
    facts.saw("discovery.kernel_log.records", len(lines), "count", remark=reach)
    facts.saw("discovery.kernel_log.xids", sum(found.values()), "count", remark=reach)
    for (gpu, number), count in sorted(found.items()):
        facts.saw(f"discovery.kernel_log.xid_{number}", count, "count", f"{facts.at}/{gpu}")


def xids(lines):
    """{(GPU as the driver names it, Xid number): how often}."""
    return Counter((match["gpu"], int(match["number"])) for match in map(XID.search, lines) if match)


def read_log():
    """(lines, how far back they reach). Raises OSError or SubprocessError."""
    try:
        records = read_kmsg(KMSG)
    except OSError as error:
        try:
            return read_journal(), "the journal of this boot"
        except (OSError, subprocess.SubprocessError):
            raise error from None  # the first obstacle is the one to mend
    if not records:
        raise OSError(errno.ENODATA, f"{KMSG} is empty")
    # "6,339,5140900,-;message": the third number is microseconds since boot
    first = records[0].partition(";")[0].split(",")
    seconds = int(first[2]) / 1e6 if len(first) > 2 and re.fullmatch("[0-9]{1,18}", first[2]) else None
    return records, "reaches back to the boot" if seconds == 0 else f"reaches back to {seconds} s after the boot"


def read_kmsg(path):
    """All records there are now. The device gives one per read, and EAGAIN after the last."""
    records = []
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                part = os.read(fd, MAX_RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # records were overwritten while we read; the next read goes on with the oldest
            if not part:
                break
            records.append(part)
    finally:
        os.close(fd)
    # a line that begins with a blank belongs to the record before it
    return [
        line for line in b"".join(records).decode(errors="replace").splitlines() if line and not line.startswith(" ")
    ]


def read_journal():
    answer = subprocess.run(
        JOURNAL, capture_output=True, text=True, errors="replace", timeout=10, check=True
    ).stdout.splitlines()
    if not any(line.startswith("Linux version") for line in answer):
        raise OSError(errno.ENODATA, "the journal does not hold this boot's first message")
    return answer
