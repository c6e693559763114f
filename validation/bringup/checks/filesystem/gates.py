"""Gates of the shared filesystem. Data only."""

from __future__ import annotations

from bringup.checks import folders
from bringup.checks.filesystem import guides
from bringup.plan.gate import Fixed, FromProfile, Gate, Per
from bringup.records import Limit, Outcome

_PAIR_WRITE = "smoke.fs.pair.write"


def _folder(name: str, proves: str, expected: Limit = True, unit: str = "flag") -> Gate:
    """A gate on the files that a node and the submit host see of each other."""
    return Gate(
        id=f"smoke.fs.{name}",
        phases=("smoke",),
        claims=("coherent" if name == "looked" else "one-folder",),
        per="node",
        proves=proves,
        unit=unit,
        rule="equals",
        expect=Fixed(expected),
        guide=guides.SHARED_FOLDER,
    )


def _pair(case: str, proves: str, expected: Limit = True, unit: str = "flag", severity: Outcome = Outcome.FAIL) -> Gate:
    """A gate on one case of a node reading its neighbour's files, per ordered pair writer->reader."""
    return Gate(
        id=f"smoke.fs.pair.{case}",
        phases=("smoke",),
        claims=("one-folder" if case == "same_type" else "coherent",),
        per="pair",
        proves=proves,
        unit=unit,
        rule="equals",
        expect=Fixed(expected),
        severity=severity,
        guide=guides.COHERENCE,
        needs=() if case in ("same_type", "write") else (_PAIR_WRITE,),
    )


def _speed(name: str, per: Per, unit: str, proves: str) -> Gate:
    """A floor that the profile declares."""
    return Gate(
        id=f"smoke.storage.{name}",
        phases=("smoke",),
        claims=("storage-fast",),
        per=per,
        proves=proves,
        unit=unit,
        rule="at_least",
        expect=FromProfile(),
        guide=guides.STORAGE,
    )


GATES: tuple[Gate, ...] = (
    _folder("reads_submit_host", "the node read what the submit host had written"),
    _folder("seen_by_submit_host", "the submit host read what the node had written"),
    _folder("looked", "the node had looked for the file before it existed"),
    Gate(
        id="smoke.fs.late_lookup",
        phases=("smoke",),
        bears_on=("coherent",),
        per="node",
        severity=Outcome.WARN,
        proves="a file that the node had looked for too early was seen soon after it existed",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        needs=("smoke.fs.looked", "smoke.fs.reads_submit_host"),
        guide=guides.SHARED_FOLDER,
    ),
    _folder("writes", "the node could write in the results folder", "none", "text"),
    _pair("same_type", "both nodes have the same type of filesystem under the results folder"),
    _pair("write", "the second node read what the first had written"),
    _pair("attributes", "size and time of change of the file are the same on both nodes"),
    _pair("append", "the second node, which had read the file before, saw what the first then appended"),
    _pair("rename", "the second node saw the new file after the first had renamed it over the old one"),
    _pair("unlink", "the second node no longer saw a file that the first had removed"),
    # training takes no lock
    _pair("lock_refused", "a lock (flock) that the first node held was refused to the second", severity=Outcome.WARN),
    _pair("exclusive", "of two nodes that made one name exclusively (O_EXCL) exactly one succeeded", 1, "count"),
    Gate(
        id="smoke.fs.pair.late_lookup",
        phases=("smoke",),
        bears_on=("coherent",),
        per="pair",
        severity=Outcome.WARN,
        proves="a file that the second node had looked for too early was seen there soon after the first had made it",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        needs=(_PAIR_WRITE,),
        guide=guides.COHERENCE,
    ),
    _speed("write", "job", "GB/s", "one node alone writes fast enough (synced)"),
    _speed("read", "job", "GB/s", "one node alone reads fast enough"),
    _speed("write_together", "node", "GB/s", "the node writes fast enough while all nodes write"),
    _speed("files", "node", "1/s", "the node makes, finds and removes files fast enough"),
    *folders.gates(
        "discovery.folders", "the results folder and in the folders of the site file", "storage-fast", guides.FOLDERS
    ),
)
