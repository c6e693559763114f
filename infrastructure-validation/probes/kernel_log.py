"""What the kernel's log says about GPUs and NVSwitches, by kind and device. Unreadable is unknown, never "no message".

Read are Xids (GPU), SXids (NVSwitch), and four messages without a number: a GPU that fell off the bus, one that could
not be initialized, one that this driver does not support, and a driver that could not take GPUs over. A fact each:
xid_79, xid_145_nonfatal, sxid_24007, fallen_off_the_bus.

/dev/kmsg holds the ring buffer: old records are overwritten, so the facts say how far back it reaches. Where it may
not be read (kernel.dmesg_restrict=1), the journal is asked; it counts only when it holds the first message of this
boot.
"""

import errno
import os
import re
import subprocess
from collections import Counter

KMSG = "/dev/kmsg"
JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat")
XID = re.compile(r"NVRM: Xid \((?P<device>[^)]{1,60})\): (?P<number>\d{1,4})\b(?P<words>.*)")
SXID = re.compile(
    r"(?P<device>nvidia-nvswitch\d{1,4}): SXid \([^)]{1,60}\): (?P<number>\d{1,6}), (?P<word>Fatal|Non-?fatal)\b", re.I
)
NONFATAL = re.compile(r"\bNon-?fatal\b", re.I)
NVLINK_5 = range(144, 151)  # Xids that say in their own words whether they are fatal
PREVIOUS = re.compile(r"previous Xid:? (\d{1,4})\b", re.I)
RECOVERY, RECOVERY_ACTION = 154, re.compile(r"recovery action changed .*\bto 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)")
WITHOUT_A_NUMBER = (
    ("fallen_off_the_bus", re.compile(r"NVRM: (?!Xid ).*fallen off the bus")),
    ("init_failed", re.compile(r"NVRM: .*(RmInitAdapter|rm_init_adapter) failed")),
    ("unsupported", re.compile(r"NVRM: .*is not supported by the\b")),
    ("probe_failed", re.compile(r"NVRM: The NVIDIA probe routine failed for")),
)
SEVERAL_LINES = re.compile(r"NVRM: The NVIDIA (probed )?GPU ")
ADDRESS = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\b")
LINE_FEED = "\\x0a"  # as /dev/kmsg writes one inside a record
MAX_RECORD = 8192  # the kernel refuses a smaller buffer with EINVAL


def kernel_log(facts):
    try:
        lines, reach = read_log()
    except (OSError, subprocess.SubprocessError) as error:
        why = f"the kernel log cannot be read: {getattr(error, 'strerror', None) or error}"
        facts.unknown("discovery.kernel_log.records", "count", why)
        facts.unknown("discovery.kernel_log.xids", "count", why)
        return
    counts, recovery, xids = events(lines)
    facts.saw("discovery.kernel_log.records", len(lines), "count", remark=reach)
    facts.saw("discovery.kernel_log.xids", xids, "count", remark=reach)
    for (device, event), count in sorted(counts.items()):
        facts.saw(f"discovery.kernel_log.{event}", count, "count", f"{facts.at}/{device}" if device else None)
    for device, action in sorted(recovery.items()):
        facts.saw("discovery.kernel_log.recovery_action", action, "text", f"{facts.at}/{device}")


def events(lines):
    """({(device, event): how often}, {GPU: the last recovery action that it requested}, number of Xids)."""
    counts, causes, recovery, xids = Counter(), set(), {}, 0
    for message in messages(lines):
        xid, sxid = XID.search(message), SXID.search(message)
        if xid:
            xids += 1
            device, number, words = xid["device"], int(xid["number"]), xid["words"]
            action, cause = RECOVERY_ACTION.search(words), PREVIOUS.search(words)
            if number == RECOVERY and action:
                recovery[device] = action[1]
                continue
            nonfatal = number in NVLINK_5 and NONFATAL.search(words)
            counts[device, f"xid_{number}_nonfatal" if nonfatal else f"xid_{number}"] += 1
            if cause:  # its own line may have left the ring buffer
                causes.add((device, f"xid_{int(cause[1])}"))
        elif sxid:
            nonfatal = "_nonfatal" if NONFATAL.match(sxid["word"]) else ""
            counts[sxid["device"], f"sxid_{int(sxid['number'])}{nonfatal}"] += 1
        else:
            event = next((name for name, pattern in WITHOUT_A_NUMBER if pattern.search(message)), None)
            if event is not None:
                address = ADDRESS.search(message)
                counts[f"PCI:{address[0].lower()}" if address else "", event] += 1
    for device, event in causes:
        if not counts[device, event] and not counts[device, f"{event}_nonfatal"]:
            counts[device, event] = 1
    return +counts, recovery, xids


def messages(lines):
    """One text per message. Some of the driver's messages are several lines, and only the first names the GPU."""
    texts, unfinished = [], False
    for part in (part for line in lines for part in line.split(LINE_FEED)):
        _, sign, rest = part.partition("NVRM: ")
        if unfinished and sign and not XID.search(part) and not SEVERAL_LINES.search(part):
            texts[-1] += f" {rest}"
        else:
            texts.append(part)
        unfinished = bool(SEVERAL_LINES.search(texts[-1])) and not texts[-1].rstrip().endswith(".")
    return texts


def read_log():
    """(lines, how far back they reach). Raises OSError or SubprocessError."""
    try:
        records = read_kmsg(KMSG)
    except OSError as error:
        try:
            return read_journal(), "the journal of this boot"
        except (OSError, subprocess.SubprocessError):
            raise error from None  # the first obstacle is the one to fix
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
        JOURNAL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        errors="replace",
        timeout=10,
        check=True,
    ).stdout.splitlines()
    if not any(line.startswith("Linux version") for line in answer):
        raise OSError(errno.ENODATA, "the journal does not hold this boot's first message")
    return answer
