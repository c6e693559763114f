"""Links between GPUs, NICs and nodes as the hardware describes them: NVLink, RDMA ports, topology."""
