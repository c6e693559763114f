"""Messages of drivers of GPUs and of network adapters: what the probe counts, and what of it asks for action."""

import json
import re

import kernel_log
import pytest
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.records import Outcome
from bringup.readers.known import xid
from bringup.readers.known.signatures import SIGNATURES
from loops import for_each
from probing import answers_of, told_by
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, in_words, judged, parsed_of
from showing import shows_failing

TIME = re.compile(r", last at \d{4}-\d\d-\d\dT[\d:]{8}Z")
QUIET = "6,0,0,-;Linux version 6.8.0\n"
GPU = "PCI:0000:c1:00"
OFF_THE_BUS = (
    "4,900,61000000,-;NVRM: The NVIDIA GPU 0000:c1:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0a"
    "NVRM: fallen off the bus and is not responding to commands."
)
NVRM = "4,9,6,-;NVRM: "
SWITCH = "3,9,6,-;nvidia-nvswitch"


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "kmsg"
    monkeypatch.setattr(kernel_log, "KMSG", str(path))
    monkeypatch.setattr(kernel_log, "JOURNAL", ("false",))
    return path


def journal(*messages: str) -> tuple[str, ...]:
    """A command that prints them as journalctl does."""
    entries = [json.dumps({"MESSAGE": text, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"}) for text in messages]
    return ("printf", "%s\\n", *entries)


def counted() -> dict[tuple[str, str], object]:
    """(subject, what of the kernel log) -> value, or why there is none."""
    facts = told_by(kernel_log.kernel_log).observations
    return {(f.subject, f.quantity.rpartition(".")[2]): f.why if f.value is None else f.value for f in facts}


def verdicts(parsed: Parsed) -> dict[str, tuple[Outcome, str]]:
    """xid and nonfatal -> outcome and what it shows, on the node whose log this is."""
    by_gate = judged(parsed, nodes=("n0",), profile_name="local-cpu")
    return {name: in_words(by_gate[f"discovery.kernel_log.{name} n0"]) for name in ("xid", "nonfatal")}


def read(log, *lines: str) -> dict[str, tuple[Outcome, str]]:
    log.write_text(QUIET + "".join(f"{line}\n" for line in lines))
    return verdicts(told_by(kernel_log.kernel_log))


def xid_line(number: int, words: str) -> str:
    return f"4,900,61000000,-;NVRM: Xid ({GPU}): {number}, {words}"


def action(before: str, after: str) -> str:
    return xid_line(154, f"GPU recovery action changed from {before} to {after}")


def test_xids_are_counted_by_gpu_and_number(log):
    log.write_text((FIXTURES / "kernel-log.txt").read_text())
    counts = counted()
    assert (counts[f"n0/{GPU}", "xid_79"], counts["n0/PCI:0000:65:00", "xid_13"]) == (2, 1)
    assert (counts["n0", "xids"], counts["n0", "records"]) == (3, 5)


@for_each(None, "")
def test_a_log_that_is_not_there_or_empty_is_unknown_and_not_clean(log, text):
    if text is not None:
        log.write_text(text)
    assert "the kernel log cannot be read" in str(counted()["n0", "xids"])
    assert {outcome for outcome, _ in verdicts(told_by(kernel_log.kernel_log)).values()} == {OPEN}


def test_the_journal_counts_only_when_it_holds_the_whole_boot_and_a_message_of_several_lines_is_one(log, monkeypatch):
    off_the_bus = OFF_THE_BUS.partition(";")[2].replace("\\x0a", "\n")
    entries = journal("Linux version 6", off_the_bus, "NVRM: Xid (PCI:0000:65:00): 13, x")
    monkeypatch.setattr(kernel_log, "JOURNAL", entries)
    counts = counted()
    fallen, xid_13 = counts[f"n0/{GPU}", "fallen_off_the_bus"], counts["n0/PCI:0000:65:00", "xid_13"]
    assert fallen == xid_13 == counts["n0", "xids"] == 1
    monkeypatch.setattr(kernel_log, "JOURNAL", ("printf", "-- No entries --\\n"))
    assert "cannot be read" in str(counted()["n0", "xids"])


def test_only_xids_that_ask_for_action_count_and_unknown_ones_warn():
    counts = {"xid_79 n0/PCI:a": 2, "xid_13 n0/PCI:a": 1, "xid_999 n0/PCI:b": 1, "xids n0": 4}
    facts = [(f"discovery.kernel_log.{name.split()[0]}", name.split()[1], count) for name, count in counts.items()]
    by_gate = verdicts(parsed_of(facts))
    assert by_gate["xid"] == (FAIL, "2 (2 × Xid 79 on PCI:a: GPU has fallen off the bus; reboot the node)")
    assert by_gate["nonfatal"] == (WARN, "1 (1 × Xid 999 on PCI:b: unknown: look it up in NVIDIA's Xid catalogue)")
    for digits in (10, 5000):
        facts = [(f"discovery.kernel_log.xid_{'9' * digits}", "n0/PCI:a", 1), ("discovery.kernel_log.xids", "n0", 1)]
        outcome, shown = verdicts(parsed_of(facts))["nonfatal"]
        assert outcome is WARN
        assert "this version does not know it" in shown


RESET_NVLINK = "reset the GPU, and check its NVLink"
ASKED = {
    None: (8, 11, 14, 31, 37, 39, 44, 45, 60, 63, 67, 72, 77, 82, 89, 96, 105, 106, 108, 126, 135, 139, 152, 153, 165),
    "reset the GPU": (46, 95, 109, 158),
    RESET_NVLINK: (144, 150),
    "update the driver or its virtual GPUs": (78,),
}


def test_classes_of_xids():
    asked_by = {number: asks for asks, numbers in ASKED.items() for number in numbers}
    assert {number: xid.event(f"xid_{number}").action for number in asked_by} == asked_by
    # each number once: up to 172 of NVIDIA's catalogue, 173 of its driver
    numbers = [number for each in xid.TABLE.classes for number in each.numbers()]
    assert sorted(numbers) == list(range(1, 174))


@for_each(
    ("020001c6", "the device at the other end"),
    ("025525c6", "the device at the other end"),
    ("00f00011", "what took the link down, software or a person"),
    ("02a00011", "the link's signal and cables"),
    ("03f00011", None),
)
def test_the_line_of_a_link_that_went_down_says_where_to_look(reason, says):
    line = f"Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 11 (0x{reason} 0x00000000)"
    assert xid.of_the_link(line) == (says and f"link 11: look at {says}")


NETIR = xid_line(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)")
REMAP = xid_line(145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000040 0x00000000)")
FOLLOWER = xid_line(45, "pid=4711, name=python, Ch 00000008, caused by previous Xid 149")
NO_INIT = f"1 × GPU could not be initialized on {GPU}: "
FATAL = "SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout error (First)"


@shows_failing("discovery.kernel_log.xid")
@for_each(
    ([OFF_THE_BUS], f"1 × GPU has fallen off the bus on {GPU}: reboot the node)"),
    ([f"{NVRM}GPU 0000:9B:00.0: GPU has fallen off the bus."], "1 × GPU has fallen off the bus on PCI:0000:9b:00: "),
    ([f"{NVRM}GPU c1:00.0: GPU has fallen off the bus."], f"1 × GPU has fallen off the bus on {GPU}: reboot"),
    ([f"{NVRM}GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0xffff:1482)"], NO_INIT),
    ([f"{NVRM}GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 3"], NO_INIT),
    ([f"{NVRM}The NVIDIA probe routine failed for 1 device(s)."], "1 × driver could not take a GPU over on n0: "),
    ([f"{SWITCH}3: {FATAL}"], "1 × SXid 24007 on nvidia-nvswitch3: "),
    ([NETIR], f"1 × Xid 149 on {GPU}: {RESET_NVLINK}; link 08: look at the link's signal and cables)"),
    ([REMAP], f"1 × Xid 145 on {GPU}: {RESET_NVLINK})"),
    ([FOLLOWER], f"1 × Xid 149 on {GPU}: {RESET_NVLINK})"),
    ([NETIR, FOLLOWER, FOLLOWER], "1 × Xid 149"),  # its cause is in the log itself
    ([action("0x0 (None)", "0x1 (GPU Reset Required)")], f"Xid 154 on {GPU}: GPU Reset Required)"),
    ([xid_line(154, "words of another driver")], f"1 × Xid 154 on {GPU}: the action in its text"),
)
def test_a_message_that_asks_for_action_fails_and_names_its_device(log, lines, says):
    outcome, shown = read(log, *lines)["xid"]
    assert (outcome, xid.of_line(REMAP).is_fault) == (FAIL, True)  # its second number asks for a reset; 0x8 does not
    assert TIME.sub("", shown).startswith(f"1 ({says}"), shown


def test_the_newest_message_of_each_kind_has_a_time_where_it_is_one_record(log):
    log.write_text(f"{QUIET}{xid_line(79, 'x')}\n4,901,62000000,-;NVRM: Xid ({GPU}): 79, y\n{OFF_THE_BUS}\n")
    records, _ = kernel_log.read_log()
    [(key, (at, text))] = kernel_log.last_of(records, 1_800_000_000.0).items()
    assert (key, at) == ((GPU, "xid_79"), "2027-01-15T08:01:02Z")
    assert text.startswith(f"NVRM: Xid ({GPU}): 79")
    assert TIME.search(read(log, xid_line(79, "x"))["xid"][1])
    assert not TIME.search(read(log, OFF_THE_BUS)["xid"][1])


NONFATAL = "SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
CLEAN = (PASS, "0 (reaches back to the boot)")


@shows_failing("discovery.kernel_log.nonfatal")
@for_each(
    ([], CLEAN),
    ([f"{SWITCH}0: {NONFATAL}"], (WARN, "1 (1 × SXid 12028 on nvidia-nvswitch0)")),
    ([xid_line(145, "RLW_SRC_TRACK Nonfatal XC0 i0 (0x040988e2 0x00000008)")], (WARN, f"1 (1 × Xid 145 on {GPU})")),
    ([xid_line(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 11 (0x026001c6)")], (WARN, f"1 (1 × Xid 149 on {GPU})")),
    ([xid_line(13, "pid=4711, Graphics Exception")], None),
    ([xid_line(45, "pid=4711, name=python, Ch 00000008")], None),
    ([action("0x1 (GPU Reset Required)", "0x0 (None)")], None),
    ([action("0x0 (None)", "0x2 (Node Reboot Required)"), action("0x2 (Node Reboot Required)", "0x0 (None)")], None),
    ([f"{SWITCH}0: SXid (PCI:0000:c3:00.0): 24007, Severity 1 Engine instance 44 Sub-engine instance 00"], None),
    ([f"{SWITCH}0: SXid (PCI:0000:c3:00.0): 24007, Data {{0x50610002, 0x10100030}}"], None),
    ([f"{NVRM}loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15"], None),
)
def test_a_message_that_calls_itself_nonfatal_is_a_warning_and_one_that_asks_for_nothing_passes(log, lines, nonfatal):
    by_gate = read(log, *lines)
    assert by_gate["xid"][0] is PASS
    assert by_gate["nonfatal"] == nonfatal if nonfatal else by_gate["nonfatal"][0] is PASS
    assert lines or by_gate["xid"] == CLEAN


@for_each(
    ("sxid_20034", "reset the GPUs of the node together", True),
    ("sxid_22003", "reboot the node", True),
    ("sxid_22012", "reset the GPUs of the node together", True),  # its line says that it is fatal
    ("sxid_11012_nonfatal", "nothing: the switch corrected it", False),
    ("sxid_20012_nonfatal", "check the link's mechanical connections", False),
    ("sxid_99999_nonfatal", None, False),  # no table knows it
)
def test_what_an_sxid_asks_for_is_nvidias_word_and_its_line_says_whether_it_is_fatal(name, asks, is_fault):
    event = xid.event(name)
    assert event.is_fault is is_fault
    assert event.action is None if asks is None else (event.action or "").startswith(asks)
    assert xid.asked_for().get(name, xid.TABLE.sxid).startswith(asks or "") or not is_fault


# ---- network adapters

PLACE = "mlx5_core 0000:5c:00.0: "
SHORTED = "Cable error, Bus stuck(I2C or data shorted)"
HEALTH = "print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:"
LEAK = "timeout. Will cause a leak of a command resource"
WEAK = "insufficient power on the PCIe slot (27W)"
BROKEN = {
    "Port module event[error]: module 0, Cable error, High Temperature": "Cable error, High Temperature",
    f"port_module:249:(pid 0): Port module event[error]: module 1, {SHORTED}": SHORTED,
    "poll_health:852:(pid 0): device's health compromised - reached miss count": "device's health compromised",
    HEALTH: "firmware internal error",
    "temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1": "High temperature",
    f"wait_func:1189:(pid 72061): ACCESS_REG(0x805) {LEAK}": "ACCESS_REG(0x805), timeout",
    f"cb_timeout_handler:877:(pid 9): cmd[3]: INIT_HCA(0x100) Async, {LEAK}": "INIT_HCA(0x100), timeout",
    f"mlx5_pcie_event:301:(pid 21): Detected {WEAK}.": WEAK,
}
CABLE_ERROR = PLACE + next(iter(BROKEN))


def of_adapters(*records: str) -> dict[str, int]:
    return dict(kernel_log.of_adapters(kernel_log.of_kmsg(QUIET + "\n".join(records))))


@for_each(*BROKEN.items())
def test_a_message_of_a_broken_adapter_is_named_by_its_address_and_counted(message, named):
    assert of_adapters(*[f"3,7,9,-;{PLACE}{message}"] * 2) == {f"0000:5c:00.0: {named}": 2}


@for_each(
    f"6,7,9,-;{PLACE}Port module event: module 0, Cable plugged",
    f"6,7,9,-;{PLACE}Health issue observed, unrecognized error, severity(6) INFO:",
    f"6,7,9,-;{PLACE}mlx5_cmd_out_err:838:(pid 14): ACCESS_REG(0x805) op_mod(0x1) failed, status bad (0x2)",
    f"11,7,9,-;{CABLE_ERROR}",  # user space wrote it
    f"3,7,9,c;{CABLE_ERROR}",  # the rest of a line
    f"3,7,9,-;mlx5_core 0000:[4711]: segfault at 0 in {next(iter(BROKEN))}",
    f"3,7,9,-;{CABLE_ERROR}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0",
)
def test_an_ordinary_message_and_what_another_one_wrote_are_none(record):
    assert of_adapters(record) == {}


def test_a_healthy_log_of_an_adapter_has_none():
    lines = (FIXTURES / "real/kernel/healthy-mlx5.txt").read_text().splitlines()
    records = [f"6,7,9,-;{line.partition('] ')[2]}" for line in lines]
    assert all(text.startswith("mlx5_core ") for text, _ in kernel_log.messages(kernel_log.of_kmsg("\n".join(records))))
    assert of_adapters(*records) == {}


def test_a_closed_log_is_a_question_only_where_there_is_such_an_adapter(log, tmp_path, monkeypatch):
    for place, value in ((tmp_path, None), (tmp_path / "none", 0)):
        monkeypatch.setattr(kernel_log, "ADAPTERS", str(place))
        assert answers_of(kernel_log.kernel_log)["discovery.rdma.messages"][0] == value


# ---- the rest of the node


@for_each(*[sign for sign in SIGNATURES.values() if sign.of is not None], ids=lambda sign: sign.id)
def test_the_probe_knows_each_message_of_the_table_by_its_name(sign):
    ((name, of, shown, message),) = kernel_log.of_the_table(kernel_log.of_kmsg(f"3,7,9,-;{sign.example}"))
    assert (f"kernel.{name}", of, message) == (sign.id, sign.of, sign.example)
    assert of != "adapter" or len(shown) >= 2  # its address, and what it says


NVME = "nvme nvme{}: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller"
AWAY, AGAIN = "nfs: server filer{} not responding, still trying", "nfs: server filer{} OK"
HOT = "mce: CPU{}: Core temperature above threshold, cpu clock throttled (total events = 17)"
COOL = "mce: CPU{}: Core temperature/speed normal"
EVICTED = "LustreError: 167-0: fs-OST0001-osc-ffff9a: This client was evicted by fs-OST0001; in progress"


@for_each(
    ([NVME.format(4)] * 2, f"2 (2 × nvme on nvme4: {SIGNATURES['kernel.nvme'].cause}; "),
    ([NVME.format(4), NVME.format(5)], "2 (2 × nvme on n0: "),
    ([AWAY.format(1)], "1 (1 × nfs on filer1: "),
    ([EVICTED], "1 (1 × lustre on fs-OST0001-osc-ffff9a: "),
    ([AWAY.format(1), AWAY.format(2), AGAIN.format(1)], "1 (1 × nfs on filer2: "),
    (["watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:22]"], "1 (1 × soft-lockup on n0: "),
    ([HOT.format(61), HOT.format(62), COOL.format(61)], "1 (1 × hot on CPU62: "),
    ([AWAY.format(1), AGAIN.format(1)], None),  # it is over
    ([HOT.format(61), COOL.format(61)], None),
    ([EVICTED, "Lustre: fs-OST0001-osc-ffff9a: Connection restored to fs-OST0001 (at 10.0.0.1@o2ib)"], None),
    (["EDAC MC1: 1 CE memory read error on DIMM#0 (channel:0)"], None),
    (["pcieport 0000:00:01.0: AER: Corrected error received"], None),
    (["Memory cgroup out of memory: Killed process 7 (python) total-vm:8kB"], None),
    (["EXT4-fs (md0): mounted filesystem"], None),
    (["nvme nvme0: 96/0/0 default/read/poll queues", "nvme nvme0: failed to set APST feature (2)"], None),
    (["mlx5_core 0000:5c:00.0 ens1: Link down", "mce: CPU12: Package temperature/speed normal"], None),
)
def test_messages_about_disks_filesystems_memory_and_cpus_warn_until_they_are_over(log, messages, says):
    by_gate = read(log, *(f"3,{number},9,-;{message}" for number, message in enumerate(messages)))
    assert by_gate["xid"][0] is PASS
    outcome, words = by_gate["nonfatal"]
    assert (outcome is WARN and words.startswith(says)) if says else outcome is PASS


def test_messages_in_the_form_of_other_drivers_of_adapters_are_read():
    heads = ("efa 0000:00:06.0", "infiniband rdmap0s6")
    efa = {f"3,7,9,-;{head}: Device isn't ready, abort com init": head for head in heads}
    for record, head in efa.items():
        assert of_adapters(record) == {f"{head.split()[1]}: Device isn't ready, abort com init": 1}
    words = of_adapters("3,7,9,-;mlx5_core 0000:65:00.0 ens15np0: TX timeout detected")
    assert words == {"0000:65:00.0: TX timeout detected": 1}
    assert of_adapters("4,7,9,-;ena 0000:00:05.0 eth0: Admin queue is closed") == {}
