"""Counters before and after a load: what rose is named, an old count is not, and what was read once says nothing."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import counters as probe
import pytest
from bringup.domains.blame import blame
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Seen
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Value
from factory import a_run, a_verdict
from factory import judged_of as folder_of
from loops import for_each
from probing import told_by
from programs import ROOT, program, tree
from runs_for_tests import FAIL, OPEN, PASS, WARN, Fact, failing, in_words, judged
from showing import check, shows_failing

SCRIPTS = sorted(ROOT / phase.script for phase in PHASES.values() if phase.number > 2 or phase.stem == "node_sweep")
TWO = ("n0", "n1")


def rose(subject: str, **moments: tuple[Value | None, Value | None]) -> list[Fact]:
    """Counters of a node or a device, before and after the load. None: it was not read."""
    named = [(name, *at) for name, values in moments.items() for at in zip(("before", "after"), values, strict=True)]
    return [(f"load.counter.{moment}.{name}", subject, value) for name, moment, value in named]


def both(subject: str, **rises: int | None) -> list[Fact]:
    """Counters that were at 1000 before the load."""
    return rose(subject, **{name: (1000, None if rise is None else 1000 + rise) for name, rise in rises.items()})


def gpu(name: str, before: int | None, after: int | None) -> list[Fact]:
    return rose("n0", gpus=(8, 8)) + rose("n0/GPU-a", **{name: (before, after)})


@for_each(*list(PHASES))
def test_every_phase_with_a_load_asks_for_the_counters_of_every_node_of_it_and_no_other_does(phase):
    by_gate = judged([], phase, TWO)
    if phase in ("discovery", "smoke"):
        assert not [gate for gate in by_gate if gate.startswith("load.")]
        return
    for gate in ("kernel_log", "gpu_faults", "gpu_corrected", "node_faults", "node_corrected"):
        assert [by_gate[f"load.{gate} {node}"].outcome for node in TWO] == [OPEN, OPEN]
    assert ("load.tcp_sent_again n0" in by_gate) is (phase != "node_sweep")


LOST = rose("n0", gpus=(8, 7))
ERRORS = [*rose("n0/GPU-a", ecc_uncorrected=(0, 0)), ("load.counter.before.ecc_uncorrected", "n0/GPU-b", 0)]
LOG = [*rose("n0", xid=(1, 2)), *rose("n0/PCI:1", xid_79=(1, 1))]
READ_ONCE: list[Fact] = [("load.counter.before.xid", "n0", 1), ("load.counter.before.xid_79", "n0/PCI:1", 1)]
THEN_CLOSED: list[Fact] = [*READ_ONCE, ("load.counter.after.xid", "n0", None)]
NO_ANSWER: Fact = ("load.counter.after.answers", "n0/gpu1", None)
SILENT: list[Fact] = [(f"load.counter.{when}.answers", "n0/gpu1", None, "GPU is lost") for when in ("before", "after")]
OLD = gpu("ecc_uncorrected", 5, 5) + rose("n0/GPU-a", nvlink_recoveries=(0, 0))
UNEVEN = gpu("ecc_uncorrected", 5, 5) + rose("n0/GPU-b", pcie_replays=(5, 5))
ABSENT = rose("n0", ue_count=("absent", "absent"))
NO_ERROR, RESET = both("n0/mc0", ue_count=0), both("n0/GPU-a", ecc_uncorrected=-900, gpus=0)
SOUND = {"port_xmit_packets": 10**9, "packet_seq_err": 20, "local_ack_timeout_err": 0}
PORTS = both("n0", rdma_ports=0) + both("n0/mlx5_0:1", **SOUND)
BAD_PORT = both("n0/mlx5_1:1", port_xmit_packets=10**6, packet_seq_err=1500, local_ack_timeout_err=1500)
MLX = "n0/mlx5_0:1"
ROUTED = both(MLX, port_xmit_packets=10**6, packet_seq_err=0, out_of_sequence=10**5, rnr_nak_retry_err=10**4)
# bnxt_re counts what it sent again and not what it sent
MANAGEMENT = [*both(MLX, port_xmit_packets=10**6, packet_seq_err=5), *both("n0/bnxt_re0:1", to_retransmits=3)]
SENT = 100_000


def tcp(segments: int, again: int, twice: int | None = None) -> list[Fact]:
    arrived = {} if twice is None else {"tcp_segments_arrived_twice": twice}
    return both("n0", tcp_segments=segments, tcp_segments_again=again, **arrived)


COUNTERS = [("gpu_faults", FAIL, "ecc_uncorrected"), ("gpu_corrected", WARN, "pcie_replays")]
COUNTERS += [("node_faults", FAIL, "link_downed"), ("node_corrected", WARN, "symbol_error")]
ROWS: list[tuple[str, Outcome, str, Iterable[Fact]]] = [
    # an old count is none
    ("gpu_faults", PASS, "0 (3 counters; no GPU of this node counts remap_failed, rows_remapped_uncorrectable)", OLD),
    *((gate, PASS, "0", gpu(counter, 5, 5)) for gate, _, counter in COUNTERS[1:]),
    *((gate, miss, f"2 ({counter} on GPU-a went from 5 to 7)", gpu(counter, 5, 7)) for gate, miss, counter in COUNTERS),
    # a counter at its end could not rise
    ("node_faults", OPEN, "link_downed on GPU-a stands at its end, 255", gpu("link_downed", 255, 255)),
    ("node_faults", FAIL, "1 (link_downed on GPU-a went from 254 to 255)", gpu("link_downed", 254, 255)),
    ("node_corrected", OPEN, "symbol_error on GPU-a stands at its end, 65535", gpu("symbol_error", 65535, 65535)),
    # what is gone after the load
    ("gpu_faults", FAIL, "1 (gpus fell from 8 to 7)", LOST),
    ("gpu_faults", FAIL, "1 (gpus fell from 8 to 7: no answer from GPU-b)", [*LOST, *ERRORS, NO_ANSWER]),
    ("gpu_faults", FAIL, "", gpu("nvlinks", 18, 17)),
    ("node_faults", FAIL, "1 (rdma_ports fell from 1000 to 999)", both("n0", rdma_ports=-1) + NO_ERROR),
    # a counter that was reset counts once
    ("gpu_faults", FAIL, "1 (ecc_uncorrected on GPU-a went from 1000 to 100)", RESET),
    # no counter is no health
    ("gpu_faults", OPEN, "not read", gpu("ecc_uncorrected", 0, None)),
    ("gpu_faults", OPEN, "was not read after the load", gpu("ecc_uncorrected", 0, None)[:-1]),
    ("gpu_faults", OPEN, "", rose("n0", gpus=(8, 8))),
    ("gpu_corrected", OPEN, "", rose("n0", gpus=(8, 8))),
    # one of two never says it, or answers at neither time
    ("gpu_faults", OPEN, "was not read on GPU-b", UNEVEN),
    ("gpu_corrected", OPEN, "was not read on GPU-a", UNEVEN),
    ("gpu_faults", OPEN, "no answer from gpu1: GPU is lost", gpu("ecc_uncorrected", 5, 5) + SILENT),
    ("gpu_corrected", OPEN, "no answer from gpu1: GPU is lost", gpu("pcie_replays", 5, 5) + SILENT),
    ("node_faults", OPEN, "this node lists no such counter", [("probe.counters.finished", "n0", True)]),
    ("node_faults", OPEN, "", ABSENT),
    ("node_faults", OPEN, "", [*ABSENT[:1], *both("n0", rdma_ports=0)]),
    # the kernel log
    ("kernel_log", PASS, "", LOG),
    ("kernel_log", FAIL, "1 (Xid 79 on PCI:2: reboot the node)", [*LOG, ("load.counter.after.xid_79", "n0/PCI:2", 1)]),
    ("kernel_log", PASS, "", [*rose("n0", xid=(1, 2)), ("load.counter.after.xid_31", "n0/PCI:2", 4)]),
    ("kernel_log", OPEN, "the kernel log was read only once; NVML's events were not watched", READ_ONCE),
    ("kernel_log", OPEN, "not found out: not read; NVML's events were not watched", THEN_CLOSED),
    # what was sent again
    ("tcp_sent_again", PASS, "", tcp(1_000_000, 900)),
    ("tcp_sent_again", WARN, "0.03 (30000 of 1000000)", tcp(1_000_000, 30_000)),
    ("tcp_sent_again", PASS, "0.001 (1800 of 100000, of which 1700 had arrived before)", tcp(SENT, 1800, 1700)),
    ("tcp_sent_again", WARN, "", tcp(SENT, 14_000, 1700)),
    ("tcp_sent_again", PASS, "", tcp(SENT, 10, 12)),  # reported late
    ("tcp_sent_again", PASS, "0.0003 (3 of 40)", tcp(40, 3)),
    ("rdma_sent_again", PASS, "", PORTS),
    ("rdma_sent_again", WARN, "0.003 (3000 of 1000000 on mlx5_1:1)", PORTS + BAD_PORT),
    ("rdma_sent_again", PASS, "", ROUTED),
    ("rdma_sent_again", PASS, "0 (it has no such device)", rose("n0", rdma_ports=(0, 0))),
    ("rdma_sent_again", OPEN, "", rose("n0", rdma_ports=(0, 0))[:1]),
    ("rdma_sent_again", OPEN, "", []),
    ("rdma_sent_again", PASS, "5e-06 (5 of 1000000 on mlx5_0:1; bnxt_re0:1 does not count it)", MANAGEMENT),
    ("rdma_sent_again", OPEN, "mlx5_0:1 does not count what it sends again", both(MLX, port_xmit_packets=9)),
    ("rdma_sent_again", OPEN, "mlx5_0:1 does not count what it sends", both(MLX, packet_seq_err=9)),
    ("rdma_sent_again", OPEN, "port_xmit_packets on mlx5_0:1: not read", both(MLX, port_xmit_packets=None)),
    ("rdma_sent_again", OPEN, "port_xmit_packets on mlx5_0:1 was reset under load", both(MLX, port_xmit_packets=-9)),
    ("rdma_sent_again", OPEN, "this node lists no such counter", both("n0", rdma_ports=0)),
]


@shows_failing(*failing(ROWS, "load."))
@for_each(*ROWS)
def test_what_counters_of_a_node_say(gate, outcome, says, facts):
    verdict = judged(facts, "nccl_scaling", TWO)[f"load.{gate} n0"]
    check(verdict, outcome, says)
    assert not (gate == "kernel_log" and outcome is OPEN and judge.stops(verdict))


def test_what_a_virtual_machine_cannot_see_is_said_and_the_rest_is_judged():
    """EFA has no link_downed, and its machines no memory controller: each node of each phase was incomplete."""
    words = "a virtual machine sees no memory controller"
    facts = [*both("n0", rdma_ports=0), *both("n1", rdma_ports=-1)]
    hidden = [(*fact, words) for node in TWO for fact in rose(node, ue_count=("absent", "absent"))]
    by_gate = judged([*facts, *hidden], "nccl_scaling", TWO)
    assert in_words(by_gate["load.node_faults n0"]) == (PASS, f"0 (1 counter; no ue_count: {words})")
    assert by_gate["load.node_faults n1"].outcome is FAIL


# ---- what NVML's events say of a node whose users may not read the kernel log


def watched(before: int, xids: int, after: int) -> list[Fact]:
    """Events were watched; when the probes of n0 closed their evidence, in seconds."""
    closed = {"counters-before": before, "xids": xids, "counters-after": after}
    at = {name: ["run", f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"] for name, second in closed.items()}
    return [*EVENTS, *(("probe.stamp", "n0", stamp, None, f"raw/{name}.jsonl:9") for name, stamp in at.items())]


EVENTS: list[Fact] = [("load.event.gpus", "n0", 8), ("load.event.seconds", "n0", 63.4)]
WATCHED = watched(0, 64, 66)
ALL_WATCHED = "0 (not read; NVML's events of 8 GPUs were watched for 63 s)"
NOT_READ = "not found out: not read; NVML's events were"
LOST_GPU: Fact = ("load.event.xid_79", "n0/GPU-a", True)
XID_145: Fact = ("load.event.xid_145", "n0/GPU-a", True)
OF_145 = "not found out: not read; Xid 145 on GPU-a: what it asks for stands in the log alone"


@for_each(
    (PASS, ALL_WATCHED, WATCHED),
    (PASS, ALL_WATCHED, watched(0, 104, 170)),  # the load waited 40 s for it
    (PASS, ALL_WATCHED, [*WATCHED, ("load.event.xid_31", "n0/GPU-a", True)]),
    (FAIL, "1 (Xid 79 on GPU-a: reboot the node)", [*WATCHED, LOST_GPU]),
    (FAIL, "1 (Xid 79 on GPU-a: reboot the node)", [*WATCHED[:1], LOST_GPU]),
    (OPEN, f"{NOT_READ} not watched", []),
    (OPEN, f"{NOT_READ} not watched to the end", WATCHED[:1]),
    (OPEN, "not found out: not read; when NVML's events were watched is not known", EVENTS),
    (OPEN, f"{NOT_READ} watched from 117 s after the load could begin", watched(0, 180, 182)),
    (OPEN, f"{NOT_READ} watched until 176 s before its end", watched(0, 64, 240)),
    (OPEN, "not found out: not read; not read", [("load.event.gpus", "n0", None)]),
    (OPEN, "not found out: not read; gpu3: not read", [*WATCHED, ("load.event.watched", "n0/gpu3", None)]),
    (OPEN, OF_145, [*WATCHED, XID_145]),
)
def test_events_stand_in_for_a_log_that_is_closed(outcome, says, events):
    closed = judged([*rose("n0", xid=(None, None)), *events], "nccl_scaling", TWO)
    assert in_words(closed["load.kernel_log n0"]) == (outcome, says)
    assert judged([*rose("n0", xid=(1, 1)), LOST_GPU], "nccl_scaling", TWO)["load.kernel_log n0"].outcome is PASS


# ---- the probe, on made-up files of a node with one port of a ConnectX

SNMP = (
    "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
    "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs "
    "OutSegs RetransSegs InErrs OutRsts InCsumErrors\n"
    "Tcp: 1 200 120000 -1 1021 33 12 4 9 8123456 9123456 12 0 87 0\n"
    "Udp: InDatagrams NoPorts\nUdp: 11 0"
)
NETSTAT = "TcpExt: DelayedACKLost TCPDSACKRecv TCPDSACKRecvSegs\nTcpExt: 19 34 1039\n"
NETSTAT += "IpExt: InNoRoutes InOctets\nIpExt: 0 99"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    counted = {"counters": (*probe.RDMA, *probe.PACKETS), "hw_counters": probe.HARDWARE[:4]}
    port = {f"ib/mlx5_0/ports/1/{folder}/{name}": "7" for folder, names in counted.items() for name in names}
    tree(tmp_path, {**port, "snmp": SNMP, "netstat": NETSTAT})
    for name, place in {"HCAS": "ib", "SNMP": "snmp", "NETSTAT": "netstat", "EDAC": "none", "NET": "net"}.items():
        monkeypatch.setattr(probe, name, tmp_path / place)
    monkeypatch.setattr(probe, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path


def counted(*questions) -> dict[tuple[str, str], Value | None]:
    def ask(facts: object) -> None:
        for question in questions or (probe.of_rdma, probe.of_tcp):
            question(probe.Counters(facts, "before"))

    facts = [fact for fact in told_by(ask).observations if fact.quantity.startswith("load.")]
    return {(fact.quantity.removeprefix("load.counter.before."), fact.subject): fact.value for fact in facts}


@shows_failing("load.tcp_sent_again.uneven")
@for_each(
    ((2_700, 3_200, 15), "n2", "what reaches it is lost"),  # measured: 1 of 100 packets to n2 is lost
    ((15, 9, 900), "n2", "what leaves it, or what reaches a node to which it sends, is lost"),
    ((2_700, 3_200, 2_900), "", ""),  # a busy network
    ((900, 15, 900), "n1", "what reaches it is lost"),
    ((30, 0, 0), "", ""),  # healthy nodes here
    ((0, 0, 60), "", ""),  # an interface that carries little: 60 of 10,000 are chance
)
def test_a_node_stands_out_by_what_is_sent_again_to_it_as_by_what_it_sends(again, odd, says):
    nodes = ("n0", "n1", "n2")
    facts = []
    for node, count in zip(nodes, again, strict=True):
        facts += both(node, tcp_segments=9_000 if count == 60 else 10**6, tcp_segments_again=count)
    by_gate = judged(facts, "nccl_scaling", nodes)
    for node in nodes:
        check(by_gate[f"load.tcp_sent_again.uneven {node}"], *((WARN, says) if node == odd else (PASS,)))
    check(judged(facts[2:], "nccl_scaling", nodes)["load.tcp_sent_again.uneven n0"], OPEN)


def test_the_probe_reads_ports_and_what_tcp_sent_again(node, monkeypatch):
    seen = counted()
    assert seen["rdma_ports", "n0"] == 1
    assert seen["packet_seq_err", MLX] == seen["port_xmit_packets", MLX] == 7
    assert (seen["tcp_segments", "n0"], seen["tcp_segments_again", "n0"]) == (9123456, 12)
    assert seen["tcp_segments_arrived_twice", "n0"] == 1039
    assert ("out_of_sequence", MLX) not in seen  # this port has not got it
    tree(node, {"netstat": NETSTAT.replace("TCPDSACKRecvSegs", "TCPOther")})  # an old kernel counts reports
    assert counted()["tcp_segments_arrived_twice", "n0"] == 34
    tree(node, {"netstat": "TcpExt: SyncookiesSent\nTcpExt: 0"})
    assert ("tcp_segments_arrived_twice", "n0") not in counted()
    tree(node, {"ib/mlx5_0/ports/1/counters/link_downed": "unknown"})
    assert counted()["link_downed", MLX] is None
    tree(node, {"ib/mlx5_0/ports/1/counters/link_downed": "N/A (no PMA)"})  # older kernels, where none is counted
    assert ("link_downed", MLX) not in counted()
    monkeypatch.setattr(probe, "HCAS", node / "nothing")
    assert counted()["rdma_ports", "n0"] == 0


def test_a_port_in_software_counts_under_names_of_its_own_and_no_switch_marks_or_pauses_it(node, monkeypatch):
    """Soft-RoCE of two machines under QEMU: five checks were incomplete."""
    soft = {"hw_counters/sent_pkts": "142142", "hw_counters/completer_retry_err": "679", "link_layer": "Ethernet"}
    tree(node, {f"soft/rxe0/ports/1/{name}": text for name, text in soft.items()})
    monkeypatch.setattr(probe, "HCAS", node / "soft")
    seen = counted(probe.of_rdma, probe.of_roce)
    port = "n0/rxe0:1"
    assert (seen["port_xmit_packets", port], seen["completer_retry_err", port]) == (142142, 679)
    assert seen["roce_ports", "n0"] == 0
    facts = both(port, port_xmit_packets=142142, completer_retry_err=679) + rose("n0", roce_ports=(0, 0))
    by_gate = judged(facts, "nccl_scaling", TWO)
    check(by_gate["load.rdma_sent_again n0"], WARN, "679 of 142142 on rxe0:1")
    check(by_gate["load.roce.paused n0"], PASS, "it has no such device")


def test_what_all_cpus_of_a_package_show_is_counted_once(node, monkeypatch):
    monkeypatch.setattr(probe, "CPUS", node)
    assert counted(probe.of_cpus) == {}
    places = [(cpu, package) for package in (0, 1) for cpu in (2 * package, 2 * package + 1)]
    tree(node, {f"cpu{cpu}/thermal_throttle/package_throttle_count": str(7 - 3 * package) for cpu, package in places})
    assert counted(probe.of_cpus)["package_throttle_count", "n0"] == 11
    tree(node, {f"cpu{cpu}/thermal_throttle/package_throttle_count": "7" for cpu, _ in places})
    tree(node, {f"cpu{cpu}/topology/physical_package_id": str(package) for cpu, package in places})
    assert counted(probe.of_cpus)["package_throttle_count", "n0"] == 14


def test_a_virtual_machine_sees_no_memory_controller_and_of_cards_those_of_hardware_count_or_all(node):
    for flags, value in (("fpu vme hypervisor sse", "absent"), ("fpu vme sse", None)):
        tree(node, {"cpuinfo": f"processor\t: 0\nflags\t\t: {flags}"})
        assert counted(probe.of_memory).get(("ue_count", "n0")) == value
    tree(node / "net", {f"{card}/statistics/rx_errors": "0" for card in ("eth0", "docker0", "lo")})
    assert {card for name, card in counted(probe.of_cards) if name == "rx_errors"} == {"n0/eth0", "n0/docker0"}
    (node / "net/eth0/device").mkdir()
    assert {card for name, card in counted(probe.of_cards) if name == "rx_errors"} == {"n0/eth0"}


# ---- counters.sh, with a srun of the test's own


def script(tmp_path: Path, srun: str, calls: str, nodes: int) -> subprocess.CompletedProcess[str]:
    (tmp_path / "raw").mkdir()
    program(tmp_path / "srun", srun)
    text = f"""set -euo pipefail
        source infrastructure-validation/scripts/job.sh
        SRUN_SITE=(--account=lab) RUN_DIR={tmp_path} SLURM_JOB_NUM_NODES={nodes} PATH={tmp_path}:$PATH
        source infrastructure-validation/scripts/counters.sh
        {calls}"""
    return subprocess.run(["bash", "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)


def test_all_nodes_are_read_in_one_step_and_one_that_fails_ends_nothing_and_keeps_what_was_said(tmp_path):
    done = script(tmp_path, 'echo "$*"; echo why >&2; exit 9', "read_counters after 8; echo went on", 512)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
    (line,) = (tmp_path / "raw/counters-after.jsonl").read_text().splitlines()
    for option in ("--nodes=512", "--ntasks=512", "--ntasks-per-node=1", "--gpus-per-node=8", "--account=lab"):
        assert option in line.split()
    assert (tmp_path / "raw/counters-after.err").read_text() == "why\n"


def test_xids_are_watched_from_before_the_load_until_after_it(tmp_path):
    """The watcher has begun on all nodes when the load begins, and ends with its standard input."""
    srun = f"""[[ $* == *xids.py* ]] || exit 0
        sleep 1; echo '"load.event.gpus" of n0'; echo '"load.event.gpus" of n1'
        cat >/dev/null; echo ended; [[ ! -e {tmp_path}/load ]] || echo after the load"""
    xids = f"{tmp_path}/raw/xids.jsonl"
    calls = f"read_counters before 8; cat {xids}; touch {tmp_path}/load; read_counters after 8; tail -n 2 {xids}"
    done = script(tmp_path, srun, calls, 2)
    begun = ['"load.event.gpus" of n0', '"load.event.gpus" of n1']
    assert (done.returncode, done.stdout.splitlines()) == (0, [*begun, "ended", "after the load"]), done.stderr


@for_each(*SCRIPTS, ids=lambda path: path.stem)
def test_every_load_stands_between_two_readings(script):
    text, calls = script.read_text(), ("read_counters before", "read_counters after")
    if script.parent.name == "slurm":
        assert text.rstrip().splitlines()[-1].startswith("source training/slurm/_train.sh ")
        text, calls = (script.parent / "_train.sh").read_text(), ("begin_attempt", "end_attempt")
    begin, end = (text.rindex(call) for call in calls)
    assert begin < end
    assert "counters.sh" in text[:begin]


# ---- what is slow between nodes names the node that sends its data again; a pair's one number cannot tell which it is

BUSBW, LINK, SLOWEST = "nccl.all_reduce.busbw", "nccl.pair.link", "nccl.pair.slowest"
LOOK = "n2 sent {} of its data again (load.tcp_sent_again): look at what it sends first"


@for_each(
    # the verdict named the direction n0->n2 alone, while n2 sent a fifth of its segments again
    ([(SLOWEST, "job"), (LINK, "n0--n2")], {"n2": 0.218, "n0": 0.0}, [LOOK.format("21.8%")] * 2),
    ([(BUSBW, "3-nodes")], {"n0": 0.03, "n2": 0.2}, [LOOK.format("20.0%")]),  # who sends most of it again
    # inside one node nothing goes over the network, and two nodes are the first two
    ([(BUSBW, scale) for scale in ("1-gpu", "1-node", "2-nodes")], {"n0": 0.0, "n3": 0.2}, [None] * 3),
    ([(BUSBW, "1-node")], {"n0": 0.2}, [None]),
    ([(LINK, "n0--n3")], {"n2": 0.2}, [None]),
    ([(SLOWEST, "job", PASS)], {"n2": 0.2}, [None]),
    ([(SLOWEST, "job")], {"n2": 0.0}, [None]),
)
def test_what_is_slow_names_the_node_that_sends_again(slow, again, causes):
    run = a_run("nccl_pairwise", ["n0", "n2", "n3"], plan={})
    verdicts = [a_verdict(gate, subject, *(how or [FAIL]), value=0.006) for gate, subject, *how in slow]
    verdicts = [verdict.model_copy(update={"unit": "GB/s"}) for verdict in verdicts]
    for node, share in again.items():
        verdicts.append(a_verdict("load.tcp_sent_again", node, WARN if share else PASS, value=share))
    blamed = blame(folder_of(*verdicts, run=run).verdicts, Seen(()), run).verdicts
    assert [v.outcome for v in blamed] == [v.outcome for v in verdicts], "no outcome changes"
    assert [v.cause for v in blamed if v.gate != "load.tcp_sent_again"] == causes
