"""NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT,NET,GRAPH; one file per process): what NCCL really uses."""

import re
from collections.abc import Iterable, Mapping

from bringup.kernel.facts.parser_result import Parsed, lines
from bringup.kernel.plan.subjects import scale_name
from bringup.kernel.plan.transports import NVLINK, SOCKETS, VERBS, is_recognised, of_network

# Each communicator prints the network that it uses (subsystem INIT), since 2.18 or earlier. Since 2.28 it also prints
# its plugin (INIT or NET). A plugin that was only initialized may belong to another communicator.
_NETWORK = re.compile(r"Using network (\S.*?)\s*$|Assigned NET plugin (\S.*?) to comm\s*$", re.MULTILINE)
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,]+)")
_VIA = re.compile(r"NET/(.+?)/\d+")
# [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
# 2.20 to 2.22 of merged ones: [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}
_NICS = re.compile(r"NET/\w+ : Using (\[\d+\].*/(?:IB|RoCE)\b.*)")
_HOST = r"([^\s:]+):\d+:\d+ \[\d+\] NCCL INFO "
_USING = re.compile(_HOST + r"NET/(?:IB|IBext\w*) : Using (.*)")
_CARRIES = re.compile(_HOST + r"Channel \S+ : \S+ -> \S+ .*via NET/IB\w*/(\d{1,4})\b")
_MERGED = "={"  # several NICs in one, up to 2.22; since then `Made virtual device`
_NIC = re.compile(r"\[\d+\] ?([^\s/=]+)/(?:IB|RoCE)")
# any plugin; NICs in one: a+b
_HCA = re.compile(r"NET/(\S.*?) : GPU Direct RDMA (?:Enabled|Disabled) for HCA \d+ '([^']+)'")
_OFI = re.compile(r"NET/OFI .*found ([0-9]{1,6}) nics", re.IGNORECASE)
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via (.+?)\s*$", re.MULTILINE)
_GDR = re.compile(r"/GDRDMA(\(PCI\))?(/|\s|$)")
# hosts in one NVLink domain are one "node"
_DOMAINS = re.compile(r"nRanks \d+ nNodes ([0-9]{1,9}) localRanks \d+ localRank \d+ MNNVL 1")
NVLS_CHANNELS = re.compile(r"\b([0-9]{1,6}) nvls channels")
_NVLS = re.compile(r"NVLS multicast support is (not )?available")


def parse(
    files: Mapping[str, str], folder: str, subject: str, debug: str | None = None, ranks: int | None = None
) -> Parsed:
    """Parse the log files of one step, one per rank. debug: NCCL_DEBUG as the ranks saw it; ranks: how many there were.
    What the log does not say is unknown, with the reason. If the log of one rank is missing, everything is unknown:
    that rank may be the one on sockets."""
    parsed = Parsed()
    text = "\n".join(files.values())
    telling = sum("NCCL INFO" in words for words in files.values())
    if telling == 0 or (ranks is not None and telling < ranks):
        why = f"NCCL wrote no log into {folder}" if not text.strip() else "the log holds no INFO line"
        if telling:
            why = f"{telling} of {ranks} ranks left a log in {folder}"
        if debug is not None and debug.upper() not in ("INFO", "TRACE"):
            why += f": NCCL_DEBUG={debug} was set by the user, INFO is needed"
        units = {"transport": "text", "gdr": "share", "p2p": "share", "nics": "count", "nvls": "flag"}
        for quantity, unit in units.items():
            parsed.saw(f"nccl.{quantity}", subject, None, unit, folder, why)
        return parsed
    _network(parsed, files, text, folder, subject, ranks)
    _direct(parsed, files, text, folder, subject)
    _inside(parsed, files, text, folder, subject)
    _nvls(parsed, text, folder, subject)
    return parsed


_OF_NETWORK = ("Using network", "Assigned NET plugin", "via NET/")


def _evidence(files: Mapping[str, str], folder: str, *phrases: str) -> str:
    """Return the place of the first line with the first of these words; if no line has it, the next word is tried."""
    for words in phrases:
        for name, text in files.items():
            for number, line in enumerate(lines(text), start=1):
                if words in line:
                    return f"{folder}/{name}:{number}"
    return folder


def _network(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str, ranks: int | None) -> None:
    ways = {name: [match[1] for match in CHANNEL.finditer(words)] for name, words in files.items()}
    by_rank = {name: _networks(words, ways[name]) for name, words in files.items()}
    silent = sorted(name for name, networks in by_rank.items() if not networks)
    networks = sorted({network for several in by_rank.values() for network in several})
    everywhere = set(_PROVIDER.findall(text))
    used: set[str] = set()
    for name, words in files.items():
        inside = _inside_one_domain(words, ways[name])
        providers = set(_PROVIDER.findall(words)) or everywhere
        of_rank = {kind for network in by_rank[name] for kind in _classes(network, providers, words, ways[name])}
        used |= {NVLINK} if inside else of_rank
    if networks and not silent:
        why = "+".join(networks)
        why += f" with the provider {'+'.join(sorted(everywhere))}" if everywhere else ""
        why += ", and every channel over NVLink (P2P/MNNVL)" if used == {NVLINK} else ""
        where = _evidence(files, folder, *_OF_NETWORK)
        parsed.saw("nccl.transport", subject, "+".join(sorted(used)), "text", where, why)
    else:
        why = f"{len(silent)} of {len(files)} ranks wrote no 'Using network' line, {silent[0]} for one"
        parsed.saw("nccl.transport", subject, None, "text", folder, why)
    nics = [number for words in files.values() for number in _nics(words)]
    carry = _carrying(text) if ranks is not None else {}
    if used == {NVLINK}:
        why = "no NIC is used: every channel is over NVLink (P2P/MNNVL)"
        parsed.saw("nccl.nics", subject, None, "count", folder, why)
    elif used == {SOCKETS}:
        parsed.saw("nccl.nics", subject, 0, "count", _evidence(files, folder, *_OF_NETWORK), "sockets only")
    elif carry:
        fewest = min(carry, key=lambda host: len(carry[host][0]))
        number, idle = len(carry[fewest][0]), carry[fewest][1]
        unused = f"{fewest}: no channel goes over {', '.join(idle)}" if idle else None
        parsed.saw("nccl.nics", subject, number, "count", _evidence(files, folder, "NET/"), unused)
    elif nics:  # health: the host with the fewest
        parsed.saw("nccl.nics", subject, min(nics), "count", _evidence(files, folder, "NET/"))
    else:
        parsed.saw("nccl.nics", subject, None, "count", folder, "the log names no NIC")


def _classes(network: str, providers: set[str], words: str, ways: Iterable[str]) -> set[str]:
    """Of a plugin without a class: it is RDMA by verbs when it lists verbs devices, and the bytes of every channel go
    to and from GPU memory. A plugin over TCP has no such channel."""
    classes = of_network(network, providers)
    if all(map(is_recognised, classes)):
        return classes
    channels = [way for way in ways if way.startswith(f"NET/{network}/")]
    direct = bool(channels) and all(_GDR.search(way) for way in channels)
    return {VERBS} if direct and _NICS.search(words) else classes


def _networks(words: str, ways: Iterable[str]) -> set[str]:
    """Networks of one rank, by name: those that its communicators print, and those of its channels between hosts."""
    used = {using or assigned for using, assigned in _NETWORK.findall(words)}
    return used | {via[1] for via in map(_VIA.match, ways) if via is not None}


def _inside_one_domain(words: str, ways: Iterable[str]) -> bool:
    """Whether all channels stay in one NVLink domain. NCCL then assigns a network and does not use it."""
    domains = [int(match[1]) for match in _DOMAINS.finditer(words)]
    inside = any(way.startswith("P2P/MNNVL") for way in ways) and not any(way.startswith("NET/") for way in ways)
    return inside and max(domains, default=1) == 1


def _nics(words: str) -> list[int]:
    """Count NICs on one rank's host, one number per line that counts them. The line that every plugin prints is used
    last: it counts merged NICs as one, and also names interfaces of sockets, which do not count as NICs here."""
    counts = [len(_rails(set(_NIC.findall(match[1])))) for match in _NICS.finditer(words)]
    counts += [int(match[1]) for match in _OFI.finditer(words)]
    plugins = [(name, nics) for name, nics in _HCA.findall(words) if of_network(name, set()) != {SOCKETS}]
    named = {nic for _, nics in plugins for nic in nics.split("+")}
    return counts or ([len(_rails(named))] if named else [])


def _rails(nics: set[str]) -> set[str]:
    """Leave out a bond beside single ports, the NIC of the storage: it must not stand in for a rail that is lost."""
    return {nic for nic in nics if "bond" not in nic} or nics


def _carrying(text: str) -> dict[str, tuple[set[str], list[str]]]:
    """Host -> NICs of NCCL's list that channels between hosts go over, and those that none does: it lists those for
    storage, too. Nothing where NCCL numbers them otherwise: merged NICs, or a plugin that is not verbs."""
    listed: dict[str, list[str]] = {}
    for host, line in _USING.findall(text):
        if _MERGED in line or "Made virtual device" in text:
            return {}
        listed[host] = list(dict.fromkeys(_NIC.findall(line)))
    numbers: dict[str, set[int]] = {}
    for host, number in _CARRIES.findall(text):
        numbers.setdefault(host, set()).add(int(number))
    if not numbers or any(max(used) >= len(listed.get(host, [])) for host, used in numbers.items()):
        return {}
    carry = {host: {listed[host][number] for number in used} for host, used in numbers.items()}
    return {host: (nics, [nic for nic in listed[host] if nic not in nics]) for host, nics in carry.items()}


def _direct(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    """Give the share of channels between hosts (`NET/…`) that go from and to GPU memory."""
    ways = [match[1] for match in CHANNEL.finditer(text)]
    share, where, why = None, folder, "the log shows no channel between hosts"
    if outside := [way for way in ways if way.startswith("NET/")]:
        direct = sum(_GDR.search(way) is not None for way in outside)
        share, where = round(direct / len(outside), 3), _evidence(files, folder, "via NET/")
        why = f"{direct} of {len(outside)} channels between hosts"
    elif any(way.startswith("P2P/MNNVL") for way in ways):
        why = "no channel between hosts leaves NVLink (P2P/MNNVL)"
    parsed.saw("nccl.gdr", subject, share, "share", where, why)


def _inside(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    """Give the share of channels inside hosts that go from GPU to GPU (`P2P/…`), not through memory of the host. On
    one node also those over a NIC are inside."""
    ways = [match[1] for match in CHANNEL.finditer(text)]
    inside = [way for way in ways if subject == scale_name(1) or not way.startswith("NET/")]
    share, where, why = None, folder, "the log shows no channel inside a host"
    if inside:
        others = sorted({"/".join(way.split("/")[:2]) for way in inside if not way.startswith("P2P/")})
        direct = sum(way.startswith("P2P/") for way in inside)
        share, why = round(direct / len(inside), 3), f"{direct} of {len(inside)} channels inside hosts"
        where = _evidence(files, folder, *(f"via {way}" for way in others), "via P2P/")
        why += f", others via {', '.join(others)}" if others else ""
    parsed.saw("nccl.p2p", subject, share, "share", where, why)


def _nvls(parsed: Parsed, text: str, folder: str, subject: str) -> None:
    """NVLS is used if every communicator counts NVLS channels. A line 'not available' means that it is not."""
    counts = [int(number) for number in NVLS_CHANNELS.findall(text)]
    refused = any(match[1] for match in _NVLS.finditer(text))
    used: bool | None = bool(counts) and min(counts) > 0 and not refused
    why = "NVLS multicast support is not available"
    if not counts and not refused:
        used, why = None, "the log says nothing about NVLS"
    elif not refused:
        why = f"{min(counts)} nvls channels"
    parsed.saw("nccl.nvls", subject, used, "flag", folder, why)
