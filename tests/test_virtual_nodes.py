"""The virtual nodes, as far as they can be held without starting a machine: their network."""

import socket
import subprocess
import sys
import time
from pathlib import Path

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
