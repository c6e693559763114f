"""The inventory and the clock probe on the machine that runs the tests, and on files made for them."""

import json
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import clock
import inventory
import pytest
import software
from bringup.evidence.parsed import Parsed
from bringup.run.train_here import free_port
from machine import machine
from probing import told_by
from runs_for_tests import add_derived, values


def seen(question) -> dict[tuple[str, str], object]:
    return {
        (fact.subject, fact.quantity): fact.why if fact.value is None else fact.value
        for fact in told_by(question).observations
    }


# ---- clock


def test_two_clocks_of_one_machine_agree_within_the_uncertainty():
    port = free_port()
    asked: list[int] = []
    serving = threading.Thread(target=lambda: asked.append(clock.serve(port, 1)))
    serving.start()
    offset, uncertainty = clock.measure("127.0.0.1", port)
    serving.join()
    assert asked == [1]
    assert abs(offset) <= uncertainty + 1e-5  # the clock is read a moment before and after its counter


def test_a_reply_that_was_held_up_on_its_way_is_not_the_one_that_counts():
    """A busy node answers one question late: the clocks of the two would look as far apart as that."""

    def answer_the_first_one_late(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            for question in range(clock.SAMPLES):
                connection.recv(1)
                time.sleep(0.2 if question == 0 else 0)
                connection.sendall(clock.TIME.pack(time.time()))

    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = threading.Thread(target=answer_the_first_one_late, args=(server,))
        busy.start()
        offset, uncertainty = clock.measure(*server.getsockname())
        busy.join()
    assert abs(offset) < 0.05
    assert uncertainty < 0.05


def test_a_reference_that_is_not_there_is_unknown_within_the_deadline(monkeypatch, capsys):
    monkeypatch.setattr(clock, "CONNECT_S", 0.05)
    monkeypatch.setattr(sys, "argv", ["clock.py", "--reference", "127.0.0.1", "--port", str(free_port())])
    clock.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["value"] is None
    assert "nothing was measured against 127.0.0.1" in lines[0]["why"]
    assert lines[-1]["end"] == 2  # the last one is what the probe cost


def test_a_reference_that_nobody_asked_says_so(monkeypatch):
    monkeypatch.setattr(clock, "CONNECT_S", 0.05)
    monkeypatch.setattr(clock, "REPLY_S", 0.05)
    with pytest.raises(TimeoutError, match="none of 2"):
        clock.be_the_reference(free_port(), 2)


def offsets(**behind: float | None) -> dict[str, object]:
    parsed = Parsed()
    for node, value in behind.items():
        parsed.saw(
            "discovery.clock.behind_reference", node, value, "s", "f:1", None if value is not None else "unreachable"
        )
        if value is not None:
            parsed.saw("discovery.clock.uncertainty", node, 0.001, "s", "f:2")
    add_derived(parsed)
    return values(parsed, "discovery.clock.offset")


def test_a_reference_that_is_off_is_named_and_the_others_are_not():
    offset_of = offsets(n0=0.0, n1=2.0, n2=2.0, n3=2.001)
    assert offset_of["n0"] == pytest.approx(2.001)
    assert max(float(str(offset_of[node])) for node in ("n1", "n2", "n3")) < 0.01
    assert offsets(n0=0.0, n1=None, n2=0.0)["n1"] is None


# ---- software, fabric


def test_two_files_differ_by_content_at_either_end(tmp_path, monkeypatch):
    monkeypatch.setattr(software, "HASHED_BYTES", 4)
    path = tmp_path / "lib.so.1"
    digests = set()
    for content in (b"aaaabbbbcccc", b"xaaabbbbcccc", b"aaaabbbbcccx", b"aaaabbbbccccc"):
        path.write_bytes(content)
        digests.add(software.identity(path))
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("1 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (libc6,x86-64) => /proc/self/exe\n", " bytes "),
        ("1 libs found in cache `/etc/ld.so.cache'\n\tlibother.so.1 (libc6,x86-64) => /proc/self/exe\n", "absent"),
        ("9 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (lib", "gave no answer"),
        ("", "gave no answer"),
        (None, "gave no answer"),
    ],
    ids=["healthy", "degraded", "cut off", "empty", "no ldconfig"],
)
def test_a_library_is_absent_only_where_the_linker_was_asked(monkeypatch, answer, says):
    def run(*_, **__):
        if answer is None:
            raise FileNotFoundError("ldconfig")
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(software.subprocess, "run", run)
    assert says in str(seen(software.software)["n0", "inventory.library.libc"])


def test_the_mount_of_models_is_named_and_nobody_looks_into_it(monkeypatch):
    for home, says in (("/proc/gone/hub", "/proc/gone/hub: proc proc "), ("", "~/.cache/huggingface: ")):
        monkeypatch.setenv("HF_HOME", home)
        assert says in str(seen(software.software)["n0", "inventory.hf_home"])


def test_the_mount_of_a_folder_is_the_innermost_one():
    assert software.mount_of(Path("/proc/self")).startswith("proc proc ")


def test_cpus_online():
    assert [inventory.cpus_online(text) for text in ("0", "0-3", "0-3,8-11\n")] == [1, 4, 8]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9654\n", "AMD EPYC 9654"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "implementer 0x41 part 0xd4f"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9"),
        ("processor\t: 0\nmodel name\t: unknown\n", None),
        ("processor\t: 0\nmodel name\t: \n", None),
        ("processor\t: 0\nCPU impl", None),
        ("", None),
    ],
    ids=["x86", "arm", "power", "unknown to the kernel", "without a name", "cut off", "empty"],
)
def test_a_cpu_that_nobody_names_is_unknown_and_equals_no_other(text, model):
    model_read = inventory.cpu_model(text)
    assert model_read is None if model is None else model in str(model_read)


def test_a_system_without_a_name_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(software, "OS_RELEASE", tmp_path / "os-release")
    software.OS_RELEASE.write_text("ID=debian\n")
    assert "names no release" in str(seen(software.software)["n0", "discovery.os"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[always] madvise never\n", "always"),
        ("nothing\n", "not found"),
        (None, "No such file"),
    ],
)
def test_the_huge_pages_in_force_are_the_ones_in_brackets(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(inventory, "HUGE_PAGES", tmp_path / "enabled")
    if text is not None:
        inventory.HUGE_PAGES.write_text(text)
    assert expected in str(seen(inventory.host)["n0", "discovery.hugepages"])


def test_sockets_cores_and_threads_are_those_of_the_placed_cpus(tmp_path):
    for number, (socket_id, core) in enumerate([(0, 0), (0, 0), (0, 1), (1, 0)]):
        folder = tmp_path / f"cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket_id}\n")
        (folder / "core_id").write_text(f"{core}\n")
    (tmp_path / "cpu/cpu4").mkdir()  # offline
    for number in range(2):
        (tmp_path / f"numa/node{number}").mkdir(parents=True)
    assert inventory.cpu_topology(tmp_path / "cpu", tmp_path / "numa") == "sockets 2, cores 3, threads 4, NUMA nodes 2"
    with pytest.raises(ValueError, match="no CPU has a topology"):
        inventory.cpu_topology(tmp_path / "numa", tmp_path / "numa")


def test_a_question_that_cannot_be_read_does_not_hide_the_others(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["inventory.py"])
    monkeypatch.setattr(inventory, "ONLINE", tmp_path / "nowhere")
    inventory.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "nowhere" in next(line["why"] for line in lines if line.get("quantity") == "discovery.host")
    assert {"discovery.shm", "discovery.gpu.count"} <= {line.get("quantity") for line in lines}
    assert lines[-1]["end"] == len(lines) - 1


def test_the_whole_inventory_ends_and_counts_its_facts(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["inventory.py", "--raw", str(tmp_path)])
    inventory.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["end"] == len(lines) - 1 > 30
    cost = lines[-2]
    assert (cost["quantity"], cost["unit"]) == ("probe.inventory.cpu_s", "s")
    assert cost["value"] > 0
    assert max(len(json.dumps(line)) for line in lines) < 1000


# ---- which machine it is


def interface(path: Path, **files: str) -> None:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{text}\n")
    (path / "device").mkdir(parents=True, exist_ok=True)


def machine_of(root: Path) -> object:
    return seen(lambda facts: machine(facts, root / "net", root / "ib", root / "machine-id"))["n0", "inventory.machine"]


def test_a_machine_is_known_by_what_its_makers_wrote_into_it(tmp_path: Path):
    assert "no NIC has an address of its maker" in str(machine_of(tmp_path))
    (tmp_path / "machine-id").write_text("5a0c\n")
    by_id = machine_of(tmp_path)
    interface(tmp_path / "net/eth0", type="1", addr_assign_type="0", address="00:11")
    interface(tmp_path / "ib/mlx5_0", node_guid="b8ce")
    by_hardware = machine_of(tmp_path)
    assert by_hardware != by_id
    (tmp_path / "machine-id").write_text("installed again\n")
    interface(tmp_path / "net/vf0", type="1", addr_assign_type="0", address="00:99", **{"device/physfn": "a card"})
    interface(tmp_path / "net/random0", type="1", addr_assign_type="1", address="00:98")
    interface(tmp_path / "net/ib0", type="32", addr_assign_type="0", address="80:00")
    (tmp_path / "net/lo").mkdir()
    assert machine_of(tmp_path) == by_hardware
    interface(tmp_path / "net/eth0", addr_assign_type="3", address="00:bb", **{"bonding_slave/perm_hwaddr": "00:11"})
    assert machine_of(tmp_path) == by_hardware, "it is part of a bond now"
    interface(tmp_path / "ib/mlx5_0", node_guid="another")
    assert machine_of(tmp_path) != by_hardware
