"""What earlier jobs left on a node: who counts, and what an ordinary healthy node has."""

import os
import re
import shutil
from types import SimpleNamespace

import leftovers
import pytest
from bringup import judge
from bringup.records import Outcome
from loops import for_each
from probing import answers_of
from programs import tree
from runs_for_tests import discovery
from showing import shows_failing

OWN = 100
NODE = {  # pid: name, state, parent, terminal, flags, start, uid, NSpid, cgroup
    1: ("systemd", "S", 0, 0, 0, 1, 0, "1", "/init.scope"),
    50: ("kworker/0:1", "D", 2, 0, leftovers.KERNEL_THREAD, 1, 0, "50", "/"),
    60: ("nv-hostengine", "S", 1, 0, 0, 9, 1200, "60", "/system.slice/nvidia-dcgm.service"),
    61: ("nvidia-cuda-mps", "S", 1, 0, 0, 9, 1500, "61", "/system.slice/slurmd.service"),
    62: ("dcgm-exporter", "S", 1, 0, 0, 9, 1001, "62 1", "/kubepods/pod1/c1"),
    70: ("sshd", "S", 1, 0, 0, 9, 0, "70", "/user.slice/user-1600.slice/session-3.scope"),
    71: ("python3", "S", 70, 0, 0, 9, 1600, "71", "/user.slice/user-1600.slice/session-3.scope"),
    72: ("tmux: server", "S", 1, 0, 0, 9, 1700, "72", "/user.slice/user-1700.slice/session-4.scope"),
    73: ("bash", "S", 72, 34816, 0, 9, 1700, "73", "/user.slice/user-1700.slice/session-4.scope"),
    74: ("systemd", "S", 1, 0, 0, 9, 1800, "74", "/user.slice/user-1800.slice/user@1800.service/init.scope"),
    80: ("slurmstepd", "S", 1, 0, 0, 20, 0, "80", "/system.slice/slurmstepd.scope/job_7/step_0/slurm"),
    OWN: ("python3", "R", 80, 0, 0, 30, 1000, "100", "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"),
    101: ("cron", "S", 1, 0, 0, 9, 0, "101", "/system.slice/cron.service"),
    102: ("backup", "S", 101, 0, 0, 9, 1900, "102", "/system.slice/slurmd.service"),
    103: ("nobody-runs", "S", 1, 0, 0, 9, 65534, "103", "/system.slice/slurmd.service"),
    104: ("bash", "Z", 80, 0, 0, 9, 1000, "104", ""),
}
LEFT = ("python3", "S", 1, 0, 0, 9, 2000, "200", "/system.slice/slurmd.service")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A function that makes a /proc of these processes, and returns the facts of the probe."""
    monkeypatch.setattr(leftovers, "PROC", tmp_path / "proc")
    monkeypatch.setattr(leftovers, "SHM", str(tmp_path / "shm"))
    monkeypatch.setattr(leftovers, "BETWEEN_S", 0)
    monkeypatch.setattr(leftovers.os, "getpid", lambda: OWN)
    (tmp_path / "shm").mkdir()

    def make(process: tuple | None = None, hidden: int = 0) -> dict[str, tuple[object, str]]:
        shutil.rmtree(tmp_path / "proc", ignore_errors=True)
        for pid, (name, state, parent, terminal, flags, start, uid, nested, cgroup) in (
            NODE | ({200: process} if process else {})
        ).items():
            fields = [state, parent, 0, 0, terminal, -1, flags, *[0] * 12, start]
            switches = "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t1"
            files = {
                "stat": f"{pid} ({name}) {' '.join(map(str, fields))} 0 0",
                "status": f"Name:\t{name}\nUid:\t{uid}\t{uid}\nNSpid:\t{nested}\n{switches}",
                "cgroup": f"0::{cgroup}",
            }
            if pid != hidden:
                tree(tmp_path / "proc" / str(pid), files)
        return {
            name.rpartition(".")[2]: fact
            for name, fact in answers_of(leftovers.leftovers).items()
            if name.startswith("discovery.")
        }

    return make


def test_a_healthy_node_has_nothing_left(node):
    """DCGM, MPS, containers, logins with and without a terminal, a user's systemd, cron, a zombie of our own."""
    facts = node()
    assert {name: value for name, (value, _) in facts.items()} == {"processes": 0, "zombies": 1, "blocked": 0, "shm": 0}


@for_each(
    "process, quantity, count",
    [
        (LEFT, "processes", 1),
        ((*LEFT[:6], 1_400_000_123, *LEFT[7:]), "processes", 1),  # of a directory service
        ((*LEFT[:5], 31, *LEFT[6:]), "processes", 0),  # younger than this program
        ((*LEFT[:8], "/slurm/uid_2000/job_8/step_0"), "processes", 0),  # in another job
        (("train", "D", 1, 0, 0, 9, 0, "200", "/"), "blocked", 1),
        (("train", "Z", 1, 0, 0, 9, 2000, "200", ""), "zombies", 2),
    ],
)
def test_what_counts(process, quantity, count, node):
    value, why = node(process)[quantity]
    assert value == count
    assert count == 0 or process[0] in why


def test_a_process_that_runs_in_between_is_not_stuck(node, tmp_path, monkeypatch):
    look = leftovers.look

    def later(pids=None):
        known = look(pids)
        for process in known.values() if pids else ():
            process.switches = (*process.switches, "more")
        return known

    monkeypatch.setattr(leftovers, "look", later)
    assert node(("fsync", "D", 1, 0, 0, 9, 0, "200", "/"))["blocked"][0] == 0


def test_files_of_a_user_without_a_job_count_and_those_of_the_system_do_not(node, tmp_path):
    for owner in (0, 1600, 2000):  # 1600 is logged in
        file = tmp_path / "shm" / f"of-{owner}"
        file.write_bytes(bytes(2**20))
        os.chown(file, owner, owner)
    assert node()["shm"] == (pytest.approx(2**20 / 2**30, abs=1e-3), "0.00 GiB of user 2000")


@for_each("used, value", [(2**30, None), (2**20, 0)])
def test_what_is_hidden_in_a_folder_of_another_user_is_not_known_to_be_nothing(
    used, value, node, tmp_path, monkeypatch
):
    refused = PermissionError(13, "Permission denied")
    space = SimpleNamespace(f_blocks=2 * used, f_bfree=used, f_frsize=1)
    monkeypatch.setattr(leftovers.os, "statvfs", lambda path: space)
    monkeypatch.setattr(leftovers.os, "walk", lambda path, onerror: onerror(refused) or ())
    fact = node()["shm"]
    assert fact[0] == value
    assert value == 0 or "1.00 GiB of it are is not known" in fact[1]


def test_where_proc_hides_the_others_nothing_is_known(node):
    facts = node(hidden=1)
    assert {value for value, _ in facts.values()} == {None}
    assert "hidepid" in facts["shm"][1]


def test_on_this_machine_it_answers_each_question():
    assert all(value is not None for value, _ in answers_of(leftovers.leftovers).values())


@shows_failing("discovery.left.processes", "discovery.left.zombies", "discovery.left.blocked", "discovery.left.shm")
def test_a_miss_is_a_warning_and_a_few_zombies_are_none(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    facts = folder / "raw/inventory.jsonl"
    for name, few, many in (("processes", 0, 1), ("zombies", 4, 5), ("blocked", 0, 1), ("shm", 0.1, 0.2)):
        for value, outcome in ((few, Outcome.PASS), (many, Outcome.WARN)):
            text = facts.read_text()
            facts.write_text(re.sub(rf'(discovery.left.{name}", "value": )[\d.]+', rf"\g<1>{value}", text))
            verdicts = judge.judge_folder(folder).verdicts.verdicts
            assert {each.outcome for each in verdicts if each.gate == f"discovery.left.{name}"} == {outcome}, name
