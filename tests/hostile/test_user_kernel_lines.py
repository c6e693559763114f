"""Lines that a user's program can bring into the kernel's log say nothing about hardware.

The kernel writes the name of a process (15 bytes, any) and of a file into records of its own, also at their beginning:
a segfault, a trap, a task that hangs, the memory killer. Root writes there too, with a facility of user space.
"""

import json
import time

import kernel_log
import pytest
from bringup.readers.known.signatures import SIGNATURES
from loops import case_for_each, for_each
from tiers import FEWER

CLEAN = "6,0,0,-;Linux version 6.8.0\n"
DRIVER = {  # a genuine message of every kind that is read
    "xid": "NVRM: Xid (PCI:0000:c1:00): 79, pid=4711, GPU has fallen off the bus.",
    "sxid": "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout error (First)",
    "fallen": "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.",
    "fallen, in several lines": "NVRM: The NVIDIA GPU 0000:c1:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this "
    "system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
    "init_failed": "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0xffff:1482)",
    "rm_init_adapter": "NVRM: GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 3",
    "unsupported": "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2330)\\x0aNVRM: installed in this system is not "
    "supported by the\\x0aNVRM: NVIDIA 550.90.07 driver release.",
    "probe_failed": "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "recovery_action": "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
    "Required)",
}
RECORDS_OF_USERS = {  # %s: 15 bytes of the user, as /dev/kmsg escapes them; %s: a file's name
    "segfault": "6,1591,99,-;%s[30704]: segfault at 0 ip 0000 sp 0000 error 6 in %s[115b,1000]",
    "traps": "6,1592,99,-;traps: %s[30703] trap invalid opcode ip:401016 sp:0 error:0 in %s[1016,1000]",
    "hung task": "3,1593,99,-;INFO: task %s:4711 blocked for more than 120 seconds: %s",
    "killed": "3,1594,99,-;Out of memory: Killed process 4711 (%s) total-vm:8kB, file %s",
    "usb": "6,1595,99,-;usb 1-1: Product: %s %s\n SUBSYSTEM=usb\n DEVICE=c189:0",
    "audit": '5,1596,99,-;audit: type=1701 audit(1.2:3): pid=4711 comm="%s" exe="%s" sig=11 res=1',
    "bad frame": "6,1597,99,-;%s[4711] bad frame in rt_sigreturn frame:0 ip:0 sp:0 orax:0 in %s[1+1]",
}


def read(text: str) -> tuple[dict[tuple[str, str], int], dict[str, str], int]:
    counts, recovery, xids = kernel_log.events(kernel_log.of_kmsg(CLEAN + text))
    return dict(counts), recovery, xids


@pytest.fixture(autouse=True)
def pci(tmp_path, monkeypatch):
    """The devices of a node, and not those of the machine that runs the test."""
    for place, vendor in (("0000:c1:00.0", "0x10de"), ("0000:05:00.0", "0x1af4")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "vendor").write_text(f"{vendor}\n")
    monkeypatch.setattr(kernel_log, "PCI_DEVICES", str(tmp_path))


NOTHING: tuple[dict[tuple[str, str], int], dict[str, str], int] = ({}, {}, 0)


@for_each(*DRIVER.values())
def test_the_drivers_own_record_counts(message):
    assert read(f"4,9,9,-;{message}\n") != NOTHING


@case_for_each(
    "6,1591,99,-;NVRM: GPU[30704]: segfault at 0 ip 0 sp 0 error 6 in has fallen off the bus[115b,1000]",
    "6,1592,99,-;traps: NVRM: Xid ([30703] trap invalid opcode ip:401016 sp:0 error:0 in x): 79, gone[1016,1000]",
    "6,481,99,-;NVRM: \\x0aNVRM: G[26213]: segfault at 0 ip 0 sp 0 error 6 in has fallen off the bus[115b,1000]",
    ids=["the name begins the record", "after traps", "a name with a line feed"],
)
def test_the_records_of_a_program_that_crashes_do_not(record):
    assert read(f"{record}\n") == NOTHING


@for_each(*RECORDS_OF_USERS.values())
@for_each(*DRIVER.values())
def test_no_part_of_a_drivers_message_counts_as_a_name_of_a_process_or_file(form, message):
    """The name takes each 15 bytes of the message in turn, alone and after a line feed; the file's name the rest."""
    words = message.replace("\\x0a", " ")
    for start in range(0, len(words) - 14, 7 if FEWER else 1):
        name, rest = words[start : start + 15], words[start + 15 :]
        for process in (name, f"\\x0a{name[:14]}", f"a\\x0a{name[:13]}"):
            for file in (rest, words, f"\\x0a{words}", f"x\\x0a{message}"):
                assert read(form % (process, file) + "\n") == NOTHING


def known(text: str) -> set[str]:
    return {name for name, _, _, _ in kernel_log.of_the_table(kernel_log.of_kmsg(CLEAN + text))}


@for_each(*RECORDS_OF_USERS.values())
@for_each(*(sign.example for sign in SIGNATURES.values() if sign.of not in (None, "program")))
def test_no_part_of_a_message_of_the_table_counts_as_a_name_of_a_process_or_file(form, message):
    genuine = known(form % ("python", "x") + "\n")
    for start in range(len(message)):
        name, rest = message[start : start + 15], message[start + 15 :]
        for process in (name, f"\\x0a{name}"):
            assert known(form % (process, rest) + "\n") <= genuine


NOT_THE_DRIVER = {
    **{f"user space, {priority}": f"{priority},9,9,-;%s\n" for priority in (8 + 4, 24 + 4, 40 + 3, 128 + 6)},
    "no head of a record": "%s\n",
    "a field of a record": "4,9,9,-;x\n MESSAGE=%s\n",
    "another device": "4,9,9,-;%s\n SUBSYSTEM=usb\n DEVICE=+usb:1-1\n",
    # the rest of a line that another one cut off begins anywhere, also with the name of a control group, which users
    # choose where it is delegated
    **{f"cut off, {flags}": f"4,9,9,{flags};%s\n" for flags in ("c", "+", "c,caller=T4711")},
    # in a network namespace of his own a user chooses the prefix, where net.netfilter.nf_log_all_netns is 1
    "a firewall": "4,9,9,-;%.127sIN=lo OUT= MAC=00 SRC=127.0.0.1 DST=127.0.0.1 LEN=84\n",
}


@for_each(*NOT_THE_DRIVER.values())
@for_each(*DRIVER.values())
def test_the_drivers_words_in_a_record_of_somebody_else_do_not_count(form: str, message: str):
    assert read(form % message) == NOTHING
    assert read(f"4,9,9,-,caller=T4711;{message}\n") != NOTHING


@for_each("IN= OUT=", "IN= OUT= MAC=", "IN= OUT= SRC= ", "IN=a OUT= ARP H")
def test_a_process_called_like_a_firewall_hides_no_message(name):
    line = f"4,9,9,-;NVRM: Xid (PCI:0000:c1:00): 48, pid=1, name={name}, DBE ECC Error\n"
    assert read(line)[0] == {("PCI:0000:c1:00", "xid_48"): 1}


@for_each("IN=", "IN= OUT=", "IN= OUT= ", "IN= OUT= MAC= ", "MAC=")
def test_records_of_many_firewall_words_are_read_in_time(piece):
    text = piece * (8000 // len(piece))
    began = time.process_time()
    read("".join(f"4,{number},9,-;{text}\n" for number in range(300)))
    assert time.process_time() - began < 2  # a search that grows with the square took many times as long


@case_for_each(
    (145, "Nonfatal", "RLW_CTRL Fatal XC0 i0 Link 00", "xid_145"),  # makes no fatal message harmless
    (145, "Fatal", "RLW_CTRL Nonfatal XC0 i0 Link 00", "xid_145_nonfatal"),
    (45, "previous Xid 79", "Ch 00000008", "xid_45"),  # is no cause
    (45, "\\x0aNVRM: Xid (0", "Ch 00000008", "xid_45"),
)
def test_the_name_of_a_process_in_a_message_of_the_driver_says_nothing(xid: int, name: str, rest: str, kind: str):
    line = f"4,9,9,-;NVRM: Xid (PCI:0000:c1:00): {xid}, pid=1, name={name}, {rest}\n"
    assert read(line)[0] == {("PCI:0000:c1:00", kind): 1}


def test_between_the_lines_of_a_message_a_users_record_adds_nothing_to_it():
    first, *others = DRIVER["unsupported"].split("\\x0a")
    users = "NVRM: fallen of[1]: segfault at 0 ip 0 in installed in this system has fallen off the bus[1]"
    counts, _, _ = read("".join(f"4,9,9,-;{text}\n" for text in (first, users, *others)))
    assert ("PCI:0000:01:00", "fallen_off_the_bus") not in counts


@for_each(*DRIVER.values())
@for_each(
    ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"}, True),
    ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "3"}, False),
    ({"_TRANSPORT": "syslog", "SYSLOG_FACILITY": "0"}, False),
    ({"SYSLOG_FACILITY": "0"}, False),
)
@for_each(False, True)
def test_the_journal_is_read_by_entry_and_by_who_wrote_it(monkeypatch, message, fields, counts, as_bytes):
    text = message.replace("\\x0a", "\n")
    entries = [
        {"MESSAGE": "Linux version 6", "_TRANSPORT": "kernel"},
        {"MESSAGE": list(text.encode()) if as_bytes else text, **fields},
        {"MESSAGE": f"x: 1\n{text}", "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"},
        {"MESSAGE": None},
    ]
    monkeypatch.setattr(kernel_log, "JOURNAL", ("printf", "%s\\n", *map(json.dumps, entries)))
    found_events = kernel_log.events(kernel_log.read_journal())
    assert (found_events != NOTHING) is counts
    assert sum(found_events[0].values()) + len(found_events[1]) == (1 if counts else 0)


@case_for_each(
    ("0000:c1:00", True),
    ("0000:9b:00", True),
    ("0000:05:00", False),
    ids=["a GPU", "a GPU that has left the bus", "another device"],
)
def test_an_xid_is_about_an_address_that_is_no_other_device(place, counts):
    assert (read(f"4,9,9,-;NVRM: Xid (PCI:{place}): 79, pid=1, x\n") != NOTHING) is counts
