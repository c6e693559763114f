#!/usr/bin/env python3
"""The verbs of a simulated node, on the node itself: `cluster gpu` and `cluster port` call this.

node.py begin MODEL GPUS     the state of a node that has just booted, and its trees
node.py gpu FAULT...         a fault of a GPU, or of what the driver says of the node; `repair` ends all of them
node.py port NAME FAULT...   a fault of an RDMA port
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import state as states
import trees
from state import State, StateError

ROOT = states.FILE.parent
HEALTHY = ROOT / "healthy.conf"  # the state at boot, which `repair` goes back to
BOOT_LOG = ROOT / "kmsg"
KMSG = Path("/dev/kmsg")

GPU_USE = (
    "cluster gpu NODE GPU xid NUMBER [WORDS] | ecc COUNT | nvlink LINK up|down | throttle [KIND|off] | lost"
    " | hang [SECONDS] | KEY=VALUE...; cluster gpu NODE KEY=VALUE... | repair"
)
PORT_USE = "cluster port NODE PORT up | down | flap [TIMES] | KEY=VALUE..."


def main(arguments: Sequence[str]) -> None:
    verb, *rest = arguments
    if verb == "begin":
        begin(rest[0], int(rest[1]))
    elif rest == ["repair"]:
        write(HEALTHY.read_text())
    else:
        text = states.FILE.read_text()
        state = State(text)
        write(states.changed(text, (gpu if verb == "gpu" else port)(state, rest)))


def begin(model: str, gpus: int) -> None:
    text = states.healthy(model, socket.gethostname(), gpus)
    HEALTHY.write_text(text)
    BOOT_LOG.write_text(KMSG.read_text())
    trees.make(ROOT)
    write(text)


def write(text: str) -> None:
    """The trees first: what cannot be shown leaves everything as it was."""
    state = State(text)
    try:
        log = trees.kernel_log(state, BOOT_LOG.read_text())
        trees.render(state, ROOT)
    except (ValueError, KeyError, StateError) as error:
        trees.render(State.read(), ROOT)
        raise StateError(f"a value that its key does not take: {error}") from error
    part = states.FILE.with_suffix(".part")
    part.write_text(text)
    part.replace(states.FILE)
    if not KMSG.exists():  # closed: cluster up --like
        return
    if not HEALTHY.exists() or log != BOOT_LOG.read_text() or KMSG.read_text() != log:
        KMSG.write_text(log)


def gpu(state: State, words: Sequence[str]) -> list[str]:
    if words and all("=" in word for word in words):
        return list(words)
    if len(words) < 2 or not words[0].isdigit():
        raise StateError(f"use: {GPU_USE}")
    index = int(words[0])
    if index not in state.driver_lists:
        raise StateError(f"no GPU {index}; the node has GPU 0 to {len(state.driver_lists) - 1}")
    fault, *rest = words[1:]
    if "=" in fault:
        return [f"gpu{index}.{word}" for word in words[1:]]
    if fault not in GPU_FAULTS:
        raise StateError(f"no fault {fault!r}; use: {GPU_USE}")
    return GPU_FAULTS[fault](state, index, rest)


def _xid(state: State, index: int, rest: Sequence[str]) -> list[str]:
    if not rest or not re.fullmatch(r"\d{1,4}", rest[0]) or any(sign in word for word in rest for sign in "|\n"):
        raise StateError("xid wants its number, and the driver's words where they matter")
    xid = f"{rest[0]}@{index}" + (f":{' '.join(rest[1:])}" if rest[1:] else "")
    return [f"xids={'|'.join(filter(None, (state.first('xids'), xid)))}"]


def _ecc(state: State, index: int, rest: Sequence[str]) -> list[str]:
    return [f"gpu{index}.ecc={_count('ecc', rest)}"]


def _nvlink(state: State, index: int, rest: Sequence[str]) -> list[str]:
    if len(rest) != 2 or not rest[0].isdigit() or rest[1] not in ("up", "down"):
        raise StateError("nvlink wants the number of a link, and up or down")
    return [f"gpu{index}.nvlink{rest[0]}={rest[1]}"]


def _throttle(state: State, index: int, rest: Sequence[str]) -> list[str]:
    kinds = ("hw_thermal", "hw_slowdown", "hw_power_brake", "sw_power_cap", "off")
    kind = rest[0] if rest else kinds[0]
    if kind not in kinds or rest[1:]:
        raise StateError(f"throttle takes one of {', '.join(kinds)}")
    return [f"gpu{index}.throttle={'idle' if kind == 'off' else kind}"]


def _lost(state: State, index: int, rest: Sequence[str]) -> list[str]:
    if rest:
        raise StateError("lost takes no argument")
    return [f"gpu{index}.lost=1"]


def _hang(state: State, index: int, rest: Sequence[str]) -> list[str]:
    return [f"gpu{index}.hang={_count('hang', rest or ['86400'])}"]


GPU_FAULTS: dict[str, Callable[[State, int, Sequence[str]], list[str]]] = {
    "xid": _xid,
    "ecc": _ecc,
    "nvlink": _nvlink,
    "throttle": _throttle,
    "lost": _lost,
    "hang": _hang,
}


def port(state: State, words: Sequence[str]) -> list[str]:
    if len(words) < 2:
        raise StateError(f"use: {PORT_USE}")
    name, fault, *rest = words
    if name not in state.ports:
        raise StateError(f"no RDMA device {name!r}; the node has {', '.join(state.ports)}")
    if fault == "flap":  # it is up again, and has counted it
        times = int(state.port(name, "counters.link_downed")) + _count("flap", rest or ["1"])
        return [f"port.{name}=up", f"port.{name}.counters.link_downed={times}"]
    if fault in trees.PORT_STATES and not rest:
        return [f"port.{name}={fault}"]
    if "=" in fault:
        return [f"port.{name}.{word}" for word in words[1:]]
    raise StateError(f"no fault {' '.join(words[1:])!r}; use: {PORT_USE}")


def _count(verb: str, rest: Sequence[str]) -> int:
    if len(rest) != 1 or not rest[0].isdigit():
        raise StateError(f"{verb} wants one number, got {' '.join(rest) or 'nothing'!r}")
    return int(rest[0])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except StateError as error:
        print(f"cluster: {error}", file=sys.stderr)
        sys.exit(2)
