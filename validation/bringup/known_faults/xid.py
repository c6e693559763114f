"""What to do about the NVIDIA driver's messages in the kernel log: NVRM Xids, NVSwitch SXids, a lost GPU.

The classes of Xids are those of NVIDIA's Xid catalogue; the numbers are the driver's. An SXid says itself whether it
is fatal. The events are named as infrastructure-validation/probes/kernel_log.py names them: xid_79, sxid_24007,
sxid_12028_nonfatal."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOTHING = {  # to do for the node
    "nothing for the node: the program that caused it fails": (8, 13, 31, 32, 68, 69, 80, 94),
    "nothing": (43, 63, 92, 93, 121, 137, 141, 157, 160, 161),
    "nothing for the node: power smoothing changed. After 164 and 165 more of the power swings reach the site": (
        *(162, 163, 164, 165),  # GB200, GB300: the circuit that evens the power out is on, off, or worn
    ),
    "nothing: it follows an earlier one. A cause that it names is counted": (45,),
}
_NVLINK_5 = tuple(range(144, 151))  # each line says whether it is fatal
_RECOVERY = 154  # the action that a GPU asks for has changed
IN_WORDS = frozenset(f"xid_{number}" for number in (*_NVLINK_5, _RECOVERY))
"""What to do stands in the driver's message alone: the number does not say it."""
_ACTIONS = {
    "reset the GPU": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 167, 169, 172, 173),
    "row remapping: check remapped rows, then reset": (48, 171),
    "check power and cables": (54,),
    "reboot the node": (79,),
    "restart the virtual machine": (151,),
    "check NVLink": (74, *_NVLINK_5),
    "check NVLink: its encryption (confidential computing)": (166, 170),
    "check the link to the host processor (NVLink-C2C), reboot the node": (159,),
    "switch ECC on, or reboot the node": (168,),
}
_MEANS = {  # by NVIDIA's catalogue; of those that users meet
    46: "GPU stopped processing",
    48: "uncorrectable memory error",
    62: "its microcontroller halted",
    64: "rows were not remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "its GSP does not answer",
    120: "GSP error",
    140: "memory error that was not recovered",
}
_HARMLESS = frozenset(number for numbers in _NOTHING.values() for number in numbers)
_ACTION = {number: action for action, numbers in _ACTIONS.items() for number in numbers}
_SXID_ACTION = (
    "reset the GPUs of the node together, then restart the fabric manager; replace the switch if it comes again"
)
_WITHOUT_A_NUMBER = {
    "fallen_off_the_bus": ("GPU has fallen off the bus", "reboot the node"),
    "init_failed": ("GPU could not be initialized", "reboot the node; reseat or replace the GPU if it comes again"),
    "unsupported": (
        "GPU is not supported by this driver",
        "install a driver that knows it (the open modules for Blackwell)",
    ),
    "probe_failed": ("driver could not take a GPU over", "look at lspci and at the lines around it"),
}
_NUMBERED = re.compile(r"(?P<kind>xid|sxid)_(?P<number>\d{1,9})(?P<nonfatal>_nonfatal)?")


@dataclass(frozen=True)
class Event:
    """A message of the driver, as counted by the probe."""

    words: str
    action: str | None  # None: nothing to do for the node
    nonfatal: bool = False  # by its own message
    means: str = ""

    @property
    def what_and_action(self) -> str:
        return f"{self.means}; {self.action}" if self.means else self.action or ""


def event(name: str) -> Event | None:
    """Find the event of this name. None: it is not the name of an event."""
    if name in _WITHOUT_A_NUMBER:
        return Event(*_WITHOUT_A_NUMBER[name])
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None
    number, nonfatal = int(match["number"]), match["nonfatal"] is not None
    if match["kind"] == "sxid":
        return Event(f"SXid {number}", None if nonfatal else _SXID_ACTION, nonfatal)
    # a person has to look up an Xid without a class
    asks = None if nonfatal or number in _HARMLESS else _ACTION.get(number, "look it up in the Xid catalogue")
    return Event(f"Xid {number}", asks, nonfatal, _MEANS.get(number, ""))


def asked_for() -> dict[str, str | None]:
    """Name of an event -> what to do; None: nothing. For the health check, which has no catalogue on its node."""
    known: dict[str, str | None] = {f"xid_{number}": None for number in sorted(_HARMLESS)}
    known |= {f"xid_{number}": action for number, action in sorted(_ACTION.items())}
    return known | {"sxid": _SXID_ACTION} | {name: action for name, (_, action) in _WITHOUT_A_NUMBER.items()}


def classes() -> list[tuple[str, tuple[str, ...]]]:
    """Return (what it asks for, its events), for the documentation."""
    return [
        *((asks, tuple(map(str, numbers))) for asks, numbers in (_ACTIONS | _NOTHING).items()),
        ("the action in its text: None, GPU Reset, Node Reboot, Drain; the last one about a GPU counts", ("154",)),
        ("a warning: the line says Nonfatal", tuple(map(str, _NVLINK_5))),
        (_SXID_ACTION, ("SXid, Fatal",)),
        ("a warning", ("SXid, Non-fatal",)),
        *((asks, (f"no Xid: {words}",)) for words, asks in _WITHOUT_A_NUMBER.values()),
    ]
