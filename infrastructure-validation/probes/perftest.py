"""perftest between two RDMA ports: the ports of this node, one side of a test, and what it printed.

Only the text is read: it is the same in all versions, and old ones write no JSON. Standard library only.
"""

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import hca
from beside import beside

HCAS = Path("/sys/class/infiniband")
LISTENING = ("/proc/net/tcp", "/proc/net/tcp6")
BANDWIDTH, LATENCY = "ib_write_bw", "ib_write_lat"
OPTIONS = {  # one queue pair and small messages do not fill 400 Gb/s
    BANDWIDTH: ("--report_gbits", "-D", "2", "-q", "4", "-s", "1048576"),
    LATENCY: ("-n", "5000", "-s", "8"),
}
START_S, LIMIT_S = 30.0, 60.0
GBIT_OF_MIB = 2**20 * 8 / 1e9
_AVERAGE = re.compile(r"BW average\[(Gb|MB|MiB)/sec\]")
_COMPLAINT = re.compile(r"error|fail|could|unable|not found", re.IGNORECASE)
_TYPICAL = "t_typical[usec]"
_ROW = re.compile(r"^ *\d+ +\d+ +[\d.]+ +([\d.]+)(?:\s+([\d.]+))?", re.MULTILINE)


class Failed(Exception):
    """A test that was started and gave no number; why."""


class NotThere(Failed):
    """The program is not installed."""


def ports(hcas=HCAS):
    """{"mlx5_3:1": Gb/s} of the active ports that NCCL may use and that are as fast as the fastest: slower ones are for
    storage or for people."""
    rates, names = {}, hca.named()
    for port in sorted(hcas.glob("*/ports/*")):
        try:
            rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", (port / "rate").read_text())
            active = "ACTIVE" in (port / "state").read_text()
        except OSError:
            continue
        name = f"{port.parent.parent.name}:{port.name}"
        if active and rate and (not names or hca.allows(names, name)):
            rates[name] = float(rate.group(1))
    return {name: rate for name, rate in rates.items() if rate == max(rates.values())}


def command(tool, rail, tcp_port):
    """What both sides start. $BRINGUP_PERFTEST: what this fabric needs besides, as `-x 3 --tclass=106`."""
    device, _, port = rail.rpartition(":")
    more = shlex.split(os.environ.get("BRINGUP_PERFTEST", ""))
    return [tool, "-d", device, "-i", port, "-p", str(tcp_port), "-F", *OPTIONS[tool], *more]


def _started(words, rail):
    """Beside the port: from another socket, the link between sockets would be measured."""
    try:
        with beside(HCAS / rail.rpartition(":")[0] / "device"):
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    except OSError as error:
        if shutil.which(words[0]) is None:
            raise NotThere(f"{words[0]} is not installed") from None
        raise Failed(f"{words[0]} cannot be started: {error.strerror}") from None


class Server:
    """The side that waits: it has to listen before the other one begins."""

    def __init__(self, tool, rail, tcp_port):
        self.tool = tool
        self.program = _started(command(tool, rail, tcp_port), rail)
        deadline = time.monotonic() + START_S
        while not listens(tcp_port):
            if self.program.poll() is not None:
                raise Failed(f"{tool} that waits: {_last_words(self.program.communicate()[0])}")
            if time.monotonic() > deadline:
                self.end(0)
                raise Failed(f"{tool} did not listen within {START_S:g} s")
            time.sleep(0.02)

    def end(self, patience_s=5.0):
        try:
            self.program.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.communicate()


def listens(tcp_port, tables=LISTENING):
    """Whether some process of this node listens on the port; to try it would be taken for the client."""
    for table in tables:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        if any(line.split()[1].endswith(f":{tcp_port:04X}") and line.split()[3] == "0A" for line in lines):
            return True
    return False


def call(tool, rail, tcp_port, host):
    """The side that begins: Gb/s, or microseconds. Raises Failed."""
    program = _started([*command(tool, rail, tcp_port), host], rail)
    try:
        text, _ = program.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        raise Failed(f"{tool} did not end in {LIMIT_S:g} s") from None
    if program.returncode != 0:
        raise Failed(f"{tool} ended with {program.returncode}: {_last_words(text)}")
    return (bandwidth if tool == BANDWIDTH else latency)(text)


def bandwidth(text):
    """Gb/s: the average of the last row. perftest calls 2^20 bytes a MB."""
    unit = _AVERAGE.search(text)
    rows = _ROW.findall(text[unit.end() :]) if unit else []
    if not rows:
        raise Failed(f"no table of bandwidth was printed: {_last_words(text)}")
    average = float(rows[-1][0])
    return round(average if unit.group(1) == "Gb" else average * GBIT_OF_MIB, 2)


def latency(text):
    """Microseconds: the typical one, in the column behind the longest. Later columns may run into each other."""
    rows = _ROW.findall(text[text.index(_TYPICAL) :]) if _TYPICAL in text else []
    if not rows or not rows[-1][1]:
        raise Failed(f"no table of latency was printed: {_last_words(text)}")
    return float(rows[-1][1])


def _last_words(text):
    """The first line that complains, else the last one."""
    # perftest's own end, behind the line that says which option it does not take
    lines = [
        line.strip() for line in text.replace("Parser function exited with Error", "").splitlines() if line.strip(" -*")
    ]
    return next(filter(_COMPLAINT.search, lines), lines[-1] if lines else "it said nothing")
