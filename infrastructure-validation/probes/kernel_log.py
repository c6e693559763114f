"""Read the kernel's log: its messages about GPUs, NVSwitches, network adapters and the node, by kind and device. A log
that cannot be read is unknown, never "no message".

Read are Xids (GPU), SXids (NVSwitch), and four messages without a number: a GPU that fell off the bus, one that could
not be initialized, one that this driver does not support, and a driver that could not take GPUs over. A fact each:
xid_79, xid_145_nonfatal, sxid_24007, fallen_off_the_bus. And what a table (LINES) knows of the rest of the node: nvme.

Users write into this log, too: the kernel names their programs and files in it, also at the beginning of a record. So a
message counts only where the driver's own words begin a record of the kernel, and go on as the driver writes them for
longer than the 15 letters of a program's name.

/dev/kmsg holds the ring buffer: old records are overwritten, so the facts say how far back it reaches. Where it may
not be read (kernel.dmesg_restrict=1), the journal is asked; it counts only when it holds the first message of this
boot.
"""

import collections
import errno
import json
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

from tools import ran

KMSG = "/dev/kmsg"
JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=json")
PCI_DEVICES = "/sys/bus/pci/devices"
ADAPTERS = "/sys/bus/pci/drivers/mlx5_core"
NVIDIA = "0x10de"
_PLACE = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
# "PCI:0000:c1:00"; of a part of a GPU "PCI:0000:c1:00 GPU-I:05"
XID = re.compile(
    rf"NVRM: Xid \((?P<device>(?:PCI:)?(?P<place>{_PLACE})[^)\\]{{0,30}})\): (?P<number>\d{{1,4}})\b(?P<words>.*)"
)
SXID = re.compile(
    rf"(?P<device>nvidia-nvswitch\d{{1,4}}): SXid \((?:PCI:)?(?P<place>{_PLACE})(?:\.\d)?\): (?P<number>\d{{1,6}}), "
    r"(?P<word>Fatal|Non-?fatal)\b",
    re.I,
)
NONFATAL = re.compile(r"\bNon-?fatal\b", re.I)
FATAL = re.compile(r"\b(?:Non-?)?fatal\b", re.I)  # the last one is the driver's: a process may be called so, too
NVLINK_5 = range(144, 151)  # Xids that say in their own words whether they are fatal
# except a link that software or the host took down (bits 20 to 25 are 0x26, 0x28): NVIDIA's catalogue asks for nothing
TAKEN_DOWN = re.compile(r".*\bNETIR_LINK_EVT\b.*\(0x[0-9a-f][26ae][68]")
PART = re.compile(r"\b([A-Z]{2,8}_[A-Z0-9_]{2,16}) Non-?fatal [^(]{1,60}\(0x[0-9a-f]{8} 0x([0-9a-f]{8})\b")
# longer than the name of a process, which stands before
PREVIOUS = re.compile(r"\bcaused by previous Xid:? (\d{1,4})\b")
RECOVERY = 154
RECOVERY_ACTION = re.compile(
    r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^)]{1,60}\) to 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)"
)
_GPU = r"NVRM: GPU (?:at )?(?:PCI:)?(?P<place>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?:? "
_SYSTEM = (
    rf"NVRM: The NVIDIA (?:probed )?GPU (?P<place>{_PLACE})(?:\.\d)? (?:\(PCI ID: [0-9a-fA-F:]{{9}}\) )?"
    r"installed in this (?:vGPU host )?system "
)
WITHOUT_A_NUMBER = (
    ("fallen_off_the_bus", re.compile(_GPU + "(?:GPU )?has fallen off the bus")),
    ("fallen_off_the_bus", re.compile(_SYSTEM + "has fallen off the bus")),
    ("init_failed", re.compile(_GPU + r"(?:RmInitAdapter|rm_init_adapter(?:\(\d{1,3}\))?) failed")),
    ("init_failed", re.compile(r"NVRM: (?:RmInitAdapter|rm_init_adapter(?:\(\d{1,3}\))?) failed")),
    ("unsupported", re.compile(_SYSTEM + r"is not supported by\b")),
    ("probe_failed", re.compile(r"NVRM: The NVIDIA probe routine failed for \d")),
)
SEVERAL_LINES = re.compile(rf"NVRM: The NVIDIA (?:probed )?GPU {_PLACE}")
# what the kernel writes of adapters, disks, filesystems, memory and CPUs; made of validation/known_faults
TABLES = json.loads(Path(__file__).with_name("kernel_lines.json").read_text(encoding="utf-8"))
LINES = [
    (name, each["of"], re.compile(each["pattern"]), each["over"] and re.compile(each["over"]))
    for name, each in TABLES["lines"].items()
]
OF_THE_NODE = ("node", "disk", "storage")
DRIVER = "NVRM: "
MOST_NAMED = 3
MOST_LINES = 12  # of one message of the driver
LINE_FEED = "\\x0a"  # as /dev/kmsg writes one inside a record
MAX_RECORD = 8192  # the kernel refuses a smaller buffer with EINVAL
RECORD = re.compile(r"(\d{1,9}),(\d{1,20}),(\d{1,18}),([^;]*);(.*)")  # "6,339,5140900,-;message"
REST = ("c", "+")  # flags of the rest of a line, cut off by another processor's: it begins anywhere, also with a name
# its records begin with a prefix of up to 127 letters, in a container a user's; none fits into the name of a process
FIREWALL = re.compile(
    r"IN=\S{0,15} OUT=\S{0,15} (?:[A-Z]{3,8}=\S{0,120} ){0,9}(?:SRC=\S{2,45} DST=|ARP HTYPE=|TRUNCATED|$)"
)
MOST_QUOTED = 300  # characters of a message
KERNEL = 0  # the facility. What user space writes to /dev/kmsg has another one; the kernel sees to that

# sequence: its number since the boot, None in the journal; microseconds: since the boot, None where it is not known;
# text: with LINE_FEED for a line feed; device: "+pci:0000:c1:00.0" or None
Record = collections.namedtuple("Record", ("facility", "sequence", "microseconds", "text", "device"))


def kernel_log(facts):
    try:
        records, reach = read_log()
    except (OSError, subprocess.SubprocessError) as error:
        why = f"the kernel log cannot be read: {getattr(error, 'strerror', None) or error}"
        facts.unknown("discovery.kernel_log.records", "count", why)
        facts.unknown("discovery.kernel_log.xids", "count", why)
        if Path(ADAPTERS).is_dir():
            facts.unknown("discovery.rdma.messages", "count", why)
        else:
            facts.saw("discovery.rdma.messages", 0, "count", remark="mlx5_core drives no adapter here")
        return
    counts, recovery, xids = events(records)
    facts.saw("discovery.kernel_log.records", len(records), "count", remark=reach)
    facts.saw("discovery.kernel_log.xids", xids, "count", remark=reach)
    broken = of_adapters(records)
    named = "; ".join(f"{count} × {words}" for words, count in broken.most_common(MOST_NAMED))
    facts.saw("discovery.rdma.messages", sum(broken.values()), "count", remark=named or reach)
    for (device, event), count in sorted(counts.items()):
        facts.saw(f"discovery.kernel_log.{event}", count, "count", f"{facts.at}/{device}" if device else None)
    for (device, event), (at, text) in sorted(last_of(records, booted_at()).items()):
        subject = f"{facts.at}/{device}" if device else None
        facts.saw("discovery.kernel_log.last_at", at, "text", subject, remark=event)
        facts.saw("inventory.kernel_log.line", text[:MOST_QUOTED], "text", subject, remark=event)
    for device, action in sorted(recovery.items()):
        facts.saw("discovery.kernel_log.recovery_action", action, "text", f"{facts.at}/{device}")
    of_the_node = collections.defaultdict(list)
    for name, of, shown, message in of_the_table(records):
        if of in OF_THE_NODE:
            of_the_node[name].append(("".join(shown[:1]), message))
    for name, several in sorted(of_the_node.items()):
        devices = {device for device, _ in several}
        subject = f"{facts.at}/{devices.pop()}" if len(devices) == 1 and devices != {""} else None
        facts.saw(f"discovery.kernel_log.{name}", len(several), "count", subject)
        facts.saw("inventory.kernel_log.line", several[-1][1][:MOST_QUOTED], "text", subject, remark=name)


def events(records, others=None):
    """({(device, event): how often}, {GPU: the last recovery action that it requested}, number of Xids). others: what
    _of_other_vendors says, for who asks many times."""
    counts, causes, recovery, xids = Counter(), set(), {}, 0
    others = _of_other_vendors() if others is None else others
    for message, device_of_record in messages(records):
        kind, match = _known(message)
        if match is None or not _is_of(match, device_of_record, others):
            continue
        if kind == "xid":
            xids += 1
            device, number, words = match["device"], int(match["number"]), match["words"]
            action, cause = RECOVERY_ACTION.search(words), PREVIOUS.search(words)
            if number == RECOVERY and action:
                recovery[device] = action[1]
                continue
            part = PART.search(words)  # what its error status asks for counts for more than the word
            resets = part and TABLES["resets"].get(part[1], 0) & int(part[2], 16)
            mild = not resets and NONFATAL.match((FATAL.findall(words) or [""])[-1])
            nonfatal = number in NVLINK_5 and (mild or TAKEN_DOWN.match(words))
            counts[device, f"xid_{number}_nonfatal" if nonfatal else f"xid_{number}"] += 1
            if cause:  # its own line may have left the ring buffer
                causes.add((device, f"xid_{int(cause[1])}"))
        elif kind == "sxid":
            nonfatal = "_nonfatal" if NONFATAL.match(match["word"]) else ""
            counts[match["device"], f"sxid_{int(match['number'])}{nonfatal}"] += 1
        else:
            place = _place(match)
            counts[f"PCI:{place}" if place else "", kind] += 1
    for device, event in causes:
        if not counts[device, event] and not counts[device, f"{event}_nonfatal"]:
            counts[device, event] = 1
    return +counts, recovery, xids


def of_adapters(records):
    """`0000:5c:00.0: Cable error, High Temperature` -> how often a driver of network adapters wrote it."""
    known = of_the_table(records)
    return Counter(f"{shown[0].lower()}: {', '.join(shown[1:])}" for _, of, shown, _ in known if of == "adapter")


def of_the_table(records):
    """[(name, of, what it shows, message)] of messages in LINES, without those after which all was well again."""
    known = []
    for message, device_of_record in messages(records):
        for name, of, pattern, over in LINES:
            match = pattern.match(message)
            if match:
                shown = [part for part in match.groups() if part]
                is_pci = (device_of_record or "").startswith("+pci:") and "".join(shown[:1]).count(":") == 2
                if not is_pci or device_of_record.lower() == f"+pci:{shown[0].lower()}":
                    known.append((name, of, shown, message))
                break
            ended = over and over.match(message)
            if ended:
                known = [each for each in known if (each[0], each[2][:1]) != (name, [ended.group(1)])]
    return known


def booted_at():
    """Unix s of the log's second 0. Both clocks stand still while a machine is suspended."""
    return time.time() - time.monotonic()


def last_of(records, boot):
    """{(device, event): (UTC of its newest record, its text)}, of messages of one line. boot: Unix s of the log's
    second 0; its clock may go wrong by seconds in a week."""
    newest, others = {}, _of_other_vendors()
    for record in records:
        if record.microseconds is not None and _known(record.text)[1] is not None:
            newest.update(dict.fromkeys(events([record], others)[0], record))
    return {
        key: (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(boot + last.microseconds / 1e6)), last.text)
        for key, last in newest.items()
    }


def _known(message):
    """(kind, its match) of a message of the driver; (None, None) of all others."""
    for kind, pattern in (("xid", XID), ("sxid", SXID), *WITHOUT_A_NUMBER):
        match = pattern.match(message)
        if match:
            return kind, match
    return None, None


def _is_of(match, device_of_record, others):
    """Whether the device that the message names can be the driver's: not another one than the record carries, and
    not one of another vendor. A GPU that left the bus may be absent from sysfs, and its message counts."""
    place = _place(match)
    if place is None:
        return device_of_record is None
    if device_of_record is not None and not device_of_record.lower().startswith(f"+pci:{place}"):
        return False
    return place not in others


def _place(match):
    """The PCI address in a message; the domain, which some drivers leave out, is 0000 then. None: it names none."""
    place = (match.groupdict().get("place") or "").lower()
    return f"0000:{place}" if place.count(":") == 1 else place or None


def _of_other_vendors():
    """PCI addresses without their function, where no function is NVIDIA's. Empty where this node lists no NVIDIA
    device: then it is not known what its addresses mean."""
    vendors = collections.defaultdict(set)
    for path in Path(PCI_DEVICES).glob("*/vendor"):
        try:
            vendors[path.parent.name.rpartition(".")[0].lower()].add(path.read_text().strip())
        except OSError:
            continue
    others = {place for place, at_place in vendors.items() if NVIDIA not in at_place}
    return others if len(others) < len(vendors) else set()


def messages(records):
    """[(text, device of its record)]: a message each of the kernel itself. Some of the driver's messages are several
    lines, in one record or in records that follow each other, and only the first names the GPU. All other records end
    at their first line feed: what comes after it may be the rest of a program's name."""
    texts, unfinished = [], 0
    for record in records:
        if record.facility != KERNEL or FIREWALL.search(f"{record.text} "):
            continue
        first, *rest = record.text.split(LINE_FEED)
        if unfinished and _goes_on(first):
            texts[-1] = (f"{texts[-1][0]} {first[len(DRIVER) :]}", texts[-1][1])
            unfinished -= 1
        else:
            texts.append((first, record.device))
            unfinished = MOST_LINES if SEVERAL_LINES.match(first) else 0
        for line in rest:
            if not unfinished or not _goes_on(line):
                break
            texts[-1] = (f"{texts[-1][0]} {line[len(DRIVER) :]}", texts[-1][1])
            unfinished -= 1
        if texts[-1][0].rstrip().endswith("."):
            unfinished = 0
    return [(" ".join(text.split()) if SEVERAL_LINES.match(text) else text, device) for text, device in texts]


def _goes_on(line):
    return line.startswith(DRIVER) and _known(line)[1] is None and not SEVERAL_LINES.match(line)


def read_log():
    """(records, how far back they reach). Raises OSError or SubprocessError."""
    try:
        records = read_kmsg(KMSG)
    except OSError as error:
        try:
            return read_journal(), "the journal of this boot"
        except (OSError, subprocess.SubprocessError):
            raise error from None  # the first obstacle is the one to fix
    if all(record.facility != KERNEL for record in records):
        raise OSError(errno.ENODATA, f"{KMSG} holds no record of the kernel" if records else f"{KMSG} is empty")
    first = records[0].microseconds
    seconds = None if first is None else first / 1e6
    return records, "reaches back to the boot" if seconds == 0 else f"reaches back to {seconds} s after the boot"


def read_kmsg(path):
    """All records there are now. The device gives one per read, and EAGAIN after the last."""
    parts = []
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
            parts.append(part)
    finally:
        os.close(fd)
    return of_kmsg(b"".join(parts).decode(errors="replace"))


def of_kmsg(text):
    """The records of a text as /dev/kmsg gives it. A line that begins with a blank belongs to the record before it."""
    records = []
    for line in text.split("\n"):
        match = RECORD.fullmatch(line)
        if match:
            priority, sequence, microseconds = (int(match[number]) for number in (1, 2, 3))
            facility = None if match[4].startswith(REST) else priority >> 3
            records.append(Record(facility, sequence, microseconds, match[5], None))
        elif line.startswith(" DEVICE=") and records:
            records[-1] = records[-1]._replace(device=line.partition("=")[2])
        elif line and not line.startswith(" "):
            records.append(Record(None, None, None, line, None))  # whose it is cannot be known
    return records


def read_journal():
    answer = ran(JOURNAL, 10, check=True).stdout.split("\n")
    records = [record for record in map(_of_journal, answer) if record is not None]
    if not any(record.text.startswith("Linux version") for record in records):
        raise OSError(errno.ENODATA, "the journal does not hold this boot's first message")
    return records


def _of_journal(line):
    """An entry as journalctl writes it with --output=json. None: it is none, or too large to be shown."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    text = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if isinstance(text, list):  # bytes, where they are not all printable
        text = bytes(text).decode(errors="replace")
    if not isinstance(text, str):
        return None
    is_of_the_kernel = entry.get("_TRANSPORT") == "kernel" and entry.get("SYSLOG_FACILITY", str(KERNEL)) == str(KERNEL)
    stamp = entry.get("_SOURCE_MONOTONIC_TIMESTAMP")
    return Record(
        KERNEL if is_of_the_kernel else None,
        None,
        int(stamp) if isinstance(stamp, str) and re.fullmatch("[0-9]{1,18}", stamp) else None,
        text.replace("\n", LINE_FEED),
        entry.get("_KERNEL_DEVICE"),
    )
