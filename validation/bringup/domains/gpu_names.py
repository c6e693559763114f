"""The names by which a person finds a GPU: index, PCI address and serial number in place of a UUID.

`observed` keeps the UUID, which drills and programs compare.
"""

import re
from collections.abc import Callable, Mapping

from bringup.kernel.facts.parser_result import Seen
from bringup.kernel.records import Outcome, Verdict, Verdicts

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.[0-9a-f]")
# a UUID as NVML gives it, and an address as the driver's log does: `Xid 79 on PCI:0000:c1:00`
_NAME = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])|\bPCI:[0-9a-f]{4}(?::[0-9a-f]{2}){2}\b")

Names = Mapping[str, str]  # NODE/UUID, UUID, or NODE/PCI:ADDRESS -> words


def names_of(seen: Seen, gpus_per_node: int) -> dict[str, str]:
    """Name GPUs by the facts of discovery. The index is the place by PCI address, as NVML counts, and is left out where
    not all GPUs of the node are known."""
    uuids_of: dict[str, dict[str, str]] = {}  # node -> UUID -> address
    for quantity in ("discovery.gpu.pci", "inventory.gpu.address"):  # the second is also of a GPU that is lost
        for fact in seen.of(quantity):
            node, _, uuid = fact.subject.partition("/")
            address = _ADDRESS.fullmatch(str(fact.value).lower())
            if uuid and address is not None:
                domain = int(address[1] or "0", 16)
                uuids_of.setdefault(node, {})[uuid] = f"{domain:04x}:{address[2]}:{address[3]}"
    serials = {fact.subject: str(fact.value) for fact in seen.of("inventory.gpu.serial") if fact.value is not None}
    names: dict[str, str] = {}
    for node, uuids in uuids_of.items():
        for index, uuid in enumerate(sorted(uuids, key=lambda uuid: uuids[uuid])):
            number = f"GPU {index}" if len(uuids) >= gpus_per_node else "GPU"
            serial = serials.get(f"{node}/{uuid}")
            words = f"{number} (PCI {uuids[uuid]}{f', serial {serial}' if serial else ''})"
            names[uuid] = names[f"{node}/{uuid}"] = names[f"{node}/PCI:{uuids[uuid]}"] = words
    return names


def changed(verdicts: Verdicts, change: Callable[[Verdict], Mapping[str, object] | None]) -> Verdicts:
    """Return them with what `change` says of each: its new fields, or nothing."""
    judged = [v.model_copy(update=fields) if (fields := change(v)) else v for v in verdicts.verdicts]
    return verdicts.model_copy(update={"verdicts": judged})


def named(verdicts: Verdicts, names: Names) -> Verdicts:
    """Return the same verdicts. A cause with a GPU that has a name says that name; all others stay as they are."""

    def change(v: Verdict) -> Mapping[str, object] | None:
        if v.outcome is Outcome.PASS or not v.cause or _NAME.search(v.cause) is None:
            return None
        node = v.node
        words = _NAME.sub(lambda gpu: names.get(f"{node}/{gpu[0]}") or names.get(gpu[0]) or gpu[0], v.cause)
        return {"cause": words}

    return changed(verdicts, change) if names else verdicts
