"""What an NVRM Xid asks of the operator. Classes as in NVIDIA's Xid catalogue; the numbers are the driver's."""

from __future__ import annotations

_RESTART_APPLICATION = (8, 13, 31, 32, 68, 69, 80, 94)  # the program's fault: its job fails, the GPU is well
_IGNORE = (43, 63, 92, 93, 121, 137, 141, 157, 160, 161)
_FOLLOWER = (45,)  # the cleanup after an earlier one, which is counted itself
_ACTIONS = {
    "reset the GPU": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    "row remapping: check remapped rows, then reset": (48,),
    "check power and cables": (54,),
    "reboot the node": (79,),
    "restart the virtual machine": (151,),
    "check NVLink": (74, *range(144, 151)),
}
_HARMLESS = frozenset((*_RESTART_APPLICATION, *_IGNORE, *_FOLLOWER))
_ACTION = {number: action for action, numbers in _ACTIONS.items() for number in numbers}


def action(number: int) -> str | None:
    """What to do; None: nothing to do for the node. An Xid that is in no class needs a person who looks it up."""
    return None if number in _HARMLESS else _ACTION.get(number, "look it up in the Xid catalogue")


def classes() -> list[tuple[str, tuple[int, ...]]]:
    """(what it asks for, its Xids), for the documentation."""
    return [
        *_ACTIONS.items(),
        ("nothing for the node: the program that caused it fails", _RESTART_APPLICATION),
        ("nothing", _IGNORE),
        ("nothing: it follows an earlier one", _FOLLOWER),
    ]
