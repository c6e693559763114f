"""How `nvidia-smi topo -m` calls the path between two devices of a node."""

NEAR_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From a single PCIe bridge between two devices to the link between sockets (from the table's own legend)."""
