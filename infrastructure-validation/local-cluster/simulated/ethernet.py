#!/usr/bin/env python3
"""A stand-in for `ethtool -S INTERFACE` and `mlnx_qos -i INTERFACE`, of the interfaces that trees.py makes.

Keys of the state file: port.ethtool.… and port.pfc of the interface's port.
"""

import sys
from pathlib import Path

from state import State
from trees import OVER_ETHERNET


def main(tool: str, interface: str) -> None:
    port = interface.removeprefix(OVER_ETHERNET)
    state = State.read()
    if port == interface or port not in state.ports or state.port(port, "layer") != "Ethernet":
        sys.exit(f"{tool}: no stats available for {interface}")
    if tool == "ethtool":
        names = [key.removeprefix("port.ethtool.") for key in state.values if key.startswith("port.ethtool.")]
        print("NIC statistics:", *(f"     {name}: {state.port(port, f'ethtool.{name}')}" for name in names), sep="\n")
    elif state.port(port, "pfc") == "hidden":
        sys.exit("Netlink error: Operation not supported")
    else:
        row = "0   0   0   1   0   0   0   0" if state.port(port, "pfc") == "on" else "0   0   0   0   0   0   0   0"
        print(f"PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {row}")


if __name__ == "__main__":
    main(Path(sys.argv[0]).name, sys.argv[-1])
