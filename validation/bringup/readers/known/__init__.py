"""Known faults: signatures of log lines, Xids, pending reasons, exit codes."""

NEAR_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths between two devices, from a single PCIe bridge to the link between sockets (the legend of nvidia-smi topo)."""
