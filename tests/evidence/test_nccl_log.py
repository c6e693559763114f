"""NCCL's own log: which network, how many NICs, GPUDirect, NVLS, and the ways inside a host."""

import re

from bringup.kernel.records import Observation
from bringup.readers import nccl_log
from loops import case_for_each, for_each
from runs_for_tests import FIXTURES

LOGS = FIXTURES / "nccl"


def parsed(files: dict[str, str], debug: str | None = "INFO", ranks: int | None = None) -> dict[str, Observation]:
    return {fact.quantity: fact for fact in nccl_log.parse(files, "raw/nccl-2", "2-nodes", debug, ranks).observations}


def read(*names: str) -> dict[str, object]:
    files = {f"nccl.{number}.log": (LOGS / name).read_text() for number, name in enumerate(names)}
    return {quantity: fact.value for quantity, fact in parsed(files).items()}


@case_for_each(
    ("log-ib-gdr.log", "rdma-verbs", 8, 1.0, True),
    ("log-ib.log", "rdma-verbs", 8, 0.0, True),
    ("log-socket.log", "sockets", 0, 0.0, False),
    ("log-efa.log", "efa", 32, 1.0, True),
)
def test_what_carries_the_bytes_between_hosts_is_read(log, transport, nics, gdr, nvls):
    seen = read(log)
    del seen["nccl.p2p"]
    assert seen == {"nccl.transport": transport, "nccl.nics": nics, "nccl.gdr": gdr, "nccl.nvls": nvls}


def log_of(host: str, nics: int, used: tuple[int, ...], line: str = "[{n}]mlx5_{n}:1/IB") -> str:
    """What the ranks of a host write that lists so many NICs and sends over these."""
    entries = [f"NET/IB : Using {' '.join(line.format(n=n) for n in range(nics))} [RO]; OOB eth0:10.0.0.1<0>"]
    entries += ["Using network IB", *(f"Channel {n:02}/0 : 0[0] -> 8[0] [send] via NET/IB/{n}(3)/GDRDMA" for n in used)]
    return "".join(f"{host}:77:81 [0] NCCL INFO {words}\n" for words in entries)


def test_a_nic_that_is_listed_and_carries_nothing_is_not_used():
    """A storage NIC of the same rate in NCCL's list stood in for a dead NIC of the fabric."""
    files = {"nccl.n0.1.log": log_of("n0", 9, tuple(range(8))), "nccl.n1.1.log": log_of("n1", 8, (0, 1, 2, 4, 5, 6, 7))}
    nics = parsed(files, ranks=2)["nccl.nics"]
    assert (nics.value, nics.why) == (7, "n1: no channel goes over mlx5_3:1")
    assert parsed({**files, "nccl.n1.1.log": log_of("n1", 9, tuple(range(8)))}, ranks=2)["nccl.nics"].value == 8


def test_merged_nics_are_counted_as_nccl_lists_them():
    files = {"nccl.n0.1.log": log_of("n0", 4, (0,), "[{n}]={{[0] mlx5_{n}:1/IB, [1] mlx5_9{n}:1/IB}}")}
    assert parsed(files, ranks=1)["nccl.nics"].value == 8


def test_inside_one_host_there_are_no_channels_to_judge_between_hosts():
    seen = read("log-one-node.log")
    assert seen["nccl.gdr"] is None
    assert seen["nccl.nvls"] is False


@case_for_each(
    ("2-nodes", ["P2P/CUMEM", "P2P/CUMEM/read", "NET/IB/0/GDRDMA"], 1.0, "2 of 2 channels inside hosts"),
    ("2-nodes", ["P2P/IPC", "SHM/direct/direct"], 0.5, "1 of 2 channels inside hosts, others via SHM/direct"),
    ("1-node", ["P2P/IPC", "NET/IB/0/GDRDMA"], 0.5, "others via NET/IB"),
    ("2-nodes", ["NET/IB/0/GDRDMA"], None, "the log shows no channel inside a host"),
)
def test_channels_inside_a_host_that_do_not_go_from_gpu_to_gpu_are_named(scale, ways, share, why):
    entries = [f"n0:7:7 [0] NCCL INFO Channel 0{n}/0 : 0[0] -> 1[1] via {way}" for n, way in enumerate(ways)]
    seen = nccl_log.parse({"a.log": "\n".join(entries)}, "raw/nccl", scale).observations
    (p2p,) = (each for each in seen if each.quantity == "nccl.p2p")
    assert (p2p.value, why in str(p2p.why)) == (share, True), p2p
    assert share in (None, 1.0) or ("via P2P" not in entries[int(p2p.evidence.rpartition(":")[2]) - 1])


def test_one_rank_on_sockets_among_ranks_on_infiniband_is_seen():
    seen = read("log-ib-gdr.log", "log-socket.log")
    assert seen["nccl.transport"] == "rdma-verbs+sockets"
    assert seen["nccl.gdr"] == 0.5
    assert seen["nccl.nvls"] is False


def test_a_rank_that_did_not_say_its_network_leaves_it_unknown():
    files = {name: (LOGS / name).read_text() for name in ("log-ib-gdr.log", "log-truncated.log")}
    transport = parsed(files)["nccl.transport"]
    assert transport.value is None
    assert "log-truncated.log" in str(transport.why)


@case_for_each(
    ({}, "INFO", "wrote no log"),
    ({"a.log": ""}, "INFO", "wrote no log"),
    ({"a.log": (LOGS / "log-warn-only.log").read_text()}, "WARN", "NCCL_DEBUG=WARN was set by the user"),
)
def test_no_evidence_is_said_with_its_reason(files, debug, why):
    seen = parsed(files, debug).values()
    assert {fact.value for fact in seen} == {None}
    assert all(why in str(fact.why) for fact in seen)


def test_a_rank_whose_log_is_missing_leaves_everything_unknown():
    files = {"a.log": (LOGS / "log-ib-gdr.log").read_text(), "b.log": ""}
    seen = parsed(files, ranks=2).values()
    assert {(fact.value, fact.why) for fact in seen} == {(None, "1 of 2 ranks left a log in raw/nccl-2")}
    alone = parsed({"a.log": files["a.log"]}, ranks=1)["nccl.transport"]
    assert (alone.value, alone.why) == ("rdma-verbs", "IB")


@for_each(
    *((name, "rdma-verbs") for name in ("IB", "IBext", "IBext_v8", "IBext_v9", "IBext_v10", "IBext_v11")),
    *((name, "rdma-verbs") for name in ("NCCL RDMA Plugin", "NCCL RDMA Plugin v8", "NCCL RDMA Plugin v11")),
    *((name, "rdma-verbs") for name in ("UCX", "UCX-RMA", "SPCX", "SPCX_v10")),
    *((name, "gcp") for name in ("gIB", "FasTrak", "GPUDirectTCPX_v7", "GPUDirectTCPX")),
    *((name, "sockets") for name in ("Socket", "FastSocket")),
    ("Mesh", "unknown:Mesh"),
    ("IBM", "unknown:IBM"),
    *((name, f"unknown:{name}") for name in ("AWS Libfabric", "Libfabric", "OFI")),  # no provider is named
)
def test_plugins_are_known_by_what_carries_the_bytes(network, transport):
    seen = transport_of(f"node00:606:642 [6] NCCL INFO Using network {network}\n")
    assert (seen.value, seen.why) == (transport, network)


def transport_of(text: str) -> Observation:
    return parsed({"a.log": text}, None)["nccl.transport"]


@for_each("AWS Libfabric", "Libfabric", "OFI")
@for_each(
    # as aws-ofi-nccl prints it: src/nccl_ofi_net.c of 1.5, 1.12 and 1.14
    ("Provider is efa", "efa"),
    ("Provider is efa (found 4 nics)", "efa"),
    ("provider is efa, fabric is efa-direct (found 32 nics)", "efa"),
    ("provider is cxi, fabric is cxi (found 4 nics)", "slingshot"),
    ("provider is verbs;ofi_rxm, fabric is IB-0xfe80000000000000 (found 8 nics)", "rdma-verbs"),
    ("provider is tcp, fabric is 172.31.32.0/20 (found 1 nics)", "sockets"),
    ("Provider is tcp;ofi_rxm (found 1 nics)", "sockets"),
    ("Provider is sockets", "sockets"),
    ("provider is opx, fabric is opx (found 1 nics)", "unknown:NAME/opx"),
)
def test_libfabric_is_known_by_its_provider(network, provider, transport):
    lines = (f"NET/OFI Selected {provider}", f"Using network {network}")
    text = "".join(f"node00:606:642 [6] NCCL INFO {words}\n" for words in lines)
    assert transport_of(text).value == transport.replace("NAME", network)


def test_a_plugin_of_no_class_is_known_as_rdma_only_where_all_its_bytes_go_to_gpu_memory():
    devices = "h1:1:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
    channel = "h1:1:9 [0] NCCL INFO Channel 0{0}/0 : 1[1] -> 8[0] [send] via NET/Mesh/2(0){1}\n"
    direct, through_host = channel.format(0, "/GDRDMA"), channel.format(1, "")
    assert transport_of(devices + direct).value == "rdma-verbs"
    assert transport_of(devices + direct + through_host).value == "unknown:Mesh"
    assert transport_of(direct).value == "unknown:Mesh"  # no verbs device is listed


def test_one_rank_of_libfabric_on_tcp_is_seen_among_ranks_on_efa():
    lines = "h:1:2 [0] NCCL INFO NET/OFI Selected provider is {} (found 1 nics)\n"
    lines += "h:1:2 [0] NCCL INFO Using network OFI\n"
    files = {f"{name}.log": lines.format(name) for name in ("efa", "tcp")}
    assert parsed(files)["nccl.transport"].value == "efa+sockets"


@for_each(
    ("Assigned NET plugin IB to comm", "rdma-verbs"),  # NCCL_DEBUG_SUBSYS=NET leaves "Using network" out
    ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v10/3(2)/GDRDMA/Shared", "rdma-verbs"),
    ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "sockets"),
    ("Initialized NET plugin IB", None),  # of a plugin that another one may have been preferred to
    ("Assigned GIN plugin GIN_IB_GDAKI to comm", None),
)
def test_the_network_is_known_without_its_own_line(text, transport):
    assert transport_of(f"node00:606:642 [6] NCCL INFO {text}\n").value == transport


def test_channels_over_sockets_are_seen_whatever_network_was_announced():
    lines = ("Using network IB", "Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0")
    assert transport_of("".join(f"h:1:2 [0] NCCL INFO {words}\n" for words in lines)).value == "rdma-verbs+sockets"


GRACE = """node00:77:90 [0] NCCL INFO Using network IB
node00:77:90 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0+mlx5_1'
node00:77:90 [0] NCCL INFO Channel 00/0 : 4[0] -> 0[0] [receive] via NET/IB/0/GDRDMA(PCI)
node00:77:90 [0] NCCL INFO Channel 01/0 : 0[0] -> 4[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared
"""


@for_each(
    (GRACE, "rdma-verbs", 2, 1.0),
    (GRACE.replace("NET/IB", "NET/gIB").replace("network IB", "network gIB"), "gcp", 2, 1.0),
    # NCCL_NET=Socket: NICs that are not used
    (GRACE.replace("IB/0/GDRDMA(PCI)", "Socket/0").replace("network IB", "network Socket"), "sockets", 0, 0.0),
)
def test_nics_that_are_merged_or_listed_and_not_used_are_counted_right(log, transport, nics, gdr):
    seen = parsed({"a.log": log})
    assert [seen[f"nccl.{name}"].value for name in ("transport", "nics", "gdr")] == [transport, nics, gdr]


EFA = (LOGS / "log-efa.log").read_text()
MNNVL = (FIXTURES / "real/nccl/mnnvl-gb200-2.27.log").read_text()


def test_one_nvlink_domain_over_several_hosts_is_no_socket():
    seen = parsed({"a.log": MNNVL})
    assert seen["nccl.transport"].value == "nvlink"
    assert "NVLink" in str(seen["nccl.gdr"].why)


def test_two_nvlink_domains_that_meet_over_sockets_use_sockets():
    channel = "h4:2101:2180 [2] NCCL INFO Channel 02/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    assert transport_of(MNNVL.replace("nNodes 1", "nNodes 2") + channel).value == "sockets"


@case_for_each((EFA, "found 32 nics"), (MNNVL, "nNodes 1"), (f"{EFA}h:1:1 [0] NCCL INFO 1 nvls channels\n", "1 nvls"))
def test_a_number_that_no_log_could_hold_says_nothing_and_is_no_error(log, was):
    assert was in log
    changed = log.replace(was, re.sub(r"\d+", "9" * 5000, was))
    seen = {quantity: fact.value for quantity, fact in parsed({"a.log": changed}).items()}
    assert not any("9" * 50 in str(value) for value in seen.values())


def test_evidence_names_the_line_that_grep_gives_behind_a_carriage_return():
    assert parsed({"a.log": f"10 %\r20 %\u2028\x0b\n{GRACE}"})["nccl.transport"].evidence == "raw/nccl-2/a.log:2"
