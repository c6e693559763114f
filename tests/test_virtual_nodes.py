"""The virtual nodes, as far as they can be held without starting a machine: their network, and the order of faults."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import virtual_faults
from loops import for_each
from programs import program

SWITCH = Path(__file__).parents[1] / "infrastructure-validation/local-cluster/virtual/switch.py"
EVERYBODY = b"\xff" * 6


def frame(to: bytes, sender: bytes, text: bytes) -> bytes:
    return to + sender + b"\x08\x00" + text


def test_the_switch_sends_a_frame_to_whom_it_is_for_or_to_all_and_outlives_a_machine(tmp_path):
    macs = [bytes((2, 0, 0, 0, 0, number)) for number in range(3)]
    plugs = []
    for number in range(3):
        plugs.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        plugs[-1].bind(str(tmp_path / f"n{number}"))
        plugs[-1].settimeout(10)
    with subprocess.Popen([sys.executable, "-I", SWITCH, tmp_path]) as switch:
        try:
            until = time.monotonic() + 20
            while not (tmp_path / "switch").exists() and time.monotonic() < until:
                time.sleep(0.01)
            for number, plug in enumerate(plugs):
                plug.sendto(frame(EVERYBODY, macs[number], b"hello"), str(tmp_path / "switch"))
                for other in range(number):  # those that have spoken before
                    assert plugs[other].recv(99) == frame(EVERYBODY, macs[number], b"hello")
            plugs[0].sendto(frame(macs[2], macs[0], b"for n2"), str(tmp_path / "switch"))
            assert plugs[2].recv(99) == frame(macs[2], macs[0], b"for n2")
            plugs[1].close()
            plugs[0].sendto(frame(EVERYBODY, macs[0], b"all"), str(tmp_path / "switch"))
            assert plugs[2].recv(99) == frame(EVERYBODY, macs[0], b"all")
        finally:
            switch.kill()
            for plug in plugs:
                plug.close()


NODES = """case "$*" in
*"sinfo -hN"*) printf "n0\\nn1\\n";;
*"-t idle"*) echo 2;;
*hang*) echo "$*" >>{0}/asked; exec sleep 60;;
*) echo "$*" >>{0}/asked; [[ "$*" != *bash* ]] || exec bash -c "${{@: -1}}";;
esac"""
FAULT = "  - {{fault: {0}, node: last, says: word, make: '{1}', ask: echo {2}, undo: 'echo undo {0}', finds: '{3}'}}\n"


@pytest.fixture
def bed(tmp_path, monkeypatch) -> Path:
    """Two machines that do what they are told in a shell here, and a page."""
    (tmp_path / "page.md").write_text(f"# Page\n\n{virtual_faults.BELOW}old\n")
    places = {"CLUSTER": program(tmp_path / "cluster", NODES.format(tmp_path)), "TABLE": tmp_path / "table.yaml"}
    for name, path in {**places, "KEPT": tmp_path / "kept/kept.json", "PAGE": tmp_path / "page.md"}.items():
        monkeypatch.setattr(virtual_faults, name, path)
    monkeypatch.setattr(virtual_faults, "JOB_S", 1)
    monkeypatch.setattr(sys, "argv", ["virtual_faults.py"])
    return tmp_path


WELL = FAULT.format("a", "true", "it is cold", "cold")
POOR, HUNG = FAULT.format("b", "true", "it is warm", "cold"), FAULT.format("c", "hang", "it is cold", "cold")
BROKEN = FAULT.format("d", "exit 3", "it is cold", "cold")


@for_each(
    (WELL, 0, "1 of 1 faults found; 0 false alarms; 0 times nothing had to be said; 0 without an answer"),
    (HUNG + WELL, 2, "1 of 1 faults found; 0 false alarms; 0 times nothing had to be said; 1 without an answer"),
    (BROKEN + WELL, 2, "1 of 1 faults found; 0 false alarms; 0 times nothing had to be said; 1 without an answer"),
    (HUNG + POOR + WELL, 1, "1 of 2 faults found; 0 false alarms"),
)
def test_a_fault_that_does_not_end_is_undone_and_the_rest_is_tried(bed, capsys, faults, code, says):
    (bed / "asked").write_text("")
    (bed / "table.yaml").write_text(f"round:\n  asks: program\n  faults:\n{faults}")
    assert virtual_faults.main() == code
    assert says in capsys.readouterr().out.splitlines()[-1]
    undone = [name for name in "abcd" if f"undo {name}" in (bed / "asked").read_text()]
    assert undone == sorted(json.loads((bed / "kept/kept.json").read_text())["faults"])
    page = (bed / "page.md").read_text()
    assert says in page
    assert "old" not in page
    assert "| a | `word` n1 |" in page
