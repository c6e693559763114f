"""NCCL's own log: which network, how many NICs, GPUDirect, NVLS, and the ways inside a host."""

import pytest
from bringup.evidence import nccl_log
from bringup.evidence.parsed import Parsed
from runs_for_tests import FIXTURES, add_derived

LOGS = FIXTURES / "nccl"


def read(*names: str, debug: str | None = "INFO") -> dict[str, object]:
    files = {f"nccl.{number}.log": (LOGS / name).read_text() for number, name in enumerate(names)}
    return {one.quantity: one.value for one in nccl_log.parse(files, "raw/nccl-2", "2-nodes", debug).observations}


@pytest.mark.parametrize(
    ("log", "transport", "nics", "gdr", "nvls"),
    [
        ("log-ib-gdr.log", "IB", 8, 1.0, True),
        ("log-ib.log", "IB", 8, 0.0, True),
        ("log-socket.log", "Socket", 0, 0.0, False),
        ("log-efa.log", "AWS Libfabric", 32, 1.0, True),
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
    assert seen["nccl.log.ranks"] == 1


def test_inside_one_host_there_are_no_channels_to_judge_between_hosts():
    seen = read("log-one-node.log")
    assert seen["nccl.gdr"] is None
    assert seen["nccl.intranode"] == "P2P/CUMEM+SHM/direct"
    assert seen["nccl.nvls"] is False


def test_one_rank_on_sockets_among_ranks_on_infiniband_is_seen():
    seen = read("log-ib-gdr.log", "log-socket.log")
    assert seen["nccl.transport"] == "IB+Socket"
    assert seen["nccl.gdr"] == 0.5
    assert seen["nccl.nvls"] is False


def test_a_rank_that_did_not_say_its_network_leaves_it_unknown():
    files = {name: (LOGS / name).read_text() for name in ("log-ib-gdr.log", "log-truncated.log")}
    parsed = nccl_log.parse(files, "raw/nccl-2", "2-nodes")
    transport = next(one for one in parsed.observations if one.quantity == "nccl.transport")
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
    assert {one.value for one in parsed.observations} == {None}
    assert all(why in str(one.why) for one in parsed.observations)


def test_a_rank_whose_log_is_missing_leaves_everything_unknown():
    files = {"a.log": (LOGS / "log-ib-gdr.log").read_text(), "b.log": ""}
    parsed = nccl_log.parse(files, "raw/nccl-2", "2-nodes", "INFO", ranks=2)
    assert {one.value for one in parsed.observations} == {None}
    assert {one.why for one in parsed.observations} == {"1 of 2 ranks left a log in raw/nccl-2"}
    alone = nccl_log.parse({"a.log": files["a.log"]}, "raw/nccl-2", "2-nodes", "INFO", ranks=1)
    assert alone.observations[0].value == "IB"


def bypassed(transport: str | None, active: list[str]) -> object:
    parsed = Parsed()
    parsed.saw("nccl.transport", "2-nodes", transport, "text", "e", None if transport else "unknown")
    parsed.saw("nccl.rdma.active", "2-nodes", active, "text", "e")
    return next(one.value for one in add_derived(parsed).observations if one.quantity == "nccl.rdma.bypassed")


def test_a_socket_beside_an_rdma_device_is_a_bypass():
    assert bypassed("Socket", ["n0: mlx5_0"]) is True
    assert bypassed("IB+Socket", ["n0: mlx5_0"]) is True
    assert bypassed("tcp:eth0", ["n0: mlx5_0"]) is True
    assert bypassed("IB", ["n0: mlx5_0"]) is False
    assert bypassed("Socket", []) is False
    assert bypassed(None, ["n0: mlx5_0"]) is None
