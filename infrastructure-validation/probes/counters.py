#!/usr/bin/env python3
"""Counters of this node, to be read before and after a load: a fault that the load brought out shows there.

GPUs through NVML, ports of RDMA devices and network cards from sysfs, memory controllers from sysfs (EDAC), throttled
CPUs, Xids in the kernel log, and what was sent again (TCP, RDMA). A counter that cannot be read is unknown, with the
reason; one that this node lacks is not listed. What a virtual machine cannot see is absent.
Run: srun --label --ntasks-per-node=1 --gpus-per-node=8 python3 counters.py before|after
"""

import subprocess
import sys
from pathlib import Path

import nvml
import roce
from fabric import NO_PMA, interface
from fabric import roce as ports_over_ethernet
from facts import Facts, read
from kernel_log import events, read_log
from machine import is_virtual
from patience import NoAnswer, seconds, within

HCAS = Path("/sys/class/infiniband")
NET = Path("/sys/class/net")
EDAC = Path("/sys/devices/system/edac/mc")
CPUS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
SNMP = Path("/proc/net/snmp")
NETSTAT = Path("/proc/net/netstat")
RDMA = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors")
RDMA += ("port_xmit_wait", "port_xmit_discards")  # without credits of the other side, and thrown away: not judged
PACKETS = ("port_xmit_packets", "port_rcv_packets")
INSTEAD = {"tx_pkts": PACKETS[0], "rx_pkts": PACKETS[1]}  # an older bnxt_re has no folder counters
INSTEAD.update(sent_pkts=PACKETS[0], rcvd_pkts=PACKETS[1])  # nor has rxe
# of a port, what it sent again and why, and what failed: hw/mlx5/counters.c, hw/bnxt_re/hw_counters.c and
# sw/rxe/rxe_hw_counters.c of Linux
HARDWARE = (
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "req_cqe_error",
    "resp_cqe_error",
    "roce_slow_restart_cnps",
    "completer_retry_err",
)
# of a port over Ethernet: packets that a switch marked, and answers to marks, which slow the sender; packets for which
# no buffer was posted. Names of mlx5/counters.c; bnxt_re/hw_counters.c took them over, and had the second ones before
ROCE = ("np_ecn_marked_roce_packets", "rp_cnp_handled", "np_cnp_sent", "out_of_buffer")
ROCE += ("rx_ecn_marked_pkts", "rx_cnp_pkts", "tx_cnp_pkts", "rx_out_of_buffer")
TCP = {"OutSegs": "tcp_segments", "RetransSegs": "tcp_segments_again"}  # RFC 4022: the first leaves the second out
CARD = ("rx_errors", "tx_errors", "rx_crc_errors")  # a dropped frame is not an error of the link


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("before", "after"):
        sys.exit("usage: counters.py before|after")
    facts = Facts("counters")
    counters = Counters(facts, sys.argv[1])
    for question, counter in QUESTIONS:
        try:
            question(counters)
        except Exception as error:  # noqa: BLE001  # one question must not hide the answers to the others
            counters.unknown(counter, f"{type(error).__name__}: {error}")
    facts.finish()


class Counters:
    """One fact for each counter of each device: load.counter.MOMENT.NAME."""

    def __init__(self, facts, moment):
        self.facts, self.moment = facts, moment

    def saw(self, name, value, device=None):
        self.facts.saw(f"load.counter.{self.moment}.{name}", value, "count", self._subject(device))

    def unknown(self, name, why, device=None):
        self.facts.unknown(f"load.counter.{self.moment}.{name}", "count", why, self._subject(device))

    def absent(self, name, why):
        self.facts.saw(f"load.counter.{self.moment}.{name}", "absent", "count", remark=why)

    def _subject(self, device):
        return f"{self.facts.at}/{device}" if device else self.facts.at

    def files(self, paths, device, names=None):
        """names: of a file -> of its counter, where they differ."""
        for path in paths:
            if path.is_file():
                text, name = path.read_text().strip(), (names or {}).get(path.name, path.name)
                if text.isdigit():
                    self.saw(name, int(text), device)
                elif text != NO_PMA:
                    self.unknown(name, f"{path} says {text[:40]!r}", device)


def of_kernel_log(counters):
    try:
        records, _ = read_log()
    except (OSError, subprocess.SubprocessError) as error:
        counters.unknown("xid", f"the kernel log cannot be read: {getattr(error, 'strerror', None) or error}")
        return
    counts, _, _ = events(records)
    counters.saw("xid", sum(counts.values()))
    for (device, event), count in sorted(counts.items()):
        counters.saw(event, count, device or None)


def of_gpus(counters):
    library, why_not = nvml.library()
    if library is None:
        counters.unknown("gpus", why_not)
        return
    answered = 0
    for index, gpu, error in nvml.each_gpu(library):
        hung = error if gpu is None else of_gpu(counters, library, *gpu)
        if hung is None:
            answered += 1
        else:
            counters.unknown("answers", f"NVML: {hung}", f"gpu{index}")
    counters.saw("gpus", answered)


def of_gpu(counters, library, gpu, uuid):
    """None, or NoAnswer when it hung."""
    for name, question in nvml.COUNTERS:
        try:
            counters.saw(name, within(seconds(), lambda ask=question: ask(library, gpu)), uuid)
        except NoAnswer as error:
            return error
        except (library.NVMLError_NotSupported, nvml.NothingToAsk):
            continue  # this model does not count it
        except (library.NVMLError, AttributeError) as error:  # AttributeError: a pynvml older than the question
            counters.unknown(name, f"NVML: {error}", uuid)
    return None


def of_rdma(counters):
    ports = sorted(HCAS.glob("*/ports/*")) if HCAS.is_dir() else []
    counters.saw("rdma_ports", len(ports))
    for port in ports:
        paths = [port / "counters" / name for name in RDMA + PACKETS]
        paths += [port / "hw_counters" / name for name in HARDWARE]
        if read(port / "counters" / PACKETS[0]) in (None, NO_PMA):
            paths += [port / "hw_counters" / name for name in INSTEAD]
        counters.files(paths, f"{port.parent.parent.name}:{port.name}", INSTEAD)


def of_roce(counters):
    ports = ports_over_ethernet(HCAS) if HCAS.is_dir() else []
    ports = [port for port in ports if (port.parent.parent / "device").exists()]  # in software there is no PFC and ECN
    counters.saw("roce_ports", len(ports))
    for port in ports:
        device, path = f"{port.parent.parent.name}:{port.name}", interface(port)
        counters.files([port / "hw_counters" / name for name in ROCE], device)
        try:
            known = roce.counted(path) if path else {}
        except roce.NoAnswer as error:
            for name in ("rx_pause", roce.DISCARDS[0]):
                counters.unknown(name, str(error), device)
            continue
        for name, count in known.items():
            counters.saw(name, count, device)


def of_tcp(counters):
    """What was sent again, and how much of it the other side had already (RFC 2883): late or reordered, not lost."""
    table = table_of(SNMP, "Tcp:")
    for name, counter in TCP.items():
        counters.saw(counter, int(table[name]))
    table = table_of(NETSTAT, "TcpExt:")
    arrived = table.get("TCPDSACKRecvSegs", table.get("TCPDSACKRecv"))  # kernels before 5.10 count reports only
    if arrived is not None:
        counters.saw("tcp_segments_arrived_twice", int(arrived))


def table_of(path, title):
    """Numbers by name. The first line of that title has the names, the second one the numbers."""
    names, numbers = (line.split() for line in path.read_text().splitlines() if line.startswith(title))
    return dict(zip(names, numbers))


def of_cards(counters):
    """Hardware, not a bridge or a tunnel; where a node has none (a container), all but the loopback."""
    cards = [card for card in sorted(NET.iterdir()) if card.name != "lo"] if NET.is_dir() else []
    for card in [card for card in cards if (card / "device").exists()] or cards:
        counters.files([card / "statistics" / name for name in CARD], card.name)


def of_memory(counters):
    controllers = sorted(EDAC.glob("mc[0-9]*")) if EDAC.is_dir() else []
    for controller in controllers:
        counters.files([controller / "ce_count", controller / "ue_count"], controller.name)
    if not controllers and is_virtual(CPUINFO.read_text()):
        for name in ("ce_count", "ue_count"):
            counters.absent(name, "a virtual machine sees no memory controller")


def of_cpus(counters):
    """Each CPU shows the count of its package. Without topology/, equal counts are taken for one package's."""
    of_packages = {}
    for path in CPUS.glob("cpu[0-9]*/thermal_throttle/package_throttle_count"):
        places = (path.parent.parent / "topology" / name for name in ("physical_package_id", "die_id"))
        count = int(path.read_text())
        of_packages[tuple(place.read_text() for place in places if place.is_file()) or count] = count
    if of_packages:
        counters.saw("package_throttle_count", sum(of_packages.values()))


QUESTIONS = (  # and a counter of each, which is unknown when it ends early
    (of_kernel_log, "xid"),
    (of_gpus, "gpus"),
    (of_rdma, "rdma_ports"),
    (of_roce, "roce_ports"),
    (of_tcp, "tcp_segments"),
    (of_cards, "rx_errors"),
    (of_memory, "ue_count"),
    (of_cpus, "package_throttle_count"),
)


if __name__ == "__main__":
    main()
