#!/usr/bin/env python3
"""Is this folder one folder on all nodes? Asked from the nodes and from the submit host, where results are read.

Steps, each a job step or a call on the submit host, so that each is a barrier for the next:
  look DIR            (nodes)        look for the file `late`, which is not there yet: a cached "no" must go away later
  reference DIR TOKEN (submit host)  write the files `reference`, which nobody has looked for, and `late`
  node DIR TOKEN      (nodes)        read `reference`, then wait for `late`; write a file of this node's own
  check DIR TOKEN FILE_OF_NODES (submit host)  read every node's file
Does not prove: throughput, locking, coherence of a file that changes.
"""

import sys
from pathlib import Path

from facts import Facts
from faults import take_room
from shared_files import CACHED_S, SOON_S, caches, is_there, put, text_of, wait_for, wait_until


def look(facts, folder):
    facts.saw("smoke.fs.looked", not is_there(folder / "late"), "flag")


def reference(facts, folder, token):
    put(folder / "reference", token)
    put(folder / "late", token)
    facts.saw("smoke.fs.reference_written", True, "flag", "job")


def node(facts, folder, token):
    shared = wait_for({"reference": folder / "reference"}, token)["reference"][1] == token
    facts.saw("smoke.fs.reads_submit_host", shared, "flag")
    if shared:
        seconds, text = wait_for({"late": folder / "late"}, token, CACHED_S)["late"]
        came = "" if text == token else f"still not there after {CACHED_S:.0f} s; "
        facts.saw("smoke.fs.late_lookup", round(seconds, 3), "s", remark=came + caches(folder))
    else:
        facts.unknown("smoke.fs.late_lookup", "s", f"{folder / 'reference'} was not there after {SOON_S:.0f} s")
    try:
        put(folder / f"{facts.at}.node", f"{token} {facts.at}")
    except OSError as error:
        facts.unknown("smoke.fs.wrote", "flag", f"{folder}: {error.strerror}")
    else:
        facts.saw("smoke.fs.wrote", True, "flag")


def check(facts, folder, token, nodes):
    files = {name: folder / f"{name}.node" for name in Path(nodes).read_text().split()}
    waited = wait_until(files, lambda path, name: text_of(path) == f"{token} {name}", SOON_S)
    for name, (_, came) in waited.items():
        facts.saw("smoke.fs.seen_by_submit_host", came, "flag", name)


STEPS = {"look": (look, 1), "reference": (reference, 2), "node": (node, 2), "check": (check, 3)}


def main():
    step, count = STEPS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if step is None or len(sys.argv) != 2 + count:
        sys.exit("usage: shared_fs.py look DIR | reference DIR TOKEN | node DIR TOKEN | check DIR TOKEN FILE_OF_NODES")
    facts = Facts(f"shared_fs_{sys.argv[1]}")
    take_room(facts.at)
    step(facts, Path(sys.argv[2]), *sys.argv[3:])
    facts.finish()


if __name__ == "__main__":
    main()
