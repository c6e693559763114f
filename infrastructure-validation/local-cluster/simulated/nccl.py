"""What NCCL 2.28 would do on nodes of GPUs with NVSwitch and a NIC for each GPU, and what it writes into its log.

nccl_tests.py says which variables and which keys of the state it honours.
"""

import os
from pathlib import Path

CHANNELS = 16
NVLINK_GB_S, SWITCH_GB_S, NIC_GB_S = 358.0, 475.0, 47.5  # of a ring, of NVSwitches that reduce, of one NIC
IGNORED = {
    "nvls": "NCCL_NVLS_ENABLE",
    "ring": "NCCL_ALGO",
    "p2p": "NCCL_P2P_DISABLE",
    "shm": "NCCL_SHM_DISABLE",
    "level": "NCCL_P2P_LEVEL",
}
COMM = "0x55d0a1b2c3d0"


class Way:
    """Channels inside a node and between nodes, and the algorithm of all_reduce. inside is None: there is no way."""

    def __init__(self, known, nodes, gpus):
        settings = dict(os.environ)
        for key, variable in IGNORED.items():
            if known.get(f"nccl.{key}") == "ignored":
                settings.pop(variable, None)
        broken, self.level = known.get("nccl.nvlink") == "broken", settings.get("NCCL_P2P_LEVEL")
        self.network = "Socket" if settings.get("NCCL_IB_DISABLE") == "1" else known.get("nccl.net", "IB")
        self.between = f"NET/{self.network}/{{nic}}" + ("/GDRDMA" if self.network == "IB" else "")
        if settings.get("NCCL_P2P_DISABLE") != "1" and not broken:
            self.inside = "P2P/CUMEM"
        elif settings.get("NCCL_SHM_DISABLE") != "1":
            self.inside = "SHM/direct/direct"
        else:
            self.inside = None if settings.get("NCCL_NET_DISABLE_INTRA") == "1" else self.between
        enough = gpus > 2 or known.get("nccl.nvls") == "ignored"  # with two GPUs NCCL lets them do it themselves
        reduces = settings.get("NCCL_NVLS_ENABLE") != "0" and self.inside == "P2P/CUMEM" and enough
        self.nvls = CHANNELS if reduces else 0
        if settings.get("NCCL_ALGO", "").lower() == "ring":
            self.algorithm = "RING"
        elif self.nvls:
            self.algorithm = "NVLS" if nodes == 1 else "NVLS_TREE"
        else:
            self.algorithm = "TREE" if known.get("nccl.ring") == "ignored" else "RING"

    def speed(self, operation, nodes, gpus, known):
        """Bus bandwidth at large sizes, GB/s."""
        ranks, factor = nodes * gpus, float(known.get("nccl.speed", "1"))
        switched = operation == "AllReduce" and self.algorithm.startswith("NVLS")
        inside = SWITCH_GB_S if switched else {"P2P": NVLINK_GB_S, "SHM": 20.0}.get(self.inside[:3], NIC_GB_S)
        if inside == NIC_GB_S:
            factor *= float(known.get("nccl.speed.nic", "1"))
        if nodes == 1:
            return factor * inside
        if operation == "SendRecv":
            between = NIC_GB_S * (ranks - 1) / (ranks - gpus)
        else:
            between = NIC_GB_S * ((ranks - 1) / (nodes - 1) if switched else gpus)
        return factor * min(inside, between) * (0.02 if self.network == "Socket" else 1)


def write_log(way, operation, rank, hosts, gpus, sizes):
    """Write the log of one rank, where NCCL_DEBUG_FILE says. sizes: bytes of what it runs."""
    if os.environ.get("NCCL_DEBUG") != "INFO":
        return
    host, device, pid = hosts[rank // gpus], rank % gpus, os.getpid()
    entries = [*_begun(way, rank, hosts, gpus), *_channels(way, rank, len(hosts) * gpus, gpus)]
    if way.inside is not None:
        entries += _ended(way, operation, rank, len(hosts) * gpus, device, sizes)
    text = "".join(f"{host}:{pid}:{pid} [{device}] NCCL INFO {words}\n" for words in entries)
    file = os.environ.get("NCCL_DEBUG_FILE", "").replace("%h", host).replace("%p", str(pid))
    if file:
        Path(file).write_text(text)
    else:
        print(text, end="")


def _begun(way, rank, hosts, gpus):
    device, ranks = rank % gpus, len(hosts) * gpus
    yield "Bootstrap : Using eth0:10.0.0.1<0>"
    if way.level:
        yield f"NCCL_P2P_LEVEL set by environment to {way.level}"
    nics = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(gpus))
    out_of_band = "eth0:10.0.0.1<0>"
    yield (
        f"NET/IB : Using {nics} [RO]; OOB {out_of_band}"
        if way.network == "IB"
        else f"NET/Socket : Using [0]{out_of_band}"
    )
    yield f"Using network {way.network}"
    yield f"ncclCommInitRank comm {COMM} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} - Init START"
    if way.nvls:
        yield f"NVLS multicast support is available on dev {device} (NVLS_NCHANNELS {CHANNELS})"
    local = f"localRanks {gpus} localRank {device}"
    yield f"comm {COMM} rank {rank} nRanks {ranks} nNodes {len(hosts)} {local} MNNVL 0"


def _channels(way, rank, ranks, gpus):
    """To the next rank of the ring."""
    after, device = (rank + 1) % ranks, rank % gpus
    if way.inside is None:
        yield f"transport.cc:165 NCCL WARN No transport found for rank {rank}[{device}] -> rank {after}"
    elif ranks > 1:
        via = way.inside if after // gpus == rank // gpus else way.between
        sends = " [send]" if via.startswith("NET") else ""
        for channel in range(CHANNELS):
            peers = f"{rank}[{device}] -> {after}[{after % gpus}]"
            yield f"Channel {channel:02}/0 : {peers}{sends} via {via.format(nic=device)}"


def _ended(way, operation, rank, ranks, device, sizes):
    counts = f"{CHANNELS} coll channels, {CHANNELS} collnet channels, {way.nvls} nvls channels, {CHANNELS} p2p channels"
    yield f"{counts}, 2 p2p channels per peer"
    yield f"ncclCommInitRank comm {COMM} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} - Init COMPLETE"
    if rank == 0 and "TUNING" in os.environ.get("NCCL_DEBUG_SUBSYS", "") and operation != "SendRecv":
        algorithm = way.algorithm if operation == "AllReduce" else "RING"
        for size in sizes:
            taken = f"{operation}: {size} Bytes -> Algo {algorithm} proto SIMPLE"
            yield f"{taken} channel{{Lo..Hi}}={{0..{CHANNELS - 1}}}"
