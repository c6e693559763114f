"""The inventory and the clock probe on the machine that runs the tests, and on files made for them."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import clock
import inventory
import leftovers
import pytest
import software
from bringup.kernel import judge
from loops import for_each
from machine import machine
from probing import answers_of
from programs import free_port, tree
from runs_for_tests import OPEN, PASS, WARN, add_derived, discovery, judged, parsed_of, values
from showing import shows_failing


def in_words(question, quantity: str) -> str:
    """The value, or why there is none."""
    value, why = answers_of(question)[quantity]
    return str(why if value is None else value)


# ---- clock


def test_two_clocks_of_one_machine_agree_within_the_uncertainty_and_no_packet_is_late_or_lost():
    port = free_port()
    asked: list[list[clock.Way]] = []
    serving = threading.Thread(target=lambda: asked.append(clock.serve(port, 1)))
    serving.start()
    offset, uncertainty, way = clock.measure("127.0.0.1", port)
    serving.join()
    assert abs(offset) <= uncertainty + 1e-5  # the clock is read a moment before and after its counter
    assert [each.lost for each in (way, *asked[0])] == [0, 0]
    assert all(0 < each.trip_s < 0.002 for each in (way, *asked[0])), "as the kernel saw it"
    assert re.fullmatch(r"of \d{2,3} questions to 127.0.0.1 0 were sent again, and of its answers 0", way.words)


def test_a_reply_that_was_held_up_on_its_way_is_not_the_one_that_counts():
    """A busy node answers one question late: the clocks of the two would look as far apart as that."""

    def answer_the_first_one_late(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            time.sleep(0.2)
            while connection.recv(1):
                connection.sendall(clock.TIME.pack(time.time(), 3))

    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = threading.Thread(target=answer_the_first_one_late, args=(server,))
        busy.start()
        offset, uncertainty, way = clock.measure(*server.getsockname())
        busy.join()
    assert abs(offset) < 0.05
    assert uncertainty < 0.05
    assert way.lost == 3
    assert way.words.endswith("0 were sent again, and of its answers 3")


LOSSY = """set -e
ip link set lo up
nft 'table inet t {{ chain lossy {{ type filter hook input priority 0; tcp {} 4711 numgen inc mod 40 == 0 drop; }}; }}'
exec {} -c '
import threading, clock
threading.Thread(target=clock.serve, args=(4711, 1)).start()
print(clock.measure("127.0.0.1", 4711)[2].words)'
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@for_each(("dport", r"to 127.0.0.1 [3-9] .* answers 0"), ("sport", r"to 127.0.0.1 0 .* answers [3-9]"))
def test_a_lost_packet_is_counted_on_the_way_that_it_went(port, says):
    script = LOSSY.format(port, shlex.quote(sys.executable))
    command = ["unshare", "--net", "bash", "-c", script]
    done = subprocess.run(command, cwd=Path(clock.__file__).parent, capture_output=True, text=True, check=False)
    assert re.search(says, done.stdout), done.stdout + done.stderr


def test_a_kernel_that_says_less_of_a_connection_gives_its_mean_and_no_reports_of_what_came_twice():
    old = bytes(68) + (250).to_bytes(4, sys.byteorder) + bytes(28) + (4).to_bytes(4, sys.byteorder)
    connection = SimpleNamespace(getsockopt=lambda *_: old)
    assert (clock.least_trip(connection), clock.sent_again(connection)) == (0.00025, 4)


@shows_failing("discovery.network.round_trip", "discovery.network.lost")
@for_each((0.004, 2, PASS), (0.0062, 9, WARN), (None, None, OPEN))
def test_packets_that_are_late_or_lost_are_a_warning(trip, lost, outcome):
    facts = [("discovery.network.round_trip", "n1", trip), ("discovery.network.lost", "n1", lost)]
    by_gate = judged(facts)
    assert [by_gate[f"{name} n1"].outcome for name, _, _ in facts] == [outcome] * 2


def test_a_reference_that_is_not_there_or_that_nobody_asked_says_so_within_the_deadline(monkeypatch, capsys):
    monkeypatch.setattr(clock, "CONNECT_S", 0.05)
    monkeypatch.setattr(clock, "REPLY_S", 0.05)
    monkeypatch.setattr(sys, "argv", ["clock.py", "--reference", "127.0.0.1", "--port", str(free_port())])
    clock.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["value"] is None
    assert "nothing was measured against 127.0.0.1" in lines[0]["why"]
    assert lines[-1]["end"] == 4  # the last one is what the probe cost
    with pytest.raises(TimeoutError, match="none of 2"):
        clock.be_the_reference(free_port(), 2)


@for_each(
    ({"n0": 0.0, "n1": 2.0, "n2": 2.0, "n3": 2.001}, {"n0": 2.001, "n1": 0, "n2": 0, "n3": 0}),
    ({"n0": 0.0, "n1": None, "n2": 0.0}, {"n0": 0, "n1": None, "n2": 0}),
)
def test_a_reference_that_is_off_is_named_and_the_others_are_not(behind, off):
    facts = [("discovery.clock.behind_reference", node, value) for node, value in behind.items()]
    facts += [("discovery.clock.uncertainty", node, 0.001) for node, value in behind.items() if value is not None]
    offsets = values(add_derived(parsed_of(facts)), "discovery.clock.offset")
    assert offsets == {node: value if value is None else pytest.approx(value, abs=0.01) for node, value in off.items()}


# ---- software, the CPU


def test_two_files_differ_by_content_at_either_end(tmp_path, monkeypatch):
    monkeypatch.setattr(software, "HASHED_BYTES", 4)
    path = tmp_path / "lib.so.1"
    digests = set()
    for content in (b"aaaabbbbcccc", b"xaaabbbbcccc", b"aaaabbbbcccx", b"aaaabbbbccccc"):
        path.write_bytes(content)
        digests.add(software.identity(path))
    assert len(digests) == 4


CACHE = "1 libs found in cache `/etc/ld.so.cache'\n\t{} (libc6,x86-64) => /proc/self/exe\n"


@for_each(
    (CACHE.format("libc.so.6"), " bytes "),
    (CACHE.format("libother.so.1"), "absent"),
    ("9 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (lib", "gave no answer"),
    ("", "gave no answer"),
    (None, "gave no answer"),  # there is no ldconfig
)
def test_a_library_is_absent_only_where_the_linker_was_asked(monkeypatch, answer, says):
    def run(*_, **__):
        if answer is None:
            raise FileNotFoundError("ldconfig")
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(software.subprocess, "run", run)
    assert says in in_words(software.software, "inventory.library.libc")


def test_the_mount_of_a_folder_is_the_innermost_one_and_nobody_looks_into_that_of_models(monkeypatch):
    assert software.mount_of(Path("/proc/self")).startswith("proc proc ")
    for home, says in (("/proc/gone/hub", "/proc/gone/hub: proc proc "), ("", "~/.cache/huggingface: ")):
        monkeypatch.setenv("HF_HOME", home)
        assert says in in_words(software.software, "inventory.hf_home")


@for_each(
    ("processor\t: 0\nmodel name\t: AMD EPYC 9654\n", "AMD EPYC 9654"),
    ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "implementer 0x41 part 0xd4f"),
    ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9"),
    ("processor\t: 0\nmodel name\t: unknown\n", None),
    ("processor\t: 0\nmodel name\t: \n", None),
    ("processor\t: 0\nCPU impl", None),
    ("", None),
)
def test_a_cpu_that_nobody_names_is_unknown_and_equals_no_other(text, model):
    model_read = inventory.cpu_model(text)
    assert model_read is None if model is None else model in str(model_read)


def test_the_packages_are_those_that_would_be_imported_and_a_machine_id_is_told_as_a_hash(tmp_path):
    first, second = tmp_path / "own", tmp_path / "system"
    for folder, names in ((first, ("torch-2.9.1", "accelerate-1.2.0")), (second, ("accelerate-1.1.0", "numpy-2.1.0"))):
        for name in names:
            (folder / f"{name}.dist-info").mkdir(parents=True)
    assert software.packages(["", str(first), str(second)]) == {"accelerate": "1.2.0", "numpy": "2.1.0"}
    file = tmp_path / "machine-id"
    for text, answer in (("0" * 31 + "1\n", ""), ("uninitialized\n", "holds no number"), (None, "No such file")):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        facts = in_words(lambda probe: software.machine_id(probe, file), "discovery.node.machine_id")
        assert len(str(facts)) == 12 if text and text[0] == "0" else answer in str(facts)
        assert "0000000000" not in str(facts)


def test_a_system_without_a_name_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(software, "OS_RELEASE", tree(tmp_path, {"os-release": "ID=debian"}) / "os-release")
    assert "names no release" in in_words(software.software, "discovery.os")


@for_each(
    ("always [madvise] never", "madvise"),
    ("[always] madvise never", "always"),
    ("nothing", "not found"),
    (None, "No such file"),
)
def test_the_huge_pages_in_force_are_the_ones_in_brackets(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(inventory, "HUGE_PAGES", tmp_path / f"{text}")
    tree(tmp_path, {} if text is None else {text: text})
    assert expected in in_words(inventory.host, "discovery.hugepages")


def test_sockets_cores_and_threads_are_those_of_the_placed_cpus(tmp_path):
    for number, (package, core) in enumerate([("0", "0"), ("0", "0"), ("0", "1"), ("1", "0")]):
        tree(tmp_path / f"cpu/cpu{number}/topology", {"physical_package_id": package, "core_id": core})
    for name in ("cpu/cpu4", "numa/node0", "numa/node1"):  # cpu4 is offline
        (tmp_path / name).mkdir(parents=True)
    assert inventory.cpu_topology(tmp_path / "cpu", tmp_path / "numa") == "sockets 2, cores 3, threads 4, NUMA nodes 2"
    with pytest.raises(ValueError, match="no CPU has a topology"):
        inventory.cpu_topology(tmp_path / "numa", tmp_path / "numa")


def test_the_whole_inventory_ends_counts_its_facts_and_a_question_hides_no_others(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["inventory.py", "--raw", str(tmp_path)])
    monkeypatch.setattr(inventory, "ONLINE", tmp_path / "nowhere")
    inventory.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_quantity = {line.get("quantity"): line for line in lines}
    assert "nowhere" in by_quantity["discovery.host"]["why"]
    assert {"discovery.shm", "discovery.gpu.count"} <= by_quantity.keys()
    assert lines[-1]["end"] == len(lines) - 1 > 30
    assert (lines[-2]["quantity"], lines[-2]["unit"]) == ("probe.inventory.cpu_s", "s")
    assert lines[-2]["value"] > 0
    assert max(len(json.dumps(line)) for line in lines) < 1000


# ---- which machine it is


def machine_of(root: Path) -> str:
    return in_words(lambda facts: machine(facts, root / "net", root / "ib", root / "machine-id"), "inventory.machine")


def card(address: str, kind: str = "1", assigned: str = "0", **more: str) -> dict[str, str]:
    return {"type": kind, "addr_assign_type": assigned, "address": address, "device/of": "a card", **more}


def test_a_machine_is_known_by_what_its_makers_wrote_into_it(tmp_path):
    assert "no NIC has an address of its maker" in machine_of(tmp_path)
    by_id = machine_of(tree(tmp_path, {"machine-id": "5a0c"}))
    tree(tmp_path / "net/eth0", card("00:11"))
    tree(tmp_path / "ib/mlx5_0", {"node_guid": "b8ce", "device/of": "a card"})
    by_hardware = machine_of(tmp_path)
    assert by_hardware != by_id
    tree(tmp_path, {"machine-id": "installed again", "net/lo/type": "772"})
    tree(tmp_path / "net/vf0", card("00:99", **{"device/physfn": "a card"}))
    tree(tmp_path / "net/random0", card("00:98", assigned="1"))
    tree(tmp_path / "net/ib0", card("80:00", kind="32"))
    assert machine_of(tmp_path) == by_hardware
    tree(tmp_path / "net/eth0", card("00:bb", assigned="3", **{"bonding_slave/perm_hwaddr": "00:11"}))
    assert machine_of(tmp_path) == by_hardware, "it is part of a bond now"
    tree(tmp_path / "ib/mlx5_0", {"node_guid": "another"})
    assert machine_of(tmp_path) != by_hardware


# ---- what earlier jobs left on a node: who counts, and what an ordinary healthy node has

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
        facts = answers_of(leftovers.leftovers)
        return {name.rpartition(".")[2]: fact for name, fact in facts.items() if name.startswith("discovery.")}

    return make


def test_a_healthy_node_has_nothing_left_and_where_proc_hides_the_others_nothing_is_known(node):
    """DCGM, MPS, containers, logins with and without a terminal, a user's systemd, cron, a zombie of our own."""
    facts = node()
    assert {name: value for name, (value, _) in facts.items()} == {"processes": 0, "zombies": 1, "blocked": 0, "shm": 0}
    facts = node(hidden=1)
    assert {value for value, _ in facts.values()} == {None}
    assert "hidepid" in facts["shm"][1]


@for_each(
    (LEFT, "processes", 1),
    ((*LEFT[:6], 1_400_000_123, *LEFT[7:]), "processes", 1),  # of a directory service
    ((*LEFT[:5], 31, *LEFT[6:]), "processes", 0),  # younger than this program
    ((*LEFT[:8], "/slurm/uid_2000/job_8/step_0"), "processes", 0),  # in another job
    ((*LEFT[:8], "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0"), "processes", 0),  # of Slurm 26.05
    (("train", "D", 1, 0, 0, 9, 0, "200", "/"), "blocked", 1),
    (("train", "Z", 1, 0, 0, 9, 2000, "200", ""), "zombies", 2),
)
def test_what_counts(node, process, quantity, count):
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


@for_each((2**30, None), (2**20, 0))
def test_what_another_user_hides_is_not_known_to_be_nothing(node, tmp_path, monkeypatch, used, value):
    refused = PermissionError(13, "Permission denied")
    space = SimpleNamespace(f_blocks=2 * used, f_bfree=used, f_frsize=1)
    monkeypatch.setattr(leftovers.os, "statvfs", lambda path: space)
    monkeypatch.setattr(leftovers.os, "walk", lambda path, onerror: onerror(refused) or ())
    fact = node()["shm"]
    assert fact[0] == value
    assert value == 0 or "1.00 GiB of it are is not known" in fact[1]


def test_on_this_machine_it_answers_each_question():
    assert all(value is not None for value, _ in answers_of(leftovers.leftovers).values())


@shows_failing("discovery.left.processes", "discovery.left.zombies", "discovery.left.blocked", "discovery.left.shm")
def test_a_miss_is_a_warning_and_a_few_zombies_are_none(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    facts = folder / "raw/inventory.jsonl"
    for name, few, many in (("processes", 0, 1), ("zombies", 4, 5), ("blocked", 0, 1), ("shm", 0.1, 0.2)):
        for value, outcome in ((few, PASS), (many, WARN)):
            text = facts.read_text()
            facts.write_text(re.sub(rf'(discovery.left.{name}", "value": )[\d.]+', rf"\g<1>{value}", text))
            verdicts = judge.judge_folder(folder).verdicts.verdicts
            assert {each.outcome for each in verdicts if each.gate == f"discovery.left.{name}"} == {outcome}, name
