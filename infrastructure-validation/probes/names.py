#!/usr/bin/env python3
"""Do the names of the nodes lead to the same addresses on every node, and each to the node that is meant?

  table NODE…     (one node) what each name leads to there, a fact a name: what the other nodes compare with
  compare TABLE   (every node) which names lead elsewhere here, which lead nowhere, how long the slowest took, which
                  addresses this node has, and where its own host name leads. Of a large fleet each node looks up
                  the MOST_LOOKED_UP names that follow its own, so that each name is looked up by as many nodes
Does not prove: that anything answers at these addresses. Run: srun --label --ntasks-per-node=1 python3 names.py …
"""

import ipaddress
import json
import queue
import socket
import sys
import threading
import time
from pathlib import Path

import addresses
from facts import Facts, node_name

DEADLINE_S = 20.0  # of all names together: a resolver that hangs must not hold up the phase
WORKERS = 32
LISTED = 500  # letters: names that differ are told one by one up to here; beyond it their number tells enough
NOWHERE = "none"
SHOWN = 3  # of names in a remark
MOST_LOOKED_UP = 256  # names of a node: 4,096 nodes that look up all ask a name server 17 million times in a second


def main():
    if sys.argv[1:2] == ["table"] and len(sys.argv) > 2:
        facts = Facts("names_table")
        table(facts, sys.argv[2:])
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 3:
        facts = Facts("names")
        compare(facts, Path(sys.argv[2]))
    else:
        sys.exit("usage: names.py table NODE… | compare TABLE")
    facts.finish()


def table(facts, names):
    """The address of each name. For its own name a node often finds another address than the others do (127.0.1.1), so
    the others are asked for it."""
    own_name = node_name()
    answers = look_up_all([name for name in names if name != own_name])
    for name in names:
        answer = answers.get(name) or Answer(None, "it is the name of the node that was asked", 0)
        facts.answered("names.address", answer.address, "text", answer.why, name)


def compare(facts, file):
    try:
        known = read_table(file)
    except (OSError, ValueError) as error:
        for quantity in ("discovery.names.unresolved", "names.different"):
            facts.unknown(quantity, "count", f"the table of names cannot be read: {error}")
        return
    own_name = node_name()
    answers = look_up_all(names_after(own_name, list(known)))
    facts.saw("names.looked_up", len(answers), "count")
    say_unresolved(facts, answers)
    if answers:
        slowest = max(answers, key=lambda name: answers[name].seconds)
        facts.saw("discovery.names.slowest", round(answers[slowest].seconds, 3), "s", remark=slowest)
    differ = [
        f"{name} {answer.address or NOWHERE}"
        for name, answer in answers.items()
        if answer.address is None or answer.address != known[name]
    ]
    facts.saw("names.different", len(differ), "count")
    facts.saw("names.differ", list(fitting(differ)), "text")
    say_own(facts, any(":" in address for address in known.values() if address))


def names_after(own_name, names):
    """The names after its own, around the end to the first ones."""
    place = names.index(own_name) if own_name in names else 0
    return [name for name in names[place:] + names[:place] if name != own_name][:MOST_LOOKED_UP]


def fitting(entries):
    """From the first one on, as many as a line holds."""
    room = LISTED
    for entry in entries:
        room -= len(entry)
        if room < 0:
            return
        yield entry


def say_unresolved(facts, answers):
    missing = [(name, answer.why) for name, answer in answers.items() if answer.address is None]
    more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    remark = "; ".join(f"{name}: {why}" for name, why in missing[:SHOWN]) + more
    facts.saw("discovery.names.unresolved", len(missing), "count", remark=remark or None)


def say_own(facts, with_ipv6):
    """The addresses that this node has, and the one that its own host name leads to."""
    try:
        own_addresses = sorted({address for several in addresses.by_interface().values() for address in several})
    except (OSError, ValueError) as error:
        facts.unknown("names.own_addresses", "text", f"the kernel does not tell the addresses: {error}")
    else:
        shown = [address for address in own_addresses if with_ipv6 or ":" not in address]
        facts.saw("names.own_addresses", shown, "text")
    host = socket.gethostname()
    answer = look_up_all([host])[host]
    words = f": {answer.why}" if answer.address is None else f" is {answer.address} there"
    outside = answer.address is not None and any(not is_loopback(each) for each in answer.address.split(","))
    facts.saw("discovery.names.reachable", outside, "flag", remark=f"its host name {host}{words}")


def is_loopback(address):
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback  # fe80::1%eth0


def read_table(file):
    """{name: address, or None where the node that was asked did not know it}. Raises OSError and ValueError: what made
    it did not finish, and no question would be put."""
    records = [json.loads(line) for line in file.read_text().splitlines()]
    known = {record["subject"]: record["value"] for record in records if record.get("quantity") == "names.address"}
    ends = [record["end"] for record in records if "end" in record]
    if not known or ends != [len(records) - 1]:
        raise ValueError(f"it has {len(known)} names, and no end that counts its facts")
    return known


class Answer:
    def __init__(self, address, why, seconds):
        self.address, self.why, self.seconds = address, why, seconds


def look_up_all(names, look_up=None, deadline_s=None):
    """{name: Answer}. Many at once, in threads that a resolver which hangs may keep: they end with this program."""
    look_up = look_up or address_of
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    waiting, answers, begun = queue.Queue(), queue.Queue(), time.monotonic()
    for name in names:
        waiting.put(name)

    def work():
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            try:
                address, why = look_up(name), None
            except (OSError, UnicodeError) as error:  # a part of a name may have 63 letters
                address, why = None, getattr(error, "strerror", None) or str(error)
            answers.put((name, Answer(address, why, time.monotonic() - start)))

    for _ in range(min(WORKERS, len(names))):
        threading.Thread(target=work, daemon=True).start()
    answered = {}
    while len(answered) < len(names):
        try:
            name, answer = answers.get(timeout=max(0.0, begun + deadline_s - time.monotonic()))
        except queue.Empty:
            break
        answered[name] = answer
    late = f"no answer within {deadline_s:g} s, in which {len(answered)} of {len(names)} names were answered"
    return {name: answered.get(name) or Answer(None, late, deadline_s) for name in names}


def address_of(name):
    """Its IPv4 addresses, else its IPv6 addresses, in an order of our own: a resolver may turn theirs around."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return ",".join(sorted({entry[4][0] for entry in socket.getaddrinfo(name, None, family)}))
        except socket.gaierror as error:
            failed = error
    raise failed


if __name__ == "__main__":
    main()
