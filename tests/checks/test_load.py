"""Counters before and after a load: what rose is named, an old count is not, and what was read once says nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import counters as probe
import pytest
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Value, Verdict
from factory import a_run
from loops import for_each
from probing import told_by
from showing import shows_failing

ROOT = Path(__file__).resolve().parents[2]
H100 = "h100-8x400g"
SCRIPTS = sorted(ROOT / phase.script for phase in PHASES.values() if phase.number > 2 or phase.stem == "node_sweep")
Fact = tuple[str, str, Value | None]


def verdicts(facts: Iterable[Fact], phase: str = "nccl_scaling") -> dict[str, Verdict]:
    """`gate subject` -> verdict, of a run of two nodes."""
    parsed = Parsed()
    for quantity, subject, value in facts:
        if quantity == "probe.stamp":
            assert isinstance(value, list)
            parsed.saw(quantity, subject, ["run", value[1]], "run and UTC", f"raw/{value[0]}.jsonl:9")
            continue
        parsed.saw(quantity, subject, value, "count", "raw/x.jsonl:1", "not read" if value is None else None)
    return judged_of(parsed, phase)


def judged_of(parsed: Parsed, phase: str = "nccl_scaling") -> dict[str, Verdict]:
    run = a_run(phase, ("n0", "n1"), profile=H100)
    parsed.add(derive(Seen(parsed.observations), run))
    judged = judge.judge(run, profile.load(H100), parsed)
    return {f"{verdict.gate} {verdict.subject}": verdict for verdict in judged.verdicts}


def outcome(facts: Iterable[Fact], which: str) -> tuple[Outcome, str]:
    """(outcome, what was observed; why nothing was, where it is incomplete)."""
    verdict = verdicts(facts)[which]
    return verdict.outcome, (verdict.cause or "") if verdict.outcome is Outcome.INCOMPLETE else verdict.observed


def stamps(before: int, xids: int, after: int) -> list[Fact]:
    """When the probes of n0 closed their evidence, in seconds."""
    closed = {"counters-before": before, "xids": xids, "counters-after": after}
    return [
        ("probe.stamp", "n0", [name, f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"])
        for name, second in closed.items()
    ]


def both(node: str, device: str = "", **rises: int | None) -> list[Fact]:
    """Counters that were at 1000 before the load. None: it was not read after it."""
    subject = f"{node}/{device}" if device else node
    return [
        fact
        for name, rise in rises.items()
        for fact in (
            (f"load.counter.before.{name}", subject, 1000),
            (f"load.counter.after.{name}", subject, None if rise is None else 1000 + rise),
        )
    ]


@for_each("phase", [stem for stem in PHASES if stem not in ("discovery", "smoke")])
def test_every_phase_with_a_load_asks_for_the_counters_of_every_node_of_it(phase: str) -> None:
    by_gate = verdicts([], phase)
    for gate in ("kernel_log", "gpu_faults", "gpu_corrected", "node_faults", "node_corrected"):
        for node in ("n0", "n1"):
            assert by_gate[f"load.{gate} {node}"].outcome is Outcome.INCOMPLETE
    assert ("load.tcp_sent_again n0" in by_gate) is (phase != "node_sweep")


@pytest.mark.parametrize("phase", ["smoke", "discovery"])
def test_a_phase_without_a_load_does_not_ask(phase: str) -> None:
    assert not [gate for gate in verdicts([], phase) if gate.startswith("load.")]


class TestCounters:
    @staticmethod
    def around(name: str, before: int | None, after: int | None, device: str = "n0/GPU-a") -> list[Fact]:
        node = device.partition("/")[0]
        return [
            ("load.counter.before.gpus", node, 8),
            ("load.counter.after.gpus", node, 8),
            (f"load.counter.before.{name}", device, before),
            (f"load.counter.after.{name}", device, after),
        ]

    @shows_failing("load.gpu_faults", "load.gpu_corrected", "load.node_faults", "load.node_corrected")
    def test_a_counter_that_rose_under_load_is_named_and_an_old_count_is_not(self) -> None:
        for gate, name, bad in (
            ("load.gpu_faults", "ecc_uncorrected", Outcome.FAIL),
            ("load.gpu_corrected", "pcie_replays", Outcome.WARN),
            ("load.node_faults", "link_downed", Outcome.FAIL),
            ("load.node_corrected", "symbol_error", Outcome.WARN),
        ):
            assert outcome(self.around(name, 5, 5), f"{gate} n0")[0] is Outcome.PASS
            assert outcome(self.around(name, 5, 7), f"{gate} n0") == (bad, f"2 ({name} on GPU-a went from 5 to 7)")

    def test_a_gpu_or_a_link_that_is_gone_after_the_load_is_a_fault(self) -> None:
        lost: list[Fact] = [("load.counter.before.gpus", "n0", 8), ("load.counter.after.gpus", "n0", 7)]
        assert outcome(lost, "load.gpu_faults n0") == (Outcome.FAIL, "1 (gpus fell from 8 to 7)")
        errors: list[Fact] = [
            ("load.counter.before.ecc_uncorrected", "n0/GPU-a", 0),
            ("load.counter.before.ecc_uncorrected", "n0/GPU-b", 0),
            ("load.counter.after.ecc_uncorrected", "n0/GPU-a", 0),
            ("load.counter.after.answers", "n0/gpu1", None),
        ]
        named = "1 (gpus fell from 8 to 7: no answer from GPU-b)"
        assert outcome([*lost, *errors], "load.gpu_faults n0") == (Outcome.FAIL, named)
        assert outcome(self.around("nvlinks", 18, 17), "load.gpu_faults n0")[0] is Outcome.FAIL

    def test_a_counter_that_was_read_once_says_nothing(self) -> None:
        facts = self.around("ecc_uncorrected", 0, None)
        assert outcome(facts, "load.gpu_faults n0")[0] is Outcome.INCOMPLETE
        once = [fact for fact in facts if ".after.ecc" not in fact[0]]
        assert "was not read after the load" in outcome(once, "load.gpu_faults n0")[1]

    def test_a_node_without_any_such_counter_is_not_healthy_by_that(self) -> None:
        facts: list[Fact] = [("probe.counters.finished", "n0", True)]
        assert outcome(facts, "load.node_faults n0") == (
            Outcome.INCOMPLETE,
            "not found out: this node lists no such counter",
        )

    def test_what_a_virtual_machine_cannot_see_is_said_and_the_rest_is_judged(self) -> None:
        """EFA has no link_downed, and its machines no memory controller: each node of each phase was incomplete."""
        words = ("a virtual machine sees no memory controller", "absent")
        facts = [*both("n0", rdma_ports=0), *both("n1", rdma_ports=-1)]
        parsed = Parsed()
        for quantity, subject, value in facts:
            parsed.saw(quantity, subject, value, "count", "raw/x.jsonl:1", None)
        for node in ("n0", "n1"):
            for moment in ("before", "after"):
                parsed.saw(f"load.counter.{moment}.ue_count", node, words[1], "count", "raw/x.jsonl:1", words[0])
        by_gate = judged_of(parsed)
        assert by_gate["load.node_faults n0"].outcome is Outcome.PASS
        assert by_gate["load.node_faults n0"].observed == f"0 (1 counters; no ue_count: {words[0]})"
        assert by_gate["load.node_faults n1"].outcome is Outcome.FAIL

    def test_a_node_of_which_all_is_absent_is_not_healthy_by_that(self) -> None:
        absent: list[Fact] = [(f"load.counter.{moment}.ue_count", "n0", "absent") for moment in ("before", "after")]
        assert outcome(absent, "load.node_faults n0")[0] is Outcome.INCOMPLETE
        assert outcome([*absent[:1], *both("n0", rdma_ports=0)], "load.node_faults n0")[0] is Outcome.INCOMPLETE

    def test_gpus_that_count_no_errors_are_not_healthy_by_that(self) -> None:
        facts: list[Fact] = [("load.counter.before.gpus", "n0", 8), ("load.counter.after.gpus", "n0", 8)]
        assert outcome(facts, "load.gpu_faults n0")[0] is Outcome.INCOMPLETE
        assert outcome(facts, "load.gpu_corrected n0")[0] is Outcome.INCOMPLETE

    @shows_failing("load.kernel_log")
    def test_an_xid_that_came_under_load_counts_and_an_old_one_does_not(self) -> None:
        log: list[Fact] = [("load.counter.before.xid", "n0", 1), ("load.counter.after.xid", "n0", 2)]
        old: list[Fact] = [
            ("load.counter.before.xid_79", "n0/PCI:1", 1),
            ("load.counter.after.xid_79", "n0/PCI:1", 1),
        ]
        assert outcome([*log, *old], "load.kernel_log n0")[0] is Outcome.PASS
        new: list[Fact] = [("load.counter.after.xid_79", "n0/PCI:2", 1)]
        assert outcome([*log, *old, *new], "load.kernel_log n0") == (
            Outcome.FAIL,
            "1 (Xid 79 on PCI:2: reboot the node)",
        )
        harmless: list[Fact] = [("load.counter.after.xid_31", "n0/PCI:2", 4)]
        assert outcome([*log, *harmless], "load.kernel_log n0")[0] is Outcome.PASS

    def test_a_log_that_cannot_be_read_stops_no_later_phase(self) -> None:
        verdict = verdicts([("load.counter.before.xid", "n0", None), ("load.counter.after.xid", "n0", None)])[
            "load.kernel_log n0"
        ]
        assert verdict.outcome is Outcome.INCOMPLETE
        assert not judge.stops(verdict)

    def test_a_log_that_was_read_once_is_compared_with_nothing(self) -> None:
        once: list[Fact] = [("load.counter.before.xid", "n0", 1), ("load.counter.before.xid_79", "n0/PCI:1", 1)]
        assert outcome(once, "load.kernel_log n0") == (
            Outcome.INCOMPLETE,
            "not found out: the kernel log was read only once; NVML's events were not watched",
        )
        closed: list[Fact] = [*once, ("load.counter.after.xid", "n0", None)]
        assert outcome(closed, "load.kernel_log n0") == (
            Outcome.INCOMPLETE,
            "not found out: not read; NVML's events were not watched",
        )

    def test_a_counter_that_was_reset_under_load_counts_once(self) -> None:
        facts = both("n0", "GPU-a", ecc_uncorrected=-900, gpus=0)
        assert outcome(facts, "load.gpu_faults n0") == (
            Outcome.FAIL,
            "1 (ecc_uncorrected on GPU-a went from 1000 to 100)",
        )


class TestClosedKernelLog:
    """What NVML's events say of a node whose users may not read the kernel log."""

    CLOSED: ClassVar[list[Fact]] = [(f"load.counter.{moment}.xid", "n0", None) for moment in ("before", "after")]
    EVENTS: ClassVar[list[Fact]] = [("load.event.gpus", "n0", 8), ("load.event.seconds", "n0", 63.4)]
    WATCHED: ClassVar[list[Fact]] = [*EVENTS, *stamps(before=0, xids=64, after=66)]
    GATE = "load.kernel_log n0"

    def test_nothing_that_came_while_all_gpus_were_watched_is_a_pass_that_says_so(self) -> None:
        watched = "0 (not read; NVML's events of 8 GPUs were watched for 63 s)"
        assert outcome([*self.CLOSED, *self.WATCHED], self.GATE) == (Outcome.PASS, watched)
        slow_to_start = [*self.EVENTS, *stamps(before=0, xids=104, after=170)]  # the load waited 40 s for it
        assert outcome([*self.CLOSED, *slow_to_start], self.GATE) == (Outcome.PASS, watched)
        harmless: Fact = ("load.event.xid_31", "n0/GPU-a", True)
        assert outcome([*self.CLOSED, *self.WATCHED, harmless], self.GATE) == (Outcome.PASS, watched)

    @for_each("watched", [WATCHED, WATCHED[:1]])
    def test_an_xid_that_asks_for_action_fails_also_where_the_watch_has_a_gap(self, watched: list[Fact]) -> None:
        lost: Fact = ("load.event.xid_79", "n0/GPU-a", True)
        failed = (Outcome.FAIL, "1 (Xid 79 on GPU-a: reboot the node)")
        assert outcome([*self.CLOSED, *watched, lost], self.GATE) == failed

    @for_each(
        ("events", "why"),
        [
            ([], "NVML's events were not watched"),
            (WATCHED[:1], "NVML's events were not watched to the end"),
            (EVENTS, "when NVML's events were watched is not known"),
            ([*EVENTS, *stamps(0, 180, 182)], "NVML's events were watched from 117 s after the load could begin"),
            ([*EVENTS, *stamps(0, 64, 240)], "NVML's events were watched until 176 s before its end"),
            ([("load.event.gpus", "n0", None)], "not read"),
            ([*WATCHED, ("load.event.watched", "n0/gpu3", None)], "gpu3: not read"),
            (
                [*WATCHED, ("load.event.xid_145", "n0/GPU-a", True)],
                "Xid 145 on GPU-a: what it asks for stands in the log alone",
            ),
        ],
    )
    def test_what_was_not_watched_is_not_healthy_by_that(self, events: list[Fact], why: str) -> None:
        assert outcome([*self.CLOSED, *events], self.GATE) == (Outcome.INCOMPLETE, f"not found out: not read; {why}")

    def test_a_log_that_can_be_read_has_the_word(self) -> None:
        log: list[Fact] = [("load.counter.before.xid", "n0", 1), ("load.counter.after.xid", "n0", 1)]
        event: Fact = ("load.event.xid_79", "n0/GPU-a", True)
        assert outcome([*log, event], self.GATE)[0] is Outcome.PASS


class TestSentAgain:
    @shows_failing("load.tcp_sent_again")
    def test_a_node_that_sent_many_segments_again_warns_and_the_others_do_not(self) -> None:
        facts = [
            *both("n0", tcp_segments=1_000_000, tcp_segments_again=900),
            *both("n1", tcp_segments=1_000_000, tcp_segments_again=30_000),
        ]
        assert outcome(facts, "load.tcp_sent_again n0")[0] is Outcome.PASS
        assert outcome(facts, "load.tcp_sent_again n1") == (Outcome.WARN, "0.03 (30000 of 1000000)")

    def test_segments_that_had_arrived_before_were_not_lost(self) -> None:
        late = both("n0", tcp_segments=100_000, tcp_segments_again=1_800, tcp_segments_arrived_twice=1_700)
        assert outcome(late, "load.tcp_sent_again n0") == (
            Outcome.PASS,
            "0.001 (1800 of 100000, of which 1700 had arrived before)",
        )
        lost = both("n0", tcp_segments=100_000, tcp_segments_again=14_000, tcp_segments_arrived_twice=1_700)
        assert outcome(lost, "load.tcp_sent_again n0")[0] is Outcome.WARN
        more = both("n0", tcp_segments=100_000, tcp_segments_again=10, tcp_segments_arrived_twice=12)  # reported late
        assert outcome(more, "load.tcp_sent_again n0")[0] is Outcome.PASS

    def test_a_few_of_few_are_no_share(self) -> None:
        facts = both("n0", tcp_segments=40, tcp_segments_again=3)
        assert outcome(facts, "load.tcp_sent_again n0") == (Outcome.PASS, "0.0003 (3 of 40)")

    @shows_failing("load.rdma_sent_again")
    def test_the_port_with_the_largest_share_counts_and_not_the_sum_of_all(self) -> None:
        sound = {"port_xmit_packets": 10**9, "packet_seq_err": 20, "local_ack_timeout_err": 0}
        facts = [
            *both("n0", rdma_ports=0),
            *both("n0", "mlx5_0:1", **sound),
            *both("n0", "mlx5_1:1", port_xmit_packets=10**6, packet_seq_err=1500, local_ack_timeout_err=1500),
        ]
        share_and_port = "0.003 (3000 of 1000000 on mlx5_1:1)"
        assert outcome(facts, "load.rdma_sent_again n0") == (Outcome.WARN, share_and_port)
        assert outcome(facts[:-6], "load.rdma_sent_again n0")[0] is Outcome.PASS

    def test_adaptive_routing_and_a_slow_receiver_are_not_loss(self) -> None:
        port = {"port_xmit_packets": 10**6, "packet_seq_err": 0, "out_of_sequence": 10**5, "rnr_nak_retry_err": 10**4}
        assert outcome(both("n0", "mlx5_0:1", **port), "load.rdma_sent_again n0")[0] is Outcome.PASS

    def test_a_node_without_an_rdma_port_has_sent_nothing_again_and_one_of_which_it_is_not_known_is_open(self) -> None:
        none: list[Fact] = [("load.counter.before.rdma_ports", "n0", 0), ("load.counter.after.rdma_ports", "n0", 0)]
        assert outcome(none, "load.rdma_sent_again n0") == (Outcome.PASS, "0 (it has no such device)")
        assert outcome(none[:1], "load.rdma_sent_again n0")[0] is Outcome.INCOMPLETE
        assert outcome([], "load.rdma_sent_again n0")[0] is Outcome.INCOMPLETE

    def test_a_management_nic_that_counts_one_half_is_left_out_and_named(self) -> None:
        """bnxt_re counts what it sent again and not what it sent."""
        facts = [
            *both("n0", "mlx5_0:1", port_xmit_packets=10**6, packet_seq_err=5),
            *both("n0", "bnxt_re0:1", to_retransmits=3),
        ]
        share = "5e-06 (5 of 1000000 on mlx5_0:1; bnxt_re0:1 does not count it)"
        assert outcome(facts, "load.rdma_sent_again n0") == (Outcome.PASS, share)

    @for_each(
        ("facts", "why"),
        [
            (both("n0", "mlx5_0:1", port_xmit_packets=9), "mlx5_0:1 does not count what it sends again"),
            (both("n0", "mlx5_0:1", packet_seq_err=9), "mlx5_0:1 does not count what it sends"),
            (both("n0", "mlx5_0:1", port_xmit_packets=None), "port_xmit_packets on mlx5_0:1: not read"),
            (both("n0", "mlx5_0:1", port_xmit_packets=-9), "port_xmit_packets on mlx5_0:1 was reset under load"),
            (both("n0", rdma_ports=0), "this node lists no such counter"),
        ],
    )
    def test_a_port_that_does_not_count_is_not_sound_by_that(self, facts: list[Fact], why: str) -> None:
        assert outcome(facts, "load.rdma_sent_again n0") == (Outcome.INCOMPLETE, f"not found out: {why}")

    def test_a_port_that_is_gone_is_a_fault(self) -> None:
        facts = [*both("n0", rdma_ports=-1), *both("n0", "mc0", ue_count=0)]
        assert outcome(facts, "load.node_faults n0") == (Outcome.FAIL, "1 (rdma_ports fell from 1000 to 999)")


class TestProbe:
    """On made-up files of a node with one port of a ConnectX, read before and after."""

    SNMP = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs "
        "OutSegs RetransSegs InErrs OutRsts InCsumErrors\n"
        "Tcp: 1 200 120000 -1 1021 33 12 4 9 8123456 9123456 {again} 0 87 0\n"
        "Udp: InDatagrams NoPorts\nUdp: 11 0\n"
    )

    @pytest.fixture
    def node(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        port = tmp_path / "ib/mlx5_0/ports/1"
        for folder, names in (("counters", (*probe.RDMA, *probe.PACKETS)), ("hw_counters", probe.HARDWARE[:4])):
            (port / folder).mkdir(parents=True)
            for name in names:
                (port / folder / name).write_text("7\n")
        (tmp_path / "snmp").write_text(self.SNMP.format(again=12))
        (tmp_path / "netstat").write_text(self.NETSTAT)
        monkeypatch.setattr(probe, "HCAS", tmp_path / "ib")
        monkeypatch.setattr(probe, "SNMP", tmp_path / "snmp")
        monkeypatch.setattr(probe, "NETSTAT", tmp_path / "netstat")
        return tmp_path

    NETSTAT = (
        "TcpExt: DelayedACKLost TCPDSACKRecv TCPDSACKRecvSegs\nTcpExt: 19 34 1039\n"
        "IpExt: InNoRoutes InOctets\nIpExt: 0 99\n"
    )

    @staticmethod
    def counted_at(moment: str) -> dict[tuple[str, str], Value | None]:
        def ask(facts: object) -> None:
            counters = probe.Counters(facts, moment)
            probe.of_rdma(counters)
            probe.of_tcp(counters)

        return {
            (fact.quantity.removeprefix(f"load.counter.{moment}."), fact.subject): fact.value
            for fact in told_by(ask).observations
            if fact.quantity.startswith("load.")
        }

    def test_it_reads_ports_and_what_tcp_sent_again(self, node: Path) -> None:
        counted = self.counted_at("before")
        assert counted["rdma_ports", "n0"] == 1
        assert counted["packet_seq_err", "n0/mlx5_0:1"] == counted["port_xmit_packets", "n0/mlx5_0:1"] == 7
        assert (counted["tcp_segments", "n0"], counted["tcp_segments_again", "n0"]) == (9123456, 12)
        assert counted["tcp_segments_arrived_twice", "n0"] == 1039
        assert ("out_of_sequence", "n0/mlx5_0:1") not in counted  # this port has not got it

    def test_an_old_kernel_counts_reports_of_double_arrival_and_an_older_one_nothing(self, node: Path) -> None:
        (node / "netstat").write_text(self.NETSTAT.replace("TCPDSACKRecvSegs", "TCPOther"))
        assert self.counted_at("before")["tcp_segments_arrived_twice", "n0"] == 34
        (node / "netstat").write_text("TcpExt: SyncookiesSent\nTcpExt: 0\n")
        assert ("tcp_segments_arrived_twice", "n0") not in self.counted_at("before")

    def test_a_counter_that_says_no_number_is_unknown(self, node: Path) -> None:
        (node / "ib/mlx5_0/ports/1/counters/link_downed").write_text("N/A (no PMA)\n")
        assert self.counted_at("after")["link_downed", "n0/mlx5_0:1"] is None

    def test_a_virtual_machine_says_that_it_sees_no_memory_controller(
        self, node: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probe, "EDAC", node / "nothing")
        monkeypatch.setattr(probe, "CPUINFO", node / "cpuinfo")
        for flags, value in (("fpu vme hypervisor sse", "absent"), ("fpu vme sse", None)):
            (node / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
            observations = told_by(lambda facts: probe.of_memory(probe.Counters(facts, "before"))).observations
            counted = {fact.quantity: fact.value for fact in observations}
            assert counted.get("load.counter.before.ue_count") == value

    def test_cards_of_hardware_count_and_in_a_container_all_do(
        self, node: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probe, "NET", node / "net")
        for card in ("eth0", "docker0", "lo"):
            (node / "net" / card / "statistics").mkdir(parents=True)
            (node / "net" / card / "statistics/rx_errors").write_text("0\n")

        def cards() -> set[str]:
            observations = told_by(lambda facts: probe.of_cards(probe.Counters(facts, "before"))).observations
            return {fact.subject for fact in observations if fact.quantity == "load.counter.before.rx_errors"}

        assert cards() == {"n0/eth0", "n0/docker0"}
        (node / "net/eth0/device").mkdir()
        assert cards() == {"n0/eth0"}

    def test_a_node_without_ports_says_that_it_has_none(self, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "HCAS", node / "nothing")
        assert self.counted_at("before")["rdma_ports", "n0"] == 0


class TestScript:
    """counters.sh, with a srun of the test's own."""

    @staticmethod
    def read(tmp_path: Path, srun: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "raw").mkdir()
        (tmp_path / "srun").write_text(f"#!/bin/bash\n{srun}\n")
        (tmp_path / "srun").chmod(0o755)
        script = f"""set -euo pipefail
            SRUN_SITE=(--account=lab) RUN_DIR={tmp_path} SLURM_JOB_NUM_NODES=512 PATH={tmp_path}:$PATH
            source infrastructure-validation/scripts/counters.sh
            read_counters after 8
            echo went on"""
        return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    def test_all_nodes_are_read_in_one_step(self, tmp_path: Path) -> None:
        done = self.read(tmp_path, 'echo "$*"')
        assert (done.returncode, done.stdout) == (0, "went on\n")
        (line,) = (tmp_path / "raw/counters-after.jsonl").read_text().splitlines()
        for option in ("--nodes=512", "--ntasks=512", "--ntasks-per-node=1", "--gpus-per-node=8", "--account=lab"):
            assert option in line.split()

    def test_a_step_that_fails_ends_nothing_and_keeps_what_was_said(self, tmp_path: Path) -> None:
        done = self.read(tmp_path, "echo a fact; echo why >&2; exit 9")
        assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
        assert (tmp_path / "raw/counters-after.jsonl").read_text() == "a fact\n"
        assert (tmp_path / "raw/counters-after.err").read_text() == "why\n"

    def test_xids_are_watched_from_before_the_load_until_after_it(self, tmp_path: Path) -> None:
        """The watcher has begun on all nodes when the load begins, and ends with its standard input."""
        srun = f"""[[ $* == *xids.py* ]] || exit 0
            sleep 1; echo '"load.event.gpus" of n0'; echo '"load.event.gpus" of n1'
            cat >/dev/null; echo ended; [[ ! -e {tmp_path}/load ]] || echo after the load"""
        (tmp_path / "raw").mkdir()
        (tmp_path / "srun").write_text(f"#!/bin/bash\n{srun}\n")
        (tmp_path / "srun").chmod(0o755)
        script = f"""set -euo pipefail
            source infrastructure-validation/scripts/job.sh
            SRUN_SITE=() RUN_DIR={tmp_path} SLURM_JOB_NUM_NODES=2 PATH={tmp_path}:$PATH
            source infrastructure-validation/scripts/counters.sh
            read_counters before 8
            cat {tmp_path}/raw/xids.jsonl
            touch {tmp_path}/load
            read_counters after 8
            tail -n 2 {tmp_path}/raw/xids.jsonl"""
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
        begun = ['"load.event.gpus" of n0', '"load.event.gpus" of n1']
        assert (done.returncode, done.stdout.splitlines()) == (0, [*begun, "ended", "after the load"]), done.stderr

    @for_each("script", SCRIPTS, ids=lambda path: path.stem)
    def test_every_load_stands_between_two_readings(self, script: Path) -> None:
        text = script.read_text()
        if script.parent.name == "slurm":
            assert text.rstrip().splitlines()[-1].startswith("source training/slurm/_train.sh ")
            text = (script.parent / "_train.sh").read_text()
        calls = (
            ("begin_attempt", "end_attempt")
            if script.parent.name == "slurm"
            else ("read_counters before", "read_counters after")
        )
        begin, end = (text.rindex(call) for call in calls)
        assert begin < end
        assert "counters.sh" in text[:begin]
