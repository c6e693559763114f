#!/usr/bin/env python3
"""Two nodes, one RDMA port after another: bandwidth in both directions and latency between ports of one name (a rail).

Each task of the step finds its pair in the round on its standard input; the first node of a pair waits, the second
leads and reports. Names of nodes lead to the network over which perftest arranges itself; the bytes go over the port.
Then all ports at once, each to its own name, and each to another name: as many ports further as the node's name says.
Proves: what these ports do for host memory. Does not prove: GPU memory, NCCL.
Run: srun --ntasks-per-node=1 python3 rails.py PORT <<<"n0,n3 n1,n2"   (PORT for the two, from PORT + 1 on for perftest)
"""

import json
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import listening
import perftest
from facts import Facts, node_name

PATIENCE_S = 30.0  # for the partner's start
ANSWER_S = perftest.LIMIT_S + perftest.START_S + 10


def say(stream, **words):
    stream.write(json.dumps(words) + "\n")
    stream.flush()


def hear(stream):
    line = stream.readline()
    if not line:
        raise ConnectionError("the partner ended the connection")
    return json.loads(line)


def wait(port):
    """Does what the partner asks for, until it says that it was all."""
    with listening.accepted(port, PATIENCE_S, ANSWER_S) as connection:
        stream = connection.makefile("rw")
        say(stream, rates=perftest.ports())
        waiting = []
        for request in iter(lambda: hear(stream), {"do": "end"}):
            try:
                if request["do"] == "serve":
                    waiting.append(perftest.Server(request["tool"], request["rail"], port + 1 + len(waiting)))
                    say(stream, ok=True)
                elif request["do"] == "stop":
                    while waiting:
                        waiting.pop().end()
                    say(stream, ok=True)
                else:
                    say(stream, value=perftest.call(request["tool"], request["rail"], port + 1, request["host"]))
            except perftest.Failed as error:
                say(stream, failed=str(error), missing=isinstance(error, perftest.NotThere))


class Leader:
    def __init__(self, facts, here, partner, port):
        self.facts, self.here, self.partner, self.port = facts, here, partner, port
        self.stream = None

    def lead(self):
        link = f"{self.partner}--{self.here}"
        try:
            with listening.connected(self.partner, self.port, PATIENCE_S, ANSWER_S) as connection:
                self.stream = connection.makefile("rw")
                remote, local = hear(self.stream)["rates"], perftest.ports()
                for node, rates in ((self.here, local), (self.partner, remote)):
                    self.facts.saw("rail.ports", len(rates), "count", node)
                    for rail, rate in sorted(rates.items()):
                        self.facts.saw(f"rail.rate@{rail}", rate, "Gb/s", node)
                rails = sorted(local.keys() & remote.keys())
                for rail in rails:
                    self.measure(rail)
                self.together(rails, rails, "together", local)
                shift = 1 + zlib.crc32(self.here.encode()) % max(1, len(rails) - 1)  # other nodes take other ways
                self.together(rails, rails[shift:] + rails[:shift], "crossed", local)
                say(self.stream, do="end")
            self.facts.saw("rail.met", True, "flag", link)
        except (OSError, ValueError) as error:  # a timeout is an OSError
            self.facts.unknown("rail.met", "flag", f"no answer: {error}", link)

    def measure(self, rail):
        """Towards the partner, back, and how long a message takes."""
        towards, back = f"{self.here}->{self.partner}", f"{self.partner}->{self.here}"
        self.report("bandwidth", "Gb/s", rail, towards, self.towards, perftest.BANDWIDTH)
        self.report("bandwidth", "Gb/s", rail, back, self.back, perftest.BANDWIDTH)
        self.report("latency", "us", rail, towards, self.towards, perftest.LATENCY)

    def together(self, rails, theirs, kind, rates):
        """Towards the partner over all ports at once, each of `rails` to the one of `theirs`: shares of their rates."""

        def share(number):
            try:
                gbps = perftest.call(perftest.BANDWIDTH, rails[number], self.port + 1 + number, self.partner)
            except perftest.Failed as error:
                return 0.0, str(error)
            return round(gbps / rates[rails[number]], 3), f"{gbps:g} Gb/s to {theirs[number]}"

        direction = f"{self.here}->{self.partner}"
        try:
            for rail in theirs:
                self.request(do="serve", tool=perftest.BANDWIDTH, rail=rail)
            with ThreadPoolExecutor(max(1, len(rails))) as pool:
                for rail, (value, words) in zip(rails, pool.map(share, range(len(rails)))):
                    self.facts.saw(f"rail.{kind}@{rail}", value, "share", direction, words)
        except perftest.Failed as error:
            self.facts.unknown(f"rail.{kind}@{theirs[0]}", "share", str(error), direction)
        finally:
            self.request(do="stop")

    def report(self, kind, unit, rail, direction, test, tool):
        """A test that failed has a bandwidth of 0, with the reason. One whose program is not there is unknown."""
        quantity = f"rail.{kind}@{rail}"
        try:
            self.facts.saw(quantity, test(tool, rail), unit, direction)
        except perftest.NotThere as error:
            self.facts.unknown(quantity, unit, str(error), direction)
        except perftest.Failed as error:
            if kind == "bandwidth":
                self.facts.saw(quantity, 0.0, unit, direction, str(error))
            else:
                self.facts.unknown(quantity, unit, str(error), direction)

    def request(self, **request):
        say(self.stream, **request)
        answer = hear(self.stream)
        if "failed" in answer:
            kind = perftest.NotThere if answer["missing"] else perftest.Failed
            raise kind(f"on {self.partner}: {answer['failed']}")
        return answer

    def towards(self, tool, rail):
        self.request(do="serve", tool=tool, rail=rail)
        try:
            return perftest.call(tool, rail, self.port + 1, self.partner)
        finally:
            self.request(do="stop")

    def back(self, tool, rail):
        server = perftest.Server(tool, rail, self.port + 1)
        try:
            return self.request(do="call", tool=tool, rail=rail, host=self.here)["value"]
        finally:
            server.end()


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: rails.py PORT <<<"n0,n3 n1,n2"')
    here, facts = node_name(), Facts("rails")
    for pair in sys.stdin.read().split():
        first, second = pair.split(",")
        if here == second:
            Leader(facts, here, first, int(sys.argv[1])).lead()
        elif here == first:
            try:
                wait(int(sys.argv[1]))
            except (OSError, ValueError) as error:  # the other node reports it
                print(f"{here}: {error}", file=sys.stderr)
    facts.finish()


if __name__ == "__main__":
    main()
