#!/usr/bin/env python3
"""Every RDMA port of this node with itself: what leaves it comes back to it, and crosses PCIe twice on its way.

Proves: that the NIC and its slot carry the port's rate both ways, without any other node. Does not prove: cable, switch
and GPU memory.
Run: srun --label --ntasks-per-node=1 python3 nic_loopback.py PORT
"""

import sys

import perftest
from facts import Facts


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("usage: nic_loopback.py PORT")
    facts, port = Facts("nic_loopback"), int(sys.argv[1])
    rates = perftest.ports()
    facts.saw("loopback.ports", len(rates), "count")
    for rail, rate in sorted(rates.items()):
        facts.saw(f"loopback.rate@{rail}", rate, "Gb/s")
        quantity = f"loopback.bandwidth@{rail}"
        try:
            facts.saw(quantity, alone(rail, port), "Gb/s")
        except perftest.NotThere as error:
            facts.unknown(quantity, "Gb/s", str(error))
        except perftest.Failed as error:
            facts.saw(quantity, 0.0, "Gb/s", remark=str(error))
    facts.finish()


def alone(rail, port):
    server = perftest.Server(perftest.BANDWIDTH, rail, port)
    try:
        return perftest.call(perftest.BANDWIDTH, rail, port, "localhost")
    finally:
        server.end()


if __name__ == "__main__":
    main()
