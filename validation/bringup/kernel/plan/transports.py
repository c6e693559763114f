"""The classes of transport between nodes, and the names under which NCCL and its network plugins print them:
validation/known/transports.yaml.

A profile names classes. NCCL prints the name of a plugin, which changes with its version. A name without a class is
`unknown:NAME`: it proves neither a fabric nor a fault.
"""

import difflib
import re

from bringup.kernel.plan.rules import UNRECOGNISED
from bringup.kernel.records import Record, known

GATES = ("nccl.transport", "train.transport")
"""Gates whose values are these classes."""

VERBS = "rdma-verbs"
NVLINK = "nvlink"  # one NVLink domain over several hosts (MNNVL): no network is used, although one is assigned
SOCKETS = "sockets"
INTERFACE = "tcp:"  # gloo, with the interface that carried the bytes


class Transport(Record):
    name: str
    says: str
    prints: str  # for people: what NCCL prints
    names: str  # the same for the reader of logs: a pattern of full names
    also: tuple[str, ...] = ()  # other names that people use
    providers: tuple[str, ...] = ()  # of libfabric


TRANSPORTS = known("transports", tuple[Transport, ...])
NAMES = tuple(transport.name for transport in TRANSPORTS)

LIBFABRIC = re.compile(r"(AWS )?Libfabric|OFI")
"""One plugin for several fabrics; its provider tells which fabric. If the right provider is not found, it uses `tcp`
under the same name, without an error."""

PROVIDERS = {provider: transport.name for transport in TRANSPORTS for provider in transport.providers}


def of_network(name: str, providers: set[str]) -> set[str]:
    """Return the classes of a network, from the name that NCCL prints; for libfabric, from its selected providers."""
    unknown = f"{UNRECOGNISED}{name}"
    if LIBFABRIC.fullmatch(name) is None:
        return {next((each.name for each in TRANSPORTS if re.fullmatch(each.names, name)), unknown)}
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
        for each in TRANSPORTS:
            if re.fullmatch(each.names, part) or part.lower() in each.also:
                return f"a profile names the class of a transport: for {part!r} write {each.name}"
        near = difflib.get_close_matches(part, NAMES, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)} and {INTERFACE}INTERFACE"
        return f"there is no transport {part!r}; {meant}; a plugin of no class is written {UNRECOGNISED}NAME"
    return None
