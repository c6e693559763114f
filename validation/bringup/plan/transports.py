"""The classes of transport between nodes, and the names under which NCCL and its network plugins print them.

A profile names classes. NCCL prints the name of a plugin, which changes with its version. A name without a class is
`unknown:NAME`: it proves neither a fabric nor a fault.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from bringup.plan.rules import UNRECOGNISED

GATES = ("nccl.transport", "train.transport")
"""Gates whose values are these classes."""

VERBS = "rdma-verbs"
NVLINK = "nvlink"  # one NVLink domain over several hosts (MNNVL): no network is used, although one is assigned
SOCKETS = "sockets"
INTERFACE = "tcp:"  # gloo, with the interface that carried the bytes


@dataclass(frozen=True)
class Transport:
    name: str
    says: str
    prints: str  # for people: what NCCL prints
    names: re.Pattern[str]  # the same for the reader of logs, full names
    also: tuple[str, ...] = ()  # other names that people use


TRANSPORTS = (
    Transport(
        VERBS,
        "InfiniBand or RoCE, by verbs",
        "`IB`; of HPC-X `IBext`, `IBext_v8` and later, `NCCL RDMA Plugin v…`, `UCX`, `UCX-RMA`, `SPCX` (Spectrum-X); "
        "`Libfabric` with the provider `verbs`; another plugin that lists verbs devices and does GPUDirect RDMA",
        re.compile(r"IB|IBext(_v\d+)?|NCCL RDMA Plugin( v\d+)?|UCX([-_]\w+)*|SPCX(_v\d+)?"),
        ("infiniband", "roce", "rdma", "verbs", "ibverbs", "spectrum-x"),
    ),
    Transport(
        "efa",
        "EFA of AWS",
        "`Libfabric`, `AWS Libfabric` or `OFI` with the provider `efa`",
        re.compile(r"EFA"),
        ("libfabric", "aws libfabric", "ofi", "aws"),
    ),
    Transport(
        "slingshot",
        "Slingshot of HPE",
        "`AWS Libfabric` or `Libfabric` with the provider `cxi`",
        re.compile(r"CXI"),
        ("cxi", "slingshot-11"),
    ),
    Transport(
        "gcp",
        "gIB (RDMA), FasTrak (TCPXO) and TCPX of Google Cloud, from and to GPU memory",
        "`gIB`, `FasTrak`, `GPUDirectTCPX…`",
        re.compile(r"gIB|FasTrak|GPUDirectTCPX\w*"),
        ("gib", "fastrak", "tcpx", "tcpxo"),
    ),
    Transport(
        NVLINK,
        "NVLink between hosts (MNNVL)",
        "anything, when every channel between the hosts is `P2P/MNNVL`",
        re.compile(r"P2P/MNNVL"),
        ("mnnvl", "nvl72"),
    ),
    Transport(
        SOCKETS,
        "TCP through the kernel",
        "`Socket`, `FastSocket`; `Libfabric` with the provider `tcp` or `sockets`",
        re.compile(r"Socket|FastSocket|tcp\w*", re.IGNORECASE),
        ("tcp", "ethernet", "socket"),
    ),
)
NAMES = tuple(transport.name for transport in TRANSPORTS)

LIBFABRIC = re.compile(r"(AWS )?Libfabric|OFI")
"""One plugin for several fabrics; its provider tells which fabric. If the right provider is not found, it uses `tcp`
under the same name, without an error."""

_OF_SOCKETS = ("tcp", "sockets", "net", "udp")
PROVIDERS = {"efa": "efa", "cxi": "slingshot", "verbs": VERBS} | dict.fromkeys(_OF_SOCKETS, SOCKETS)


def of_network(name: str, providers: set[str]) -> set[str]:
    """Return the classes of a network, from the name that NCCL prints; for libfabric, from its selected providers."""
    unknown = f"{UNRECOGNISED}{name}"
    if LIBFABRIC.fullmatch(name) is None:
        return {next((known.name for known in TRANSPORTS if known.names.fullmatch(name)), unknown)}
    if not providers:
        return {unknown}
    return {PROVIDERS.get(provider.partition(";")[0], f"{unknown}/{provider}") for provider in providers}


def is_fabric(value: str) -> bool:
    """Say whether all bytes used a known transport other than TCP through the kernel."""
    return all(part in NAMES and part != SOCKETS for part in value.split("+"))


def is_tcp(value: str) -> bool:
    """Say whether any bytes went over TCP through the kernel."""
    return any(part == SOCKETS or part.startswith(INTERFACE) for part in value.split("+"))


def is_recognised(value: str) -> bool:
    return UNRECOGNISED not in value


def why_not(text: str) -> str | None:
    """Say why a profile cannot name this text, with what to write instead. None: it can."""
    for part in text.split("+"):
        if part in NAMES or any(part.startswith(begin) and part != begin for begin in (INTERFACE, UNRECOGNISED)):
            continue
        for known in TRANSPORTS:
            if known.names.fullmatch(part) or part.lower() in known.also:
                return f"a profile names the class of a transport: for {part!r} write {known.name}"
        near = difflib.get_close_matches(part, NAMES, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)} and {INTERFACE}INTERFACE"
        return f"there is no transport {part!r}; {meant}; a plugin of no class is written {UNRECOGNISED}NAME"
    return None
