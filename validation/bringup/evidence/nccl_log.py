"""NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT,NET,GRAPH; one file per process): what it really uses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bringup.evidence.parsed import Parsed, lines

# What NCCL's "Using network" line names, by what carries it. Spellings of NCCL itself, of HPC-X
# (nccl-rdma-sharp-plugins), of aws-ofi-nccl (AWS Libfabric up to 1.11) and of Google's plugins. A plugin that is not
# listed is a family of its own, by its name.
FAMILIES = {
    "rdma-verbs": re.compile(r"IB|IBext(_v\d+)?|NCCL RDMA Plugin( v\d+)?|UCX([-_]\w+)?"),
    "efa": re.compile(r"(AWS )?Libfabric|OFI"),
    "gcp": re.compile(r"gIB|FasTrak|GPUDirectTCPX\w*"),
    "sockets": re.compile(r"Socket|FastSocket|tcp\w*", re.IGNORECASE),
}
NVLINK = "nvlink"  # one NVLink domain over several hosts (MNNVL): no network is used, whichever was assigned
_NETWORK = re.compile(r"Using network (\S.*?)\s*$", re.MULTILINE)
_NICS = re.compile(r"NET/(?:IB|IBext\w*) : Using (.*)")  # [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
_NIC = re.compile(r"\[\d+\]([^\s/]+)/(?:IB|RoCE)")
_HCA = re.compile(
    r"NET/(\S.*?) : GPU Direct RDMA (?:Enabled|Disabled) for HCA \d+ '([^']+)'"
)  # any plugin; NICs in one: a+b
_OFI = re.compile(r"NET/OFI .*found ([0-9]{1,6}) nics", re.IGNORECASE)
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via (.+?)\s*$", re.MULTILINE)
_GDR = re.compile(r"/GDRDMA(\(PCI\))?(/|$)")
_DOMAINS = re.compile(
    r"nRanks \d+ nNodes ([0-9]{1,9}) localRanks \d+ localRank \d+ MNNVL 1"
)  # hosts in one NVLink domain are one "node"
_NVLS_CHANNELS = re.compile(r"\b([0-9]{1,6}) nvls channels")
_NVLS = re.compile(r"NVLS multicast support is (not )?available")
_COMPLETE = re.compile(r"comm \S+ rank ([0-9]{1,9}) nranks ([0-9]{1,9}) .*Init COMPLETE")
_NO_INFO = "the log holds no INFO line"


def parse(
    files: Mapping[str, str], folder: str, subject: str, debug: str | None = None, ranks: int | None = None
) -> Parsed:
    """The log files of one step, one per rank. debug: NCCL_DEBUG as the ranks saw it; ranks: how many there were. What
    the log does not say is unknown, with the reason; so is everything where the log of a rank is missing: it may be the
    one on sockets."""
    parsed = Parsed()
    text = "\n".join(files.values())
    telling = sum("NCCL INFO" in words for words in files.values())
    if telling == 0 or (ranks is not None and telling < ranks):
        why = f"NCCL wrote no log into {folder}" if not text.strip() else _NO_INFO
        if telling:
            why = f"{telling} of {ranks} ranks left a log in {folder}"
        if debug is not None and debug.upper() not in ("INFO", "TRACE"):
            why += f": NCCL_DEBUG={debug} was set by the user, INFO is needed"
        for quantity, unit in (
            ("transport", "text"),
            ("gdr", "share"),
            ("nics", "count"),
            ("nvls", "flag"),
            ("intranode", "text"),
        ):
            parsed.saw(f"nccl.{quantity}", subject, None, unit, folder, why)
        return parsed
    _network(parsed, files, text, folder, subject)
    _channels(parsed, files, text, folder, subject)
    _nvls(parsed, text, folder, subject)
    _complete(parsed, text, folder, subject)
    return parsed


def _evidence(files: Mapping[str, str], folder: str, wanted: str) -> str:
    """The first line that says it."""
    for name, text in files.items():
        for number, line in enumerate(lines(text), start=1):
            if wanted in line:
                return f"{folder}/{name}:{number}"
    return folder


def _network(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    silent = sorted(name for name, words in files.items() if not _NETWORK.search(words))
    networks = sorted(set(_NETWORK.findall(text)))
    used = {_carrier(words, name) for words in files.values() for name in _NETWORK.findall(words)}
    if networks and not silent:
        parsed.saw(
            "nccl.transport",
            subject,
            "+".join(sorted(used)),
            "text",
            _evidence(files, folder, "Using network"),
            "+".join(networks) + (", and every channel over NVLink (P2P/MNNVL)" if used == {NVLINK} else ""),
        )
    else:
        parsed.saw(
            "nccl.transport",
            subject,
            None,
            "text",
            folder,
            f"{len(silent)} of {len(files)} ranks wrote no 'Using network' line, {silent[0]} for one",
        )
    nics = [number for words in files.values() for number in _nics(words)]
    if used == {NVLINK}:
        parsed.saw(
            "nccl.nics", subject, None, "count", folder, "no NIC is used: every channel is over NVLink (P2P/MNNVL)"
        )
    elif used == {"sockets"}:
        parsed.saw("nccl.nics", subject, 0, "count", _evidence(files, folder, "Using network"), "sockets only")
    elif nics:  # health: the host with the fewest
        parsed.saw("nccl.nics", subject, min(nics), "count", _evidence(files, folder, "NET/"))
    else:
        parsed.saw("nccl.nics", subject, None, "count", folder, "the log names no NIC")


def family(network: str) -> str:
    """IBext_v10 -> rdma-verbs."""
    return next((name for name, spelling in FAMILIES.items() if spelling.fullmatch(network)), network)


def _carrier(words: str, network: str) -> str:
    """What carries the bytes of one rank. In one NVLink domain a network is assigned as well, and not used."""
    ways = [match[1] for match in _CHANNEL.finditer(words)]
    domains = [int(match[1]) for match in _DOMAINS.finditer(words)]
    inside = any(way.startswith("P2P/MNNVL") for way in ways) and not any(way.startswith("NET/") for way in ways)
    return NVLINK if inside and max(domains, default=1) == 1 else family(network)


def _nics(words: str) -> list[int]:
    """NICs of one rank's host, as often as its log counts them. The line that every plugin's NICs have is asked last:
    it shows groups of NICs where a plugin makes one of several, and names the interfaces of sockets too, which are no
    NICs here."""
    found = [len(set(_NIC.findall(match[1]))) for match in _NICS.finditer(words)]
    found += [int(match[1]) for match in _OFI.finditer(words)]
    named = {nic for match in _HCA.finditer(words) if family(match[1]) != "sockets" for nic in match[2].split("+")}
    return found or ([len(named)] if named else [])


def _channels(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    """Between hosts `NET/…`, inside one `P2P/…` or `SHM/…`."""
    ways = [match[1] for match in _CHANNEL.finditer(text)]
    outside = [way for way in ways if way.startswith("NET/")]
    inside = sorted({"/".join(way.split("/")[:2]) for way in ways if not way.startswith("NET/")})
    if outside:
        direct = sum(_GDR.search(way) is not None for way in outside)
        parsed.saw(
            "nccl.gdr",
            subject,
            round(direct / len(outside), 3),
            "share",
            _evidence(files, folder, "via NET/"),
            f"{direct} of {len(outside)} channels between hosts",
        )
    else:
        why = (
            "no channel between hosts leaves NVLink (P2P/MNNVL)"
            if "P2P/MNNVL" in inside
            else "the log shows no channel between hosts"
        )
        parsed.saw("nccl.gdr", subject, None, "share", folder, why)
    if inside:
        parsed.saw("nccl.intranode", subject, "+".join(inside), "text", _evidence(files, folder, f"via {inside[0]}"))
    else:
        parsed.saw("nccl.intranode", subject, None, "text", folder, "the log shows no channel inside a host")


def _nvls(parsed: Parsed, text: str, folder: str, subject: str) -> None:
    """Used when every communicator line counts NVLS channels; a line that says 'not available' settles it."""
    counts = [int(number) for number in _NVLS_CHANNELS.findall(text)]
    refused = any(match[1] for match in _NVLS.finditer(text))
    if counts or refused:
        parsed.saw(
            "nccl.nvls",
            subject,
            bool(counts) and min(counts) > 0 and not refused,
            "flag",
            folder,
            "NVLS multicast support is not available" if refused else f"{min(counts)} nvls channels",
        )
    else:
        parsed.saw("nccl.nvls", subject, None, "flag", folder, "the log says nothing about NVLS")


def _complete(parsed: Parsed, text: str, folder: str, subject: str) -> None:
    """Ranks that came to the end of init, of the largest communicator (each says how many it belongs to)."""
    members = [(int(match[2]), int(match[1])) for match in _COMPLETE.finditer(text)]
    if members:
        largest = max(nranks for nranks, _ in members)
        ended = {rank for nranks, rank in members if nranks == largest}
        parsed.saw("nccl.log.ranks", subject, len(ended), "count", folder, f"of {largest} in the communicator")
