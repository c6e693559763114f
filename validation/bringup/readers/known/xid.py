"""What to do about the NVIDIA driver's messages in the kernel log: NVRM Xids, NVSwitch SXids, a lost GPU; and about
what the kernel says of the node. The tables: validation/known_faults/xid.yaml and kernel.yaml.

An SXid says itself whether it is fatal. The events are named as infrastructure-validation/probes/kernel_log.py names
them: xid_79, sxid_24007, sxid_12028_nonfatal."""

import re
from dataclasses import dataclass

from bringup import registry
from bringup.kernel.records import Record
from bringup.readers.known.tables import Sourced, entries

_NVLINK_5 = range(144, 151)  # each line says whether it is fatal
_RECOVERY = 154  # the action that a GPU asks for has changed
IN_WORDS = frozenset(f"xid_{number}" for number in (*_NVLINK_5, _RECOVERY))
"""What to do stands in the driver's message alone: the number does not say it."""
LOOK_IT_UP = "unknown: look it up in NVIDIA's Xid catalogue"
_NUMBERED = re.compile(r"(?P<kind>xid|sxid)_(?P<number>\d{1,9})(?P<nonfatal>_nonfatal)?")
_IN_A_LINE = re.compile(r"\b(?P<kind>S?Xid) \([^)]{1,60}\): (?P<number>\d{1,6})\b(?P<words>.*)")
_PREVIOUS = re.compile(r"\bcaused by previous Xid:? (\d{1,4})\b")
_SEVERITY = re.compile(r"\b(?:Non-?)?fatal\b", re.IGNORECASE)
_REQUESTED = re.compile(r"to 0x[0-9a-f]{1,8} \(([^)]{1,60})\)")
_PART = re.compile(r"\b([A-Z]{2,8}_[A-Z0-9_]{2,16}) Non-?fatal [^(]{1,60}\(0x[0-9a-f]{8} 0x([0-9a-f]{8})\b")
_LINK_DOWN = re.compile(r"NETIR_LINK_EVT\b.* Link (?P<link>\d+) \(0x(?P<reason>[0-9a-f]{8})\b")


class _Class(Record):
    asks: str
    xids: str  # numbers, and ranges of them
    for_the_node: bool = True

    def numbers(self) -> list[int]:
        ranges = [part.partition("-") for part in self.xids.split()]
        return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


class _Table(Sourced):
    classes: list[_Class]
    means: dict[int, str]
    link_down: dict[str, list[int]]  # where to look -> reasons
    resets: dict[str, int]  # part of NVLink 5 -> bits of its error status
    sxid: str  # a fatal one that sxids does not say
    sxids: list[_Class]
    without_a_number: dict[str, list[str]]


TABLE = _Table.model_validate(entries("xid"))
_ASKED = {number: each.asks if each.for_the_node else None for each in TABLE.classes for number in each.numbers()}
_SXIDS = {number: each for each in TABLE.sxids for number in each.numbers()}
_LOOK_AT = {reason: look_at for look_at, reasons in TABLE.link_down.items() for reason in reasons}


@dataclass(frozen=True)
class Event:
    """A message of the driver, as counted by the probe."""

    words: str
    action: str | None  # None: nothing to do for the node
    warns: bool = False  # by its own message, or because no table knows it: it accuses no one
    means: str = ""

    @property
    def is_fault(self) -> bool:
        return self.action is not None and not self.warns

    @property
    def what_and_action(self) -> str:
        return f"{self.means}; {self.action}" if self.means else self.action or ""


def event(name: str) -> Event | None:
    """Find the event of this name. None: it is not the name of an event."""
    if name in TABLE.without_a_number:
        words, asks, *_ = TABLE.without_a_number[name]
        return Event(words, asks)
    if (sign := registry.called(registry.SIGNATURES).get(f"kernel.{name}")) is not None:
        return Event(name, sign.do, warns=True, means=sign.cause)
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None
    number, nonfatal = int(match["number"]), match["nonfatal"] is not None
    if match["kind"] == "sxid":
        known = _SXIDS.get(number)
        if nonfatal:
            return Event(f"SXid {number}", known.asks if known else None, warns=True)
        return Event(f"SXid {number}", known.asks if known and known.for_the_node else TABLE.sxid)
    if nonfatal or number not in _ASKED:
        return Event(f"Xid {number}", None if nonfatal else LOOK_IT_UP, warns=True)
    return Event(f"Xid {number}", _ASKED[number], means=TABLE.means.get(number, ""))


def of_line(line: str) -> Event | None:
    """Find the event that a line of the driver is. None: it is none."""
    match = _IN_A_LINE.search(line)
    if match is None:
        names = (name for name, (_, _, *says) in TABLE.without_a_number.items() if any(words in line for words in says))
        return next((event(name) for name in names), None)
    kind, number, severity = match["kind"].lower(), int(match["number"]), _SEVERITY.findall(match["words"])
    if kind == "xid" and number == 45 and (cause := _PREVIOUS.search(match["words"])):
        return event(f"xid_{cause[1]}")
    if kind == "xid" and number == _RECOVERY:
        requested = _REQUESTED.search(match["words"])
        action = requested[1] if requested else _ASKED[_RECOVERY]
        return Event(f"Xid {_RECOVERY}", None, warns=True) if action == "None" else Event(f"Xid {_RECOVERY}", action)
    may_be_nonfatal = severity and (kind == "sxid" or number in _NVLINK_5)
    part = _PART.search(line)  # its error status counts for more than the word
    resets = part is not None and TABLE.resets.get(part[1], 0) & int(part[2], 16)
    is_nonfatal = may_be_nonfatal and severity[-1].lower().startswith("non") and not resets
    return event(f"{kind}_{number}_nonfatal" if is_nonfatal else f"{kind}_{number}")


def of_the_link(line: str) -> str | None:
    """Say which link of NVLink 5 went down, and where to look, by the driver's line. None: it does not say it."""
    match = _LINK_DOWN.search(line)
    look_at = _LOOK_AT.get(int(match["reason"], 16) >> 20 & 0x3F) if match else None
    return f"link {match['link']}: look at {look_at}" if match and look_at else None


def asked_for() -> dict[str, str | None]:
    """Name of an event -> what to do; None: nothing. For the health check, which has no catalogue on its node."""
    known = {f"xid_{number}": asks for number, asks in sorted(_ASKED.items())}
    known |= {f"sxid_{number}": each.asks for number, each in _SXIDS.items() if each.for_the_node}
    return known | {"sxid": TABLE.sxid} | {name: asks for name, (_, asks, *_) in TABLE.without_a_number.items()}
