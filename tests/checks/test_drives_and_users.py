"""Local drives as the kernel shows them to a user, and whether the nodes know the user of a job alike."""

import os
import pwd
import tempfile
from pathlib import Path

import drives
import identity
import software
import state as states
import trees
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.records import Verdict
from factory import a_run
from loops import for_each
from probing import told_by
from programs import tree
from runs_for_tests import FAIL, PASS, WARN, add_derived, judged
from showing import check_each, shows_failing
from state import State

NODES = ["n0", "n1", "n2"]
MODEL = "SAMSUNG MZQL23T8HCLS-00A07"
HEALTHY = states.healthy("h100", "n0", 8)


def of_drives(root: Path, *changes: str, node: str = "n0") -> Parsed:
    """What a simulated node says of its drives after these changes, and of an array that stands beside them."""
    made = Path(tempfile.mkdtemp(dir=root))
    (made / "class").mkdir()
    trees.make(made / node, made / "pci", made / "class")
    trees.render(State(states.changed(HEALTHY, changes)), made / node)
    return told_by(lambda probe: drives.drives(probe, made / node / "class/nvme", root / "block"), node)


def verdicts(gate: str, parsed: Parsed, nodes: list[str]) -> list[Verdict]:
    by_gate = judged(add_derived(parsed, a_run("discovery", nodes)), "discovery", nodes)
    return [by_gate[f"{gate} {node}"] for node in nodes]


@shows_failing("discovery.drives.broken")
@for_each(
    ([], PASS, f"0 (4 x {MODEL})"),
    (["drives=0"], PASS, "0 (there is none)"),
    (["drive2.state=resetting"], FAIL, f"nvme2 ({MODEL}) is resetting"),
    (["drive0.sectors=0"], FAIL, f"nvme0 ({MODEL}) shows no storage"),
    (["drive1.read_only=1"], FAIL, f"nvme1 ({MODEL}) is read-only"),
    (["drive1.state=dead", "drive1.transport=tcp"], PASS, f"0 (3 x {MODEL})"),  # a server's, not the node's
    (["drive.state=dead", "drives=6"], FAIL, "and 2 more"),
)
def test_a_drive_that_the_kernel_cannot_use_is_named(tmp_path, changes, outcome, words):
    check_each(verdicts("discovery.drives.broken", of_drives(tmp_path, *changes), ["n0"]), (outcome, words))


@for_each(("1", FAIL, "md0 lacks 1 of 8 drives"), ("0", PASS, "0 (4 x"), (None, PASS, "0 (4 x"))
def test_an_array_says_which_drives_it_lacks_and_a_striped_one_has_no_such_file(tmp_path, degraded, outcome, words):
    files = {"md0/md/raid_disks": "8"} | ({} if degraded is None else {"md0/md/degraded": degraded})
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    tree(place / "block", files)
    check_each(verdicts("discovery.drives.broken", of_drives(place), ["n0"]), (outcome, words))


@shows_failing("discovery.drives", "discovery.devices")
def test_a_node_with_another_number_of_drives_or_other_firmware_warns(tmp_path):
    for gate, change, words in (
        ("discovery.drives", "drives=3", f"NVMe drives: 3 x {MODEL}, 2 of 3 have 4 x {MODEL}"),
        ("discovery.devices", "drive3.firmware=GDC5502Q", f"firmware of {MODEL}: GDC5502Q+GDC5602Q"),
        ("discovery.devices", "drive0.link_width=2", "16.0 GT/s PCIe x2+16.0 GT/s PCIe x4"),
    ):
        parsed = Parsed()
        for node in NODES:
            parsed.add(of_drives(tmp_path, *([change] if node == "n1" else []), node=node))
        check_each(verdicts(gate, parsed, NODES), PASS, (WARN, words), PASS)


def user(monkeypatch, name="ann", home="/", groups=(100,), error=None) -> Parsed:
    """What a node says whose table of users has this entry, or none."""

    def entry(uid: int) -> pwd.struct_passwd:
        if error is not None:
            raise error
        return pwd.struct_passwd((name, "x", uid, groups[0], "", home, "/bin/sh"))

    monkeypatch.setattr(identity.pwd, "getpwuid", entry)
    monkeypatch.setattr(identity.os, "getgrouplist", lambda *_: list(groups))
    return told_by(identity.identity)


@shows_failing("discovery.user.home")
@for_each(
    ({}, PASS, "/)"),
    ({"home": "/is/not/there"}, WARN, "/is/not/there is not there"),
    ({"home": "/etc/hostname"}, WARN, "or the user may not read it"),
    ({"error": KeyError("uid not found")}, WARN, "its table of users has no such number"),
    ({"error": identity.NoAnswer("no answer within 20 s")}, WARN, "no answer within 20 s"),
)
def test_a_node_that_does_not_know_the_user_or_lacks_the_home_says_so(monkeypatch, how, outcome, words):
    check_each(verdicts("discovery.user.home", user(monkeypatch, **how), ["n0"]), (outcome, words))


@shows_failing("discovery.user.alike")
@for_each(
    ({"name": "bob"}, f"name of user {os.getuid()}: bob, 2 of 3 have ann"),
    ({"groups": (100, 4711)}, "groups that the node knows: 100+4711, 2 of 3 have 100"),
    ({"groups": tuple(range(100, 130))}, "30, hash "),
    ({"home": "/usr"}, "home: /usr, 2 of 3 have /"),
    ({"error": KeyError()}, f"name of user {os.getuid()}: absent"),
)
def test_a_node_that_knows_the_user_otherwise_is_named(monkeypatch, how, words):
    parsed = Parsed()
    for node in NODES:
        of_node = user(monkeypatch, **(how if node == "n1" else {}))
        parsed.add(Parsed([each.model_copy(update={"subject": node}) for each in of_node.observations]))
    check_each(verdicts("discovery.user.alike", parsed, NODES), PASS, (WARN, words), PASS)


@for_each(
    ("nfs4 10.0.0.2:/home rw,hard", "nfs4 /home"),
    ("wekafs backend/default rw", "wekafs backend/default"),
    ("xfs /dev/nvme0n1p2 rw", "the node's own xfs"),
)
def test_a_shared_home_is_compared_by_its_export_and_a_disk_of_the_node_by_its_kind(tmp_path, monkeypatch, mount, says):
    mounts = tree(tmp_path, {"mountinfo": f"21 1 0:5 / / rw,relatime shared:1 - {mount}"}) / "mountinfo"
    monkeypatch.setattr(software, "MOUNTS", mounts)
    (entries,) = [each.value for each in user(monkeypatch).observations if each.quantity == "inventory.user"]
    assert f"home lies on={says}" in entries
