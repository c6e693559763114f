#!/usr/bin/env python3
"""A stand-in for ib_write_bw and ib_write_lat: two of them meet over TCP, and print what perftest prints.

A port is as fast as its rate in /sys/class/infiniband says, and the slower side decides. Keys of the state file:
    rail.mlx5_3=180            that device reaches 180 Gb/s; it is there without a file in /sys, too
    rail.mlx5_3=fail           its transfers end with an error
    rail.mlx5_3.n2=90          with node n2 it reaches 90 Gb/s
    rail.mlx5_3.mlx5_1=90      to that device of another node it reaches 90 Gb/s
    rail.total=800             the devices of the node that are busy at once share 800 Gb/s
    rail.mlx5_3.latency=40     a message takes so many microseconds
    rail.mlx5_3.interface=eth1 its bytes really go over that network interface to the other node's, and are timed
    loopback.mlx5_3=90         with itself it reaches 90 Gb/s (default: as rail.mlx5_3)
"""

import fcntl
import json
import os
import re
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

from tools import known_keys

HCAS = Path("/sys/class/infiniband")
REACHED = 0.965  # of its rate
USUAL_US = 2.1
GET_ADDRESS = 0x8915  # SIOCGIFADDR
CHUNK = bytes(2**18)
LINE = "-" * 87
WITH_VALUE = ("-d", "-i", "-p", "-D", "-q", "-s", "-n", "-x")
TITLE = {"ib_write_bw": "RDMA_Write BW Test", "ib_write_lat": "RDMA_Write Latency Test"}


def main():
    tool, options, host = Path(sys.argv[0]).name, {}, None
    if {"-h", "--help", "-V", "--version"} & set(sys.argv[1:]):  # an audit asks whether the program is there
        print(
            f"Usage:\n  {tool}            start a server and wait for connection\n  {tool} <host>     connect to server"
        )
        sys.exit(0)
    words = iter(sys.argv[1:])
    for word in words:
        if word in WITH_VALUE:
            options[word] = next(words)
        elif not word.startswith("-"):
            host = word
    device, known = options.get("-d", "mlx5_0"), known_keys()
    own_rate = known.get(f"rail.{device}") or rate_of(device, options.get("-i", "1"))
    if own_rate is None:
        print(f" IB device {device} not found\n Unable to find the Infiniband/RoCE device")
        sys.exit(1)
    local = {
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "rate": shared(known["rail.total"]) if host and tool == "ib_write_bw" and "rail.total" in known else own_rate,
        "device": device,
        "loopback": known.get(f"loopback.{device}", own_rate),
        "us": float(known.get(f"rail.{device}.latency", USUAL_US)),
    }
    interface = known.get(f"rail.{device}.interface") if tool == "ib_write_bw" else None
    seconds = float(options.get("-D", "2"))
    remote, measured = exchanged(local, host, int(options.get("-p", "18515")), interface, seconds)
    print("".join(f"{line}\n" for line in heading(tool, device, host is None, options)), end="")
    rates = [side["loopback" if host == "localhost" or remote["local"] else "rate"] for side in (local, remote)]
    ways = (f"rail.{device}.{remote['node']}", f"rail.{device}.{remote['device']}")
    rates += [known[way] for way in ways if way in known]
    if measured is not None:
        rates = [measured]
    if "fail" in rates:
        print(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0")
        sys.exit(1)
    if tool == "ib_write_bw":
        rate = min(map(float, rates))
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        print(
            f" 1048576    {int(rate * 238):<10}       {0:<7.2f}            {rate:<7.2f}\t\t     {rate / 8388.608:<7.6f}"
        )
    else:
        us = max(local["us"], remote["us"])
        print(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   ",
            end="",
        )
        print("99% percentile[usec]   99.9% percentile[usec] ")
        print(
            f" 8       5000          {us - 0.1:<7.2f}        {us * 3:<7.2f}      {us:<7.2f}  \t       {us:<7.2f}",
            end="",
        )
        print(f"     \t{0.05:<7.2f}\t\t{us + 0.3:<7.2f} \t\t{us * 2:<7.2f}")
    print(LINE)


def shared(total):
    """Gb/s of one of those that are busy at this moment."""
    here = Path(tempfile.gettempdir()) / f"rail-{os.environ.get('SLURMD_NODENAME')}-{os.getpid()}"
    here.touch()
    time.sleep(1)
    busy = len(list(here.parent.glob(here.name.rpartition("-")[0] + "-*")))
    here.unlink()
    return float(total) / busy


def rate_of(device, port):
    """Gb/s that it reaches, as text; None: there is no such port."""
    try:
        rate = re.match(r"([0-9.]+) Gb/sec", (HCAS / device / "ports" / port / "rate").read_text())
    except OSError:
        return None
    return str(round(float(rate[1]) * REACHED, 2)) if rate else None


def exchanged(local, host, port, interface, seconds):
    """The other side's own words, whether it is this node, and Gb/s over the interface, if there is one."""
    if host is None:
        print("\n" + "*" * 36 + "\n* Waiting for client to connect... *\n" + "*" * 36, flush=True)
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", port))
            server.listen(1)
            connection, _ = server.accept()
    else:
        try:
            connection = socket.create_connection((host, port), timeout=5)
        except OSError:
            print(f"Couldn't connect to {host}:{port}\nUnable to open file descriptor for socket connection", end="")
            print(" Unable to init the socket connection")
            sys.exit(1)
    with connection, connection.makefile("rw") as stream:
        stream.write(json.dumps({**local, "local": host == "localhost"}) + "\n")
        stream.flush()
        remote = json.loads(stream.readline())
        return remote, carried(stream, host is None, interface, seconds) if interface else None


def carried(stream, waits, interface, seconds):
    """Gb/s of one TCP connection between two interfaces, as the side that receives counts them."""
    here = address_of(interface)
    if not waits:
        with socket.create_connection(json.loads(stream.readline()), timeout=5, source_address=(here, 0)) as way:
            way.settimeout(None)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                way.sendall(CHUNK)
        return json.loads(stream.readline())
    with socket.create_server((here, 0)) as server:
        stream.write(json.dumps(server.getsockname()) + "\n")
        stream.flush()
        way, _ = server.accept()
    with way:
        received, begun = 0, time.monotonic()
        while got := len(way.recv(len(CHUNK))):
            received += got
    gbps = received * 8 / (time.monotonic() - begun) / 1e9
    stream.write(f"{gbps}\n")
    stream.flush()
    return gbps


def address_of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, GET_ADDRESS, struct.pack("256s", interface.encode()))
    return socket.inet_ntoa(answer[20:24])


def heading(tool, device, waits, options):
    depth = (
        " CQ Moderation   : 1" if waits or tool == "ib_write_lat" else " TX depth        : 128\n CQ Moderation   : 1"
    )
    addresses = [
        f" {side} address: LID 0x1{side[0] == 'l':d} QPN 0x0057 PSN 0xfdc71d RKey 0x1fffb9 VAddr 0x007f58a406e000"
        for side in ("local", "remote")
    ]
    return [
        *([" WARNING: BW peak won't be measured in this run."] if "-D" in options else []),
        LINE,
        f"                    {TITLE[tool]}",
        f" Dual-port       : OFF\t\tDevice         : {device}",
        f" Number of qps   : {options.get('-q', '1')}\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        " PCIe relax order: ON",
        " ibv_wr* API     : ON",
        depth,
        " Mtu             : 4096[B]",
        " Link type       : IB",
        " Max inline data : 0[B]",
        " rdma_cm QPs\t : OFF",
        " Data ex. method : Ethernet",
        LINE,
        *addresses,
        LINE,
    ]


if __name__ == "__main__":
    main()
