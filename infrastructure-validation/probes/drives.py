"""NVMe drives of this node: how many of each model, which of them the kernel cannot use, and arrays that lack a drive.

Of what a user may read. A drive's own account of its health (SMART) needs root. Drives behind a network are left out.
"""

from collections import Counter
from pathlib import Path

from facts import read

NVME = Path("/sys/class/nvme")
BLOCKS = Path("/sys/block")
USABLE = "live"  # drivers/nvme/host/core.c: new, resetting, connecting, deleting, dead
MOST_NAMED = 4


def drives(facts, nvme=NVME, blocks=BLOCKS):
    local = [path for path in sorted(nvme.glob("nvme[0-9]*")) if read(path / "transport") in ("pcie", None)]
    counts = Counter(model(path) for path in local)
    there = " + ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
    facts.saw("inventory.drives", [f"NVMe drives={there or 'none'}"], "text")
    facts.saw("inventory.devices.drives", settings(local), "text")
    wrong = list(filter(None, [*map(wrong_with, local), *map(lacking, sorted(blocks.glob("md*/md")))]))
    shown = wrong[:MOST_NAMED] + [f"and {len(wrong) - MOST_NAMED} more"] * (len(wrong) > MOST_NAMED)
    facts.saw("discovery.drives.broken", len(wrong), "count", remark="; ".join(shown) or there or "there is none")


def model(drive):
    return read(drive / "model") or "a model that it does not say"


def settings(local):
    """Firmware and PCIe link by model; several values of one node are sorted, each once."""
    values = {}
    for path in local:
        link = [read(path / "device" / f"current_link_{what}") for what in ("speed", "width")]
        values.setdefault(f"firmware of {model(path)}", set()).add(read(path / "firmware_rev") or "not said")
        values.setdefault(f"PCIe link of {model(path)}", set()).add(" x".join(map(str, link)) if all(link) else "none")
    return [f"{name}={'+'.join(sorted(several))}" for name, several in sorted(values.items())]


def wrong_with(drive):
    """Why the kernel cannot use it, or None. Its namespaces stand below it, also where several paths lead to one."""
    state = read(drive / "state")
    if state not in (USABLE, None):
        return f"{drive.name} ({model(drive)}) is {state}"
    spaces = [path for path in drive.glob("nvme[0-9]*n[0-9]*") if read(path / "size") not in ("0", None)]
    if not spaces:
        return f"{drive.name} ({model(drive)}) shows no storage"
    return f"{drive.name} ({model(drive)}) is read-only" if any(read(path / "ro") == "1" for path in spaces) else None


def lacking(array):
    """How many drives an array with parity or mirrors lacks, by Linux's md. A striped array has no such file."""
    missing = read(array / "degraded")
    return (
        None
        if missing in ("0", None)
        else f"{array.parent.name} lacks {missing} of {read(array / 'raid_disks')} drives"
    )
