"""NCCL's own log: which network, how many NICs, GPUDirect, NVLS, and the ways inside a host."""

import pytest
from bringup.evidence import nccl_log
from bringup.records import Observation
from loops import for_each
from runs_for_tests import FIXTURES

LOGS = FIXTURES / "nccl"


def read(*names: str, debug: str | None = "INFO") -> dict[str, object]:
    files = {f"nccl.{number}.log": (LOGS / name).read_text() for number, name in enumerate(names)}
    return {
        observation.quantity: observation.value
        for observation in nccl_log.parse(files, "raw/nccl-2", "2-nodes", debug).observations
    }


@pytest.mark.parametrize(
    ("log", "transport", "nics", "gdr", "nvls"),
    [
        ("log-ib-gdr.log", "rdma-verbs", 8, 1.0, True),
        ("log-ib.log", "rdma-verbs", 8, 0.0, True),
        ("log-socket.log", "sockets", 0, 0.0, False),
        ("log-efa.log", "efa", 32, 1.0, True),
    ],
)
def test_what_carries_the_bytes_between_hosts_is_read(log, transport, nics, gdr, nvls):
    seen = read(log)
    assert (seen["nccl.transport"], seen["nccl.nics"], seen["nccl.gdr"], seen["nccl.nvls"]) == (
        transport,
        nics,
        gdr,
        nvls,
    )


def log_of(host: str, nics: int, used: tuple[int, ...], line: str = "[{n}]mlx5_{n}:1/IB") -> str:
    """What the ranks of a host write that lists so many NICs and sends over these."""
    entries = [f"NET/IB : Using {' '.join(line.format(n=n) for n in range(nics))} [RO]; OOB eth0:10.0.0.1<0>"]
    entries += ["Using network IB", *(f"Channel {n:02}/0 : 0[0] -> 8[0] [send] via NET/IB/{n}(3)/GDRDMA" for n in used)]
    return "".join(f"{host}:77:81 [0] NCCL INFO {words}\n" for words in entries)


def test_a_nic_that_is_listed_and_carries_nothing_is_not_used():
    """A storage NIC of the same rate in NCCL's list stood in for a dead NIC of the fabric."""
    files = {"nccl.n0.1.log": log_of("n0", 9, tuple(range(8))), "nccl.n1.1.log": log_of("n1", 8, (0, 1, 2, 4, 5, 6, 7))}
    (nics,) = (
        fact
        for fact in nccl_log.parse(files, "raw/x", "2-nodes", "INFO", 2).observations
        if fact.quantity == "nccl.nics"
    )
    assert (nics.value, nics.why) == (7, "n1: no channel goes over mlx5_3:1")
    healthy = {**files, "nccl.n1.1.log": log_of("n1", 9, tuple(range(8)))}
    (nics,) = (
        fact
        for fact in nccl_log.parse(healthy, "raw/x", "2-nodes", "INFO", 2).observations
        if fact.quantity == "nccl.nics"
    )
    assert nics.value == 8


def test_merged_nics_are_counted_as_nccl_lists_them():
    files = {"nccl.n0.1.log": log_of("n0", 4, (0,), "[{n}]={{[0] mlx5_{n}:1/IB, [1] mlx5_9{n}:1/IB}}")}
    (nics,) = (
        fact
        for fact in nccl_log.parse(files, "raw/x", "2-nodes", "INFO", 1).observations
        if fact.quantity == "nccl.nics"
    )
    assert nics.value == 8


def test_inside_one_host_there_are_no_channels_to_judge_between_hosts():
    seen = read("log-one-node.log")
    assert seen["nccl.gdr"] is None
    assert seen["nccl.nvls"] is False


def test_one_rank_on_sockets_among_ranks_on_infiniband_is_seen():
    seen = read("log-ib-gdr.log", "log-socket.log")
    assert seen["nccl.transport"] == "rdma-verbs+sockets"
    assert seen["nccl.gdr"] == 0.5
    assert seen["nccl.nvls"] is False


def test_a_rank_that_did_not_say_its_network_leaves_it_unknown():
    files = {name: (LOGS / name).read_text() for name in ("log-ib-gdr.log", "log-truncated.log")}
    parsed = nccl_log.parse(files, "raw/nccl-2", "2-nodes")
    transport = next(observation for observation in parsed.observations if observation.quantity == "nccl.transport")
    assert transport.value is None
    assert "log-truncated.log" in str(transport.why)


@pytest.mark.parametrize(
    ("files", "debug", "why"),
    [
        ({}, "INFO", "wrote no log"),
        ({"a.log": ""}, "INFO", "wrote no log"),
        ({"a.log": (LOGS / "log-warn-only.log").read_text()}, "WARN", "NCCL_DEBUG=WARN was set by the user"),
    ],
)
def test_no_evidence_is_said_with_its_reason(files, debug, why):
    parsed = nccl_log.parse(files, "raw/nccl-2", "2-nodes", debug)
    assert {observation.value for observation in parsed.observations} == {None}
    assert all(why in str(observation.why) for observation in parsed.observations)


def test_a_rank_whose_log_is_missing_leaves_everything_unknown():
    files = {"a.log": (LOGS / "log-ib-gdr.log").read_text(), "b.log": ""}
    parsed = nccl_log.parse(files, "raw/nccl-2", "2-nodes", "INFO", ranks=2)
    assert {observation.value for observation in parsed.observations} == {None}
    assert {observation.why for observation in parsed.observations} == {"1 of 2 ranks left a log in raw/nccl-2"}
    alone = nccl_log.parse({"a.log": files["a.log"]}, "raw/nccl-2", "2-nodes", "INFO", ranks=1)
    assert (alone.observations[0].value, alone.observations[0].why) == ("rdma-verbs", "IB")


@for_each(
    ("network", "transport"),
    [
        *((name, "rdma-verbs") for name in ("IB", "IBext", "IBext_v8", "IBext_v9", "IBext_v10", "IBext_v11")),
        *((name, "rdma-verbs") for name in ("NCCL RDMA Plugin", "NCCL RDMA Plugin v8", "NCCL RDMA Plugin v11")),
        *((name, "rdma-verbs") for name in ("UCX", "UCX-RMA", "SPCX", "SPCX_v10")),
        *((name, "gcp") for name in ("gIB", "FasTrak", "GPUDirectTCPX_v7", "GPUDirectTCPX")),
        *((name, "sockets") for name in ("Socket", "FastSocket")),
        ("Mesh", "unknown:Mesh"),
        ("IBM", "unknown:IBM"),
        *((name, f"unknown:{name}") for name in ("AWS Libfabric", "Libfabric", "OFI")),  # no provider is named
    ],
)
def test_plugins_are_known_by_what_carries_the_bytes(network, transport):
    text = f"node00:606:642 [6] NCCL INFO Using network {network}\n"
    seen = transport_of(text)
    assert (seen.value, seen.why) == (transport, network)


def transport_of(text: str) -> Observation:
    parsed = nccl_log.parse({"a.log": text}, "raw/nccl-2", "2-nodes")
    return next(observation for observation in parsed.observations if observation.quantity == "nccl.transport")


@for_each("network", ["AWS Libfabric", "Libfabric", "OFI"])
@for_each(
    ("provider", "transport"),
    [  # as aws-ofi-nccl prints it: src/nccl_ofi_net.c of 1.5, 1.12 and 1.14
        ("Provider is efa", "efa"),
        ("Provider is efa (found 4 nics)", "efa"),
        ("provider is efa, fabric is efa-direct (found 32 nics)", "efa"),
        ("provider is cxi, fabric is cxi (found 4 nics)", "slingshot"),
        ("provider is verbs;ofi_rxm, fabric is IB-0xfe80000000000000 (found 8 nics)", "rdma-verbs"),
        ("provider is tcp, fabric is 172.31.32.0/20 (found 1 nics)", "sockets"),
        ("Provider is tcp;ofi_rxm (found 1 nics)", "sockets"),
        ("Provider is sockets", "sockets"),
        ("provider is opx, fabric is opx (found 1 nics)", "unknown:NAME/opx"),
    ],
)
def test_libfabric_is_known_by_its_provider(network, provider, transport):
    text = (
        f"node00:606:642 [6] NCCL INFO NET/OFI Selected {provider}\n"
        f"node00:606:642 [6] NCCL INFO Using network {network}\n"
    )
    assert transport_of(text).value == transport.replace("NAME", network)


def test_a_plugin_of_no_class_is_known_as_rdma_only_where_all_its_bytes_go_to_gpu_memory():
    devices = "h1:1:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
    channel = "h1:1:9 [0] NCCL INFO Channel 0{0}/0 : 1[1] -> 8[0] [send] via NET/Mesh/2(0){1}\n"
    direct, through_host = channel.format(0, "/GDRDMA"), channel.format(1, "")
    assert transport_of(devices + direct).value == "rdma-verbs"
    assert transport_of(devices + direct + through_host).value == "unknown:Mesh"
    assert transport_of(direct).value == "unknown:Mesh"  # no verbs device is listed


def test_one_rank_of_libfabric_on_tcp_is_seen_among_ranks_on_efa():
    lines = (
        "h:1:2 [0] NCCL INFO NET/OFI Selected provider is {} (found 1 nics)\nh:1:2 [0] NCCL INFO Using network OFI\n"
    )
    files = {f"{name}.log": lines.format(name) for name in ("efa", "tcp")}
    assert nccl_log.parse(files, "raw/nccl-2", "2-nodes").observations[0].value == "efa+sockets"


@for_each(
    ("text", "transport"),
    [
        ("Assigned NET plugin IB to comm", "rdma-verbs"),  # NCCL_DEBUG_SUBSYS=NET leaves "Using network" out
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v10/3(2)/GDRDMA/Shared", "rdma-verbs"),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "sockets"),
        ("Initialized NET plugin IB", None),  # of a plugin that another one may have been preferred to
        ("Assigned GIN plugin GIN_IB_GDAKI to comm", None),
    ],
)
def test_the_network_is_known_without_its_own_line(text, transport):
    assert transport_of(f"node00:606:642 [6] NCCL INFO {text}\n").value == transport


def test_channels_over_sockets_are_seen_whatever_network_was_announced():
    text = (
        "h:1:2 [0] NCCL INFO Using network IB\n"
        "h:1:2 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0\n"
    )
    assert transport_of(text).value == "rdma-verbs+sockets"


HPCX = """node00:300:310 [3] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin v10 (v10)
node00:300:310 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [2]mlx5_4:1/IB/SHARP \
[RO]; OOB ib0:10.0.0.1<0>
node00:300:310 [3] NCCL INFO Using network IBext_v10
node00:300:310 [3] NCCL INFO NET/IBext_v10 : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
node00:300:310 [3] NCCL INFO Channel 00/0 : 11[3] -> 3[3] [receive] via NET/IBext_v10/3/GDRDMA
node00:300:310 [3] NCCL INFO Channel 01/0 : 3[3] -> 11[3] [send] via NET/IBext_v10/3(2)/GDRDMA/Shared
"""
EFA = """node00:6831:6840 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)
node00:6831:6840 [0] NCCL INFO NET/OFI Selected Provider is efa (found 16 nics)
node00:6831:6840 [0] NCCL INFO NET/OFI Skipping NCCL_PROTO checks on P5en + RDMA
node00:6831:6840 [0] NCCL INFO Using network Libfabric
node00:6831:6840 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA
node00:6831:6840 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA/Shared
"""
GIB = """node00:606:642 [6] NCCL INFO NET/gIB : Initializing gIB v1.0.5
node00:606:642 [6] NCCL INFO Using network gIB
node00:606:642 [6] NCCL INFO NET/gIB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
node00:606:642 [6] NCCL INFO NET/gIB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'
node00:606:642 [6] NCCL INFO Channel 00/0 : 14[6] -> 6[6] [receive] via NET/gIB/1/GDRDMA
"""
GRACE = """node00:77:90 [0] NCCL INFO Using network IB
node00:77:90 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0+mlx5_1'
node00:77:90 [0] NCCL INFO Channel 00/0 : 4[0] -> 0[0] [receive] via NET/IB/0/GDRDMA(PCI)
node00:77:90 [0] NCCL INFO Channel 01/0 : 0[0] -> 4[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared
"""
FAST_SOCKET = """node00:14492:14605 [0] NCCL INFO NET/FastSocket : Using [0]eth0:10.0.0.6<0> [1]eth1:10.0.1.4<0>
node00:14492:14605 [0] NCCL INFO Using network FastSocket
node00:14492:14605 [0] NCCL INFO NET/FastSocket : GPU Direct RDMA Disabled for HCA 0 'eth0'
node00:14492:14605 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/FastSocket/0
"""


@for_each(
    ("log", "transport", "nics", "gdr"),
    [
        (HPCX, "rdma-verbs", 3, 1.0),
        (EFA, "efa", 16, 1.0),
        (GIB, "gcp", 2, 1.0),
        (GRACE, "rdma-verbs", 2, 1.0),
        (FAST_SOCKET, "sockets", 0, 0.0),
        (
            HPCX.replace("IBext_v10", "Socket").replace("/GDRDMA", ""),
            "sockets",
            0,
            0.0,
        ),  # NCCL_NET=Socket: NICs that are not used
    ],
)
def test_logs_of_other_fabrics_give_transport_nics_and_gpudirect(log, transport, nics, gdr):
    parsed = nccl_log.parse({"a.log": log}, "raw/nccl-2", "2-nodes")
    seen = {observation.quantity: observation.value for observation in parsed.observations}
    assert (seen["nccl.transport"], seen["nccl.nics"], seen["nccl.gdr"]) == (transport, nics, gdr)


MNNVL = """node00:900:950 [0] NCCL INFO MNNVL busId 0x1801000 fabric UUID 814d.b5b7 cliqueId 0x7ffe \
state 3 healthMask 0x0
node00:900:950 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node00:900:950 [0] NCCL INFO Using network Socket
node00:900:950 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'
node00:900:950 [0] NCCL INFO MNNVL 1 cliqueId 7ffe cliqueSize 8 cliqueRank 0 nvlDomainSize 8
node00:900:950 [0] NCCL INFO comm 0x55d0c0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 1
node00:900:950 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL
node00:900:950 [0] NCCL INFO Channel 01/0 : 0[0] -> 7[3] via P2P/MNNVL
"""


def test_one_nvlink_domain_over_several_hosts_is_no_socket():
    parsed = nccl_log.parse({"a.log": MNNVL}, "raw/nccl-2", "2-nodes")
    seen = {observation.quantity: observation for observation in parsed.observations}
    assert seen["nccl.transport"].value == "nvlink"
    assert "Socket" in str(seen["nccl.transport"].why)
    assert (seen["nccl.gdr"].value, seen["nccl.nics"].value) == (None, None)
    assert "NVLink" in str(seen["nccl.gdr"].why)


def test_two_nvlink_domains_that_meet_over_sockets_use_sockets():
    text = MNNVL.replace("nNodes 1", "nNodes 2")
    text += "node00:900:950 [0] NCCL INFO Channel 02/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    parsed = nccl_log.parse({"a.log": text}, "raw/nccl-4", "4-nodes")
    assert parsed.observations[0].value == "sockets"


@pytest.mark.parametrize(
    ("was", "instead"),
    [("found 16 nics", f"found {'9' * 5000} nics"), ("nNodes 1", f"nNodes {'9' * 5000}")],
)
def test_a_number_that_no_log_could_hold_is_read_without_an_error(was, instead):
    log = EFA if was in EFA else MNNVL
    assert was in log
    assert nccl_log.parse({"a.log": log.replace(was, instead)}, "raw/nccl-2", "2-nodes").observations


def test_a_line_with_too_many_digits_says_nothing():
    line = f"node00:300:310 [3] NCCL INFO {'9' * 5000} nvls channels"
    parsed = nccl_log.parse({"a.log": f"{HPCX}{line}\n"}, "raw/nccl-2", "2-nodes")
    seen = {observation.quantity: observation.value for observation in parsed.observations}
    assert seen["nccl.nvls"] is None


def test_evidence_names_the_line_that_grep_gives_behind_a_carriage_return():
    parsed = nccl_log.parse({"a.log": f"10 %\r20 %\u2028\x0b\n{HPCX}"}, "raw/nccl-2", "2-nodes")
    places = {observation.quantity: observation.evidence for observation in parsed.observations}
    assert places["nccl.transport"] == "raw/nccl-2/a.log:4"
