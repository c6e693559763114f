"""NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT,NET,GRAPH; one file per process): what it really uses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bringup.evidence.parsed import Parsed

_NETWORK = re.compile(r"Using network (\S.*?)\s*$", re.MULTILINE)
_NICS = re.compile(r"NET/(?:IB|IBext\w*) : Using (.*)")  # [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
_NIC = re.compile(r"\[\d+\]([^\s/]+)/(?:IB|RoCE)")
_OFI = re.compile(r"NET/OFI .*found (\d+) nics", re.IGNORECASE)
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via (.+?)\s*$", re.MULTILINE)
_NVLS_CHANNELS = re.compile(r"(\d+) nvls channels")
_NVLS = re.compile(r"NVLS multicast support is (not )?available")
_COMPLETE = re.compile(r"comm \S+ rank (\d+) nranks (\d+) .*Init COMPLETE")
_NO_INFO = "the log holds no INFO line"


def parse(
    files: Mapping[str, str], folder: str, subject: str, debug: str | None = None, ranks: int | None = None
) -> Parsed:
    """The log files of one step, one per rank. debug: NCCL_DEBUG as the ranks saw it; ranks: how many there were. What the log does
    not say is unknown, with the reason; so is everything where the log of a rank is missing: it may be the one on sockets."""
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
        for number, line in enumerate(text.splitlines(), start=1):
            if wanted in line:
                return f"{folder}/{name}:{number}"
    return folder


def _network(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    silent = sorted(name for name, words in files.items() if not _NETWORK.search(words))
    networks = sorted(set(_NETWORK.findall(text)))
    if networks and not silent:
        parsed.saw("nccl.transport", subject, "+".join(networks), "text", _evidence(files, folder, "Using network"))
    else:
        parsed.saw(
            "nccl.transport",
            subject,
            None,
            "text",
            folder,
            f"{len(silent)} of {len(files)} ranks wrote no 'Using network' line, {silent[0]} for one",
        )
    nics = [len(set(_NIC.findall(match[1]))) for words in files.values() for match in _NICS.finditer(words)]
    nics += [int(match[1]) for words in files.values() for match in _OFI.finditer(words)]
    if nics:  # health: the host with the fewest
        parsed.saw("nccl.nics", subject, min(nics), "count", _evidence(files, folder, "NET/"))
    elif networks == ["Socket"]:
        parsed.saw("nccl.nics", subject, 0, "count", _evidence(files, folder, "Using network"), "sockets only")
    else:
        parsed.saw("nccl.nics", subject, None, "count", folder, "the log names no NIC")


def _channels(parsed: Parsed, files: Mapping[str, str], text: str, folder: str, subject: str) -> None:
    """Between hosts `NET/…`, inside one `P2P/…` or `SHM/…`."""
    ways = [match[1] for match in _CHANNEL.finditer(text)]
    outside = [way for way in ways if way.startswith("NET/")]
    inside = sorted({"/".join(way.split("/")[:2]) for way in ways if not way.startswith("NET/")})
    if outside:
        direct = sum(way.endswith("/GDRDMA") or "/GDRDMA/" in way for way in outside)
        parsed.saw(
            "nccl.gdr",
            subject,
            round(direct / len(outside), 3),
            "share",
            _evidence(files, folder, "via NET/"),
            f"{direct} of {len(outside)} channels between hosts",
        )
    else:
        parsed.saw("nccl.gdr", subject, None, "share", folder, "the log shows no channel between hosts")
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
