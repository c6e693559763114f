#!/usr/bin/env python3
"""Is this folder one folder on all nodes? Asked from the nodes and from the submit host, where results are read.

Steps, each a job step or a call on the submit host, so that each is a barrier for the next:
  look DIR            (nodes)        the reference file is not there yet, and this node has looked: a cached "no" must go away
  reference DIR TOKEN (submit host)  write the reference file
  node DIR TOKEN      (nodes)        read the reference file; write one of this node's own
  check DIR TOKEN NODE[,NODE…] (submit host)  read every node's file
Does not prove: throughput, locking, coherence of a file that changes.
"""

import os
import sys
import time
from pathlib import Path

from facts import Facts
from faults import take_room

PATIENCE_S = 5.0  # NFS attribute caches hold 3 s by default; a file that takes longer is reported with this lower bound
POLL_S = 0.02


def look(facts, folder):
    facts.saw("smoke.fs.looked", not (folder / "reference").exists(), "flag")


def reference(facts, folder, token):
    write(folder / "reference", token)
    facts.saw("smoke.fs.reference_written", True, "flag", "job")


def node(facts, folder, token):
    seconds, text = wait_for(folder / "reference")
    facts.saw("smoke.fs.read_reference", text == token, "flag")
    if text is None:
        facts.unknown("smoke.fs.late_lookup_s", "s", f"{folder / 'reference'} was not there after {PATIENCE_S:.0f} s")
    else:
        facts.saw("smoke.fs.late_lookup_s", round(seconds, 3), "s")
    try:
        write(folder / f"{facts.at}.node", f"{token} {facts.at}")
    except OSError as error:
        facts.unknown("smoke.fs.wrote", "flag", f"{folder}: {error.strerror}")
    else:
        facts.saw("smoke.fs.wrote", True, "flag")


def check(facts, folder, token, nodes):
    for name in nodes.split(","):
        text = wait_for(folder / f"{name}.node")[1]
        facts.saw("smoke.fs.seen_by_reference", text == f"{token} {name}", "flag", name)


def write(path, text):
    with path.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def wait_for(path):
    """(seconds it took, text), text None when it did not come in PATIENCE_S."""
    begun = time.monotonic()
    while True:
        waited = time.monotonic() - begun
        try:
            return waited, path.read_text()
        except OSError:
            if waited > PATIENCE_S:
                return waited, None
            time.sleep(POLL_S)


STEPS = {"look": (look, 1), "reference": (reference, 2), "node": (node, 2), "check": (check, 3)}


def main():
    step, count = STEPS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if step is None or len(sys.argv) != 2 + count:
        sys.exit("usage: shared_fs.py look DIR | reference DIR TOKEN | node DIR TOKEN | check DIR TOKEN NODE,…")
    facts = Facts(f"shared_fs_{sys.argv[1]}")
    take_room(facts.at)
    step(facts, Path(sys.argv[2]), *sys.argv[3:])
    facts.finish()


if __name__ == "__main__":
    main()
