"""`nvidia-smi topo -m`: how GPUs and NICs of one node are connected.

A table with a row and a column per GPU and NIC, then columns of affinity, whose number changes with the version. The
first line is underlined with terminal codes. A legend names the NICs; older drivers use the NIC's own name as the head
of its column (mlx5_0), without a legend. GPUs are numbered in the order of their PCI addresses.
"""

import re
from functools import lru_cache
from itertools import takewhile

from bringup.kernel.characters import without_colours
from bringup.kernel.facts.parser_result import Parsed, lines
from bringup.readers.known import NEAR_FIRST

_GPU, _NIC = re.compile(r"GPU\d+"), re.compile(r"NIC\d+")
_OTHER_COLUMNS = ("CPU", "NUMA")  # "CPU Affinity", "NUMA Affinity"; "GPU NUMA ID" stands behind them
_PATH = re.compile(r"X|NV\d+|" + "|".join(NEAR_FIRST))
_LEGEND = re.compile(r"\s*(NIC\d+): (\S+)\s*")


def parse(text: str, where: str, node: str) -> Parsed:
    """Read discovery.topology: the table in one line, to compare nodes. inventory.topology.paths: of each GPU to all
    NICs, from which domains/fabric.py takes the nearest one."""
    read = _read(text)
    places = [{"subject": f"{node}{seen.subject}", "evidence": f"{where}{seen.evidence}"} for seen in read.observations]
    seen = [seen.model_copy(update=place) for seen, place in zip(read.observations, places, strict=True)]
    return Parsed(seen, [f"{where}: {problem}" for problem in read.problems])


@lru_cache(maxsize=8)
def _read(text: str) -> Parsed:
    """Read a table, which most nodes of a cluster have in common: without node and file."""
    parsed = Parsed()
    rows = lines(without_colours(text))
    header = next((number for number, line in enumerate(rows) if line.split()[:1] == ["GPU0"]), None)
    if header is None:
        return parsed.note("holds no table of GPUs")
    # the columns of GPUs and NICs come before those of affinity
    names = list(takewhile(lambda head: head not in _OTHER_COLUMNS, rows[header].split()))
    paths: dict[str, dict[str, str]] = {}
    for line in rows[header + 1 :]:
        row, *cells = line.split() or [""]
        if row in names and len(cells) >= len(names) and all(_PATH.fullmatch(cell) for cell in cells[: len(names)]):
            paths[row] = dict(zip(names, cells, strict=False))
    legend = {match[1]: match[2] for line in rows if (match := _LEGEND.fullmatch(line))}
    gpus = [name for name in names if _GPU.fullmatch(name)]
    nics = [name for name in names if name not in gpus]
    legend |= {nic: nic for nic in nics if not _NIC.fullmatch(nic)}
    evidence = f":{header + 1}"
    lost = [name for name in names if name not in paths] or [nic for nic in nics if nic not in legend]
    lost += [head for line in rows for head in line.split()[:1] if _GPU.fullmatch(head) and head not in names]
    if lost:
        why = f"cut off: nothing about {', '.join(list(dict.fromkeys(lost))[:3])}"
        return _unreadable(parsed, evidence, why)
    between = sorted({paths[gpu][peer] for gpu in gpus for peer in gpus if gpu != peer})
    links = [(gpu, nic, paths[gpu][nic]) for gpu in gpus for nic in nics]
    unlikely = [f"{gpu} to {nic}: {path}" for gpu, nic, path in links if path not in NEAR_FIRST]
    if unlikely or not gpus:
        why = f"no path between a GPU and a NIC: {', '.join(unlikely[:3]) or 'no GPU'}"
        return _unreadable(parsed, evidence, why)
    beside = []
    for gpu in gpus if nics else ():
        nearest = min((paths[gpu][nic] for nic in nics), key=NEAR_FIRST.index)
        beside.append(f"{gpu} {' '.join(legend[nic] for nic in nics if paths[gpu][nic] == nearest)} {nearest}")
    table = f"{len(gpus)} GPUs, {'/'.join(between) or 'alone'} between them"
    parsed.saw("discovery.topology", "", f"{table}; nearest NICs: {', '.join(beside) or 'none'}", "text", evidence)
    for gpu in gpus if nics else ():
        to_all = [f"{legend[nic]}={paths[gpu][nic]}" for nic in nics]
        parsed.saw("inventory.topology.paths", f"/{gpu}", to_all, "text", evidence)
    if not nics:
        parsed.saw("discovery.topology.nic", "", None, "text", evidence, "nvidia-smi knows no NIC of this node")
    return parsed


def _unreadable(parsed: Parsed, evidence: str, why: str) -> Parsed:
    parsed.note(why)
    for quantity in ("discovery.topology", "discovery.topology.nic"):
        parsed.saw(quantity, "", None, "text", evidence, why)
    return parsed
