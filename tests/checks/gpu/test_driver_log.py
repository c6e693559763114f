"""Messages of the NVIDIA driver in the kernel log: what the probe counts, and what of it asks for action."""

import json
import re

import kernel_log
import pytest
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.known_faults import xid
from bringup.plan import profile
from bringup.records import Outcome
from factory import a_run
from probing import told_by
from runs_for_tests import FIXTURES, add_derived
from showing import shows_failing

LOG = (FIXTURES / "kernel-log.txt").read_text()
TIME = re.compile(r", last at \d{4}-\d\d-\d\dT[\d:]{8}Z")
QUIET = "6,0,0,-;Linux version 6.8.0\n"
OFF_THE_BUS = (
    "4,900,61000000,-;NVRM: The NVIDIA GPU 0000:c1:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0a"
    "NVRM: fallen off the bus and is not responding to commands."
)


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


def counted(parsed: Parsed) -> dict[tuple[str, str], object]:
    """(subject, what of the kernel log) -> value, or why there is none."""
    return {
        (fact.subject, fact.quantity.removeprefix("discovery.kernel_log.")): fact.why
        if fact.value is None
        else fact.value
        for fact in parsed.observations
    }


def judged(parsed: Parsed) -> dict[str, tuple[Outcome, str]]:
    """Gate -> outcome and what it shows, on the node whose log this is."""
    run = a_run(nodes=["n0"])
    verdicts = judge.judge(run, profile.load("local-cpu"), add_derived(parsed, run)).verdicts
    return {
        verdict.gate.removeprefix("discovery.kernel_log."): (verdict.outcome, verdict.observed)
        for verdict in verdicts
        if verdict.gate.startswith("discovery.kernel_log.")
    }


def read(log, *lines: str) -> Parsed:
    log.write_text(QUIET + "".join(f"{line}\n" for line in lines))
    return told_by(kernel_log.kernel_log)


def xid_line(number: int, words: str, gpu: str = "PCI:0000:c1:00") -> str:
    return f"4,900,61000000,-;NVRM: Xid ({gpu}): {number}, {words}"


def test_xids_are_counted_by_gpu_and_number(log):
    log.write_text(LOG)
    counts = counted(told_by(kernel_log.kernel_log))
    assert counts["n0/PCI:0000:c1:00", "xid_79"] == 2
    assert counts["n0/PCI:0000:65:00", "xid_13"] == 1
    assert counts["n0", "xids"] == 3
    assert counts["n0", "records"] == 5


@pytest.mark.parametrize("text", [None, ""])
def test_a_log_that_is_not_there_or_empty_is_unknown_and_not_clean(log, text):
    if text is not None:
        log.write_text(text)
    parsed = told_by(kernel_log.kernel_log)
    assert "the kernel log cannot be read" in str(counted(parsed)["n0", "xids"])
    assert {outcome for outcome, _ in judged(parsed).values()} == {Outcome.INCOMPLETE}


def test_the_journal_counts_only_when_it_holds_the_whole_boot(log, monkeypatch):
    monkeypatch.setattr(kernel_log, "JOURNAL", journal("Linux version 6", "NVRM: Xid (PCI:0000:c1:00): 63, x"))
    assert counted(told_by(kernel_log.kernel_log))["n0", "xids"] == 1
    monkeypatch.setattr(kernel_log, "JOURNAL", ("printf", "-- No entries --\\n"))
    assert "cannot be read" in str(counted(told_by(kernel_log.kernel_log))["n0", "xids"])


def test_a_log_without_a_message_of_the_driver_passes(log):
    assert judged(read(log)) == {
        "xid": (Outcome.PASS, "0 (reaches back to the boot)"),
        "nonfatal": (Outcome.PASS, "0 (reaches back to the boot)"),
    }


def test_only_xids_that_ask_for_action_count_and_unknown_ones_do():
    parsed = Parsed()
    parsed.saw("discovery.kernel_log.xids", "n0", 4, "count", "f:1")
    parsed.saw("discovery.kernel_log.xid_79", "n0/PCI:a", 2, "count", "f:2")
    parsed.saw("discovery.kernel_log.xid_13", "n0/PCI:a", 1, "count", "f:3")
    parsed.saw("discovery.kernel_log.xid_999", "n0/PCI:b", 1, "count", "f:4")
    outcome, shown = judged(parsed)["xid"]
    assert outcome is Outcome.FAIL
    assert shown.startswith("3 (")
    assert "2 × Xid 79 on PCI:a: GPU has fallen off the bus; reboot the node" in shown
    assert "look it up" in shown


def test_classes_of_xids():
    assert xid.action(31) is xid.action(45) is xid.action(63) is None
    assert xid.action(95) == "reset the GPU"
    assert xid.action(145) == "check NVLink"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (OFF_THE_BUS, "1 (1 × GPU has fallen off the bus on PCI:0000:c1:00: reboot the node)"),
        (
            "4,9,6,-;NVRM: GPU 0000:9B:00.0: GPU has fallen off the bus.",
            "1 (1 × GPU has fallen off the bus on PCI:0000:9b:00: reboot the node)",
        ),
        (
            "4,9,6,-;NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0xffff:1482)",
            "1 (1 × GPU could not be initialized on PCI:0000:c1:00: ",
        ),
        (
            "4,9,6,-;NVRM: GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 3",
            "1 (1 × GPU could not be initialized on PCI:0000:c1:00: ",
        ),
        (
            "4,9,6,-;NVRM: The NVIDIA probe routine failed for 1 device(s).",
            "1 (1 × driver could not take a GPU over on n0: ",
        ),
        (
            "3,9,6,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack "
            "timeout error (First)",
            "1 (1 × SXid 24007 on nvidia-nvswitch3: ",
        ),
        (
            xid_line(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)"),
            "1 (1 × Xid 149 on PCI:0000:c1:00: check NVLink)",
        ),
        (
            xid_line(45, "pid=4711, name=python, Ch 00000008, caused by previous Xid 149"),
            "1 (1 × Xid 149 on PCI:0000:c1:00: check NVLink)",
        ),
        (
            xid_line(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
            "1 (Xid 154 on PCI:0000:c1:00: GPU Reset Required)",
        ),
        (xid_line(154, "words of another driver"), "1 (1 × Xid 154 on PCI:0000:c1:00: look it up"),
    ],
)
@shows_failing("discovery.kernel_log.xid")
def test_a_message_that_asks_for_action_fails_and_names_its_device(log, line, says):
    outcome, shown = judged(read(log, line))["xid"]
    assert outcome is Outcome.FAIL
    assert TIME.sub("", shown).startswith(says), shown


def test_the_newest_message_of_each_kind_has_a_time_where_it_is_one_record(log):
    boot = 1_800_000_000.0
    log.write_text(f"{QUIET}{xid_line(79, 'x')}\n4,901,62000000,-;NVRM: Xid (PCI:0000:c1:00): 79, y\n{OFF_THE_BUS}\n")
    records, _ = kernel_log.read_log()
    [(key, (at, text))] = kernel_log.last_of(records, boot).items()
    assert (key, at) == (("PCI:0000:c1:00", "xid_79"), "2027-01-15T08:01:02Z")
    assert text.startswith("NVRM: Xid (PCI:0000:c1:00): 79")
    assert TIME.search(judged(read(log, xid_line(79, "x")))["xid"][1])
    assert not TIME.search(judged(read(log, OFF_THE_BUS))["xid"][1])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "3,9,6,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 32 egress "
            "non-posted PRIV error (First)",
            "1 (1 × SXid 12028 on nvidia-nvswitch0)",
        ),
        (xid_line(145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 00 (0x00000000)"), "1 (1 × Xid 145 on PCI:0000:c1:00)"),
    ],
)
@shows_failing("discovery.kernel_log.nonfatal")
def test_a_message_that_calls_itself_nonfatal_is_a_warning(log, line, says):
    by_subject = judged(read(log, line))
    assert by_subject["nonfatal"] == (Outcome.WARN, says)
    assert by_subject["xid"][0] is Outcome.PASS


@pytest.mark.parametrize(
    "lines",
    [
        (xid_line(13, "pid=4711, Graphics Exception"),),
        (xid_line(45, "pid=4711, name=python, Ch 00000008"),),
        (xid_line(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),),
        (
            xid_line(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
            xid_line(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"),
        ),
        (
            "3,9,6,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Severity 1 Engine instance 44 "
            "Sub-engine instance 00",
        ),
        ("3,9,6,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Data {0x50610002, 0x10100030}",),
        ("4,9,6,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15",),
    ],
)
def test_a_message_that_asks_for_nothing_passes(log, lines):
    assert {outcome for outcome, _ in judged(read(log, *lines)).values()} == {Outcome.PASS}


def test_the_journal_has_a_message_of_several_lines_in_one_entry(log, monkeypatch):
    off_the_bus = OFF_THE_BUS.partition(";")[2].replace("\\x0a", "\n")
    entries = journal("Linux version 6", off_the_bus, "NVRM: Xid (PCI:0000:65:00): 13, x")
    monkeypatch.setattr(kernel_log, "JOURNAL", entries)
    counts = counted(told_by(kernel_log.kernel_log))
    assert counts["n0/PCI:0000:c1:00", "fallen_off_the_bus"] == 1
    assert counts["n0/PCI:0000:65:00", "xid_13"] == 1


def test_a_cause_that_is_in_the_log_itself_is_not_counted_twice(log):
    cause = xid_line(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)")
    follower = xid_line(45, "pid=4711, name=python, Ch 00000008, caused by previous Xid 149")
    assert judged(read(log, cause, follower, follower))["xid"][1].startswith("1 (1 × Xid 149")


@pytest.mark.parametrize("digits", [10, 5000])
def test_a_message_that_this_version_does_not_know_asks_for_a_look_at_it(digits):
    parsed = Parsed()
    parsed.saw("discovery.kernel_log.xids", "n0", 1, "count", "f:1")
    parsed.saw(f"discovery.kernel_log.xid_{'9' * digits}", "n0/PCI:a", 1, "count", "f:2")
    outcome, shown = judged(parsed)["xid"]
    assert outcome is Outcome.FAIL
    assert "this version does not know it" in shown
