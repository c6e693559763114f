"""RDMA over Ethernet: which ports carry NCCL, their MTU and flow control, and what they count of congestion."""

from pathlib import Path

import counters as probe
import devices
import fabric
import pytest
import roce
from loops import for_each
from probing import told_by
from programs import on_path, program, tree
from runs_for_tests import H100, OPEN, PASS, WARN, judged
from showing import check, check_each, shows_failing

UP = {"ports/1/state": "4: ACTIVE", "ports/1/rate": "400 Gb/sec (4X NDR)", "ports/1/link_layer": "Ethernet"}
NET = {"device/net/eth-{name}/mtu": "9000", "device/net/eth-{name}/dev_port": "0"}
NUMBERS = [(what, number) for what in ("roce_np", "roce_rp") for number in (0, 3)]
ECN = {f"device/net/eth-{{name}}/ecn/{what}/enable/{number}": "0" for what, number in NUMBERS}
ON = {path: "1" if path.endswith("3") else "0" for path in ECN}
COUNTED = {f"ports/1/hw_counters/{name}": "5" for name in probe.ROCE}


def hcas(root: Path, **cards: dict[str, str]) -> Path:
    return tree(root, {f"{n}/{path.format(name=n)}": text for n, of_n in cards.items() for path, text in of_n.items()})


@pytest.fixture(autouse=True)
def stand_ins(tmp_path, monkeypatch):
    path = on_path(tmp_path / "node", ports="mlx5_0 mlx5_1", port_layer="Ethernet", port_pfc="on", **HEALTHY)
    for name in ("PATH", "BRINGUP_SIMULATED_STATE"):
        monkeypatch.setenv(name, path[name])
    monkeypatch.delenv("NCCL_IB_HCA", raising=False)


ETHTOOL = ("rx_prio3_pause", "rx_prio4_pause", "tx_prio3_pause", "rx_discards_phy")
HEALTHY = {f"port_ethtool.{name}": "7" for name in ETHTOOL}
SLOW = {**UP, "ports/1/rate": "25 Gb/sec (1X EDR)"}
DOWN = {**UP, "ports/1/state": "1: DOWN"}
IB = {**UP, "ports/1/link_layer": "InfiniBand"}


@for_each(
    ({"mlx5_0": UP, "mlx5_1": UP, "bnxt_re0": SLOW}, "", ["mlx5_0", "mlx5_1"]),
    ({"mlx5_0": UP, "mlx5_1": DOWN}, "", ["mlx5_0"]),
    ({"mlx5_0": IB, "bnxt_re0": SLOW}, "", []),  # for people and storage
    ({"mlx5_0": UP, "mlx5_1": UP}, "mlx5_1", ["mlx5_1"]),
    ({"mlx5_0": IB, "bnxt_re0": SLOW}, "bnxt_re0", ["bnxt_re0"]),
    ({}, "", []),
)
def test_ports_over_ethernet_that_carry_nccl_are_those_it_may_use(tmp_path, monkeypatch, cards, names, ports):
    monkeypatch.setenv("NCCL_IB_HCA", names)
    root = hcas(tmp_path / str(len(list(tmp_path.iterdir()))), **cards)
    assert [port.parent.parent.name for port in fabric.roce(root)] == ports


def settings_of(root: Path) -> list[str]:
    return devices.of_roce(fabric.roce(root))


def test_mtu_and_flow_control_are_read_of_the_ports_own_interface(tmp_path):
    root = hcas(tmp_path / "ib", mlx5_0={**UP, **NET, **ON}, mlx5_1={**UP, **NET, **ECN})
    assert settings_of(root) == ["MTU of RoCE=9000", "flow control of RoCE=ECN and PFC+PFC"]
    tree(root, {"mlx5_1/device/net/eth-first/mtu": "1500", "mlx5_1/device/net/eth-first/dev_port": "1"})
    assert settings_of(root)[0] == "MTU of RoCE=9000"
    bare = hcas(tmp_path / "bare", mlx5_0=UP)  # its interface is in another network namespace
    assert settings_of(bare) == ["MTU of RoCE=not readable by users", "flow control of RoCE=unknown"]
    assert settings_of(tmp_path / "none") == []


@for_each(
    (ECN, "", "off"),
    (ECN, "exit 1", "unknown"),
    (ON, "exit 1", "ECN"),
    ({}, "", "unknown"),  # the kernel's own driver shows no ECN
    ({}, "echo '	enabled     0   0   0   1   0   0   0   0'", "PFC"),
)
def test_what_cannot_be_seen_is_not_off(tmp_path, monkeypatch, files, mlnx_qos, words):
    root = hcas(tmp_path / words / str(len(files)), mlx5_0={**UP, **NET, **files})
    says = mlnx_qos or "echo '	enabled     0   0   0   0   0   0   0   0'"
    monkeypatch.setenv("PATH", str(program(tmp_path / f"bin-{hash((words, says))}/mlnx_qos", says).parent))
    assert roce.flow_control(next((root / "mlx5_0/device/net").iterdir())) == words


@for_each(
    ("MTU of RoCE=9000", PASS, "0 (right: MTU of RoCE)"),
    ("MTU of RoCE=4200", PASS, "0 (right"),
    ("MTU of RoCE=1500+9000", WARN, "1 (MTU of RoCE is 1500+9000: a packet of RDMA holds 1024"),
    ("MTU of RoCE=4096", WARN, "1 ("),
    ("flow control of RoCE=ECN+ECN and PFC", PASS, "0 (right"),
    ("flow control of RoCE=ECN+off", WARN, "1 (flow control of RoCE is ECN+off: a full switch drops"),
    ("flow control of RoCE=unknown", OPEN, "not found out: none of them could be read"),
)
def test_a_port_has_the_mtu_and_the_flow_control_that_vendors_ask_for(entry, outcome, says):
    facts = [("discovery.rdma.ports", "n0", 8), ("inventory.devices.nics", "n0", [entry])]
    check(judged(facts, "discovery", ("n0",), profile_name=H100)["discovery.settings.right n0"], outcome, says)


# --- counters


def counted(root: Path, monkeypatch, question=probe.of_roce) -> dict[tuple[str, str], object]:
    monkeypatch.setattr(probe, "HCAS", root)
    facts = told_by(lambda facts: question(probe.Counters(facts, "before"))).observations
    begin = "load.counter.before."
    return {(f.quantity.removeprefix(begin), f.subject): f.value for f in facts if f.quantity.startswith(begin)}


def test_the_counters_of_a_port_and_of_its_interface_are_read(tmp_path, monkeypatch):
    root, port = hcas(tmp_path / "ib", mlx5_0={**UP, **NET, **COUNTED}, mlx5_1=DOWN), "n0/mlx5_0:1"
    seen = counted(root, monkeypatch)
    assert seen.pop(("roce_ports", "n0")) == 1
    ethtool = {("rx_pause", port): 14, ("rx_discards_phy", port): 7}
    assert seen == dict.fromkeys([(name, port) for name in probe.ROCE], 5) | ethtool
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(roce, "PLACES", str(tmp_path))
    assert counted(root, monkeypatch)["rx_pause", port] is None  # there is no ethtool
    assert counted(hcas(tmp_path / "other", mlx5_0=IB), monkeypatch) == {("roce_ports", "n0"): 0}


BROADCOM = {f"ports/1/hw_counters/{name}": "3" for name in ("rx_ecn_marked_pkts", "rx_cnp_pkts", "rx_out_of_buffer")}
BROADCOM |= {"ports/1/hw_counters/tx_pkts": "900", "ports/1/hw_counters/rx_pkts": "800"}


def test_a_port_of_broadcom_is_counted_under_its_own_names_and_its_packets_also_without_the_folder_counters(
    tmp_path, monkeypatch
):
    """An older bnxt_re: the three counts were not read, and no share of its packets was known."""
    root, port = hcas(tmp_path / "ib", bnxt_re0={**UP, **NET, **BROADCOM}), "n0/bnxt_re0:1"
    says = "printf 'NIC statistics:\n     rx_pfc_ena_frames_pri3: 5\n     rx_pfc_frames: 9\n     rx_stat_discard: 2\n'"
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin/ethtool", says).parent))
    seen = counted(root, monkeypatch)
    assert [seen[name, port] for name in ("rx_ecn_marked_pkts", "rx_cnp_pkts", "rx_out_of_buffer")] == [3] * 3
    assert [seen[name, port] for name in ("rx_pause", "rx_stat_discard")] == [5, 2]
    packets = counted(root, monkeypatch, probe.of_rdma)
    assert [packets[name, port] for name in probe.PACKETS] == [900, 800]
    tree(root, {"bnxt_re0/ports/1/counters/port_xmit_packets": "7"})
    assert counted(root, monkeypatch, probe.of_rdma)["port_xmit_packets", port] == 7


def load(*, ports=(("mlx5_0:1", {}),), kind: int | None = 1) -> list[tuple[str, str, object]]:
    """kind: how many ports are over Ethernet; None: an older probe did not say."""
    nothing = dict.fromkeys(("np_ecn_marked_roce_packets", "rp_cnp_handled"), 0)
    quiet = {"port_xmit_packets": 10**6, "port_rcv_packets": 10**6, **nothing}
    quiet |= {"rx_pause": 0, "rx_discards_phy": 0, "out_of_buffer": 0}
    facts = [("probe.counters.finished", "n0", True)]
    for moment in ("before", "after"):
        begin = f"load.counter.{moment}."
        facts += [(f"{begin}rdma_ports", "n0", len(ports))]
        facts += [] if kind is None else [(f"{begin}roce_ports", "n0", kind)]
        for port, rises in ports:
            values = {name: rise if moment == "after" else 0 for name, rise in (quiet | rises).items()}
            shown = {name: value for name, value in values.items() if kind or "port_" in name}
            facts += [(f"{begin}{name}", f"n0/{port}", value) for name, value in shown.items()]
    return facts


GATES = ("marked", "slowed", "paused", "dropped")
SLOWED, DROPPED = {"rp_cnp_handled": 20_000}, {"rx_discards_phy": 100, "out_of_buffer": 100}


@shows_failing(*(f"load.roce.{gate}" for gate in GATES))
@for_each(
    (load(), "", "0 of 1000000 on mlx5_0:1"),
    (load(ports=[("mlx5_0:1", {"np_ecn_marked_roce_packets": 20_000})]), "marked", "20000 of 1000000 on mlx5_0:1"),
    (load(ports=[("mlx5_0:1", SLOWED), ("mlx5_1:1", {})]), "slowed", "20000 of 1000000 on mlx5_0:1"),
    (load(ports=[("mlx5_0:1", {"rx_pause": 2_000})]), "paused", "2000 of 1000000 on mlx5_0:1"),
    (load(ports=[("mlx5_0:1", DROPPED)]), "dropped", "200 of 1000000 on mlx5_0:1"),
    (load(ports=[("bnxt_re0:1", {"rx_ecn_marked_pkts": 20_000})]), "marked", "20000 of 1000000 on bnxt_re0:1"),
    (load(ports=[("bnxt_re0:1", {"rx_cnp_pkts": 20_000})]), "slowed", "20000 of 1000000 on bnxt_re0:1"),
    (load(ports=[("bnxt_re0:1", {"rx_stat_discard": 300})]), "dropped", "300 of 1000000 on bnxt_re0:1"),
    (load(kind=0), "", "it has no such device"),
    (load(ports=[], kind=None), "", "it has no such device"),
)
def test_each_kind_of_congestion_warns_on_its_own(facts, bad, says):
    by_gate = judged(facts, "nccl_scaling", ("n0", "n1"), profile_name=H100)
    for gate in GATES:
        is_it = gate == (bad or "marked")
        check(by_gate[f"load.roce.{gate} n0"], WARN if gate == bad else PASS, says if is_it else "")


def test_of_ports_whose_counters_did_not_arrive_nothing_is_known():
    by_gate = judged(load(kind=None), "nccl_scaling", ("n0", "n1"), profile_name=H100)
    check_each([by_gate[f"load.roce.{gate} n0"] for gate in GATES], *[OPEN] * 4)
