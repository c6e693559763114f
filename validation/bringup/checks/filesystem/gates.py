"""Gates of the shared filesystem. Data only."""

from __future__ import annotations

from bringup.plan.gate import Fixed, FromProfile, Gate, Per
from bringup.records import Outcome

_INFRA = "docs/02-infrastructure-validation.md#"
_WRITE = ("smoke.fs.pair.write",)


def _pair(case: str, proves: str, severity: Outcome = Outcome.FAIL) -> Gate:
    """One case of what a node sees of its neighbour's files: yes or no, per ordered pair writer->reader."""
    return Gate(
        id=f"smoke.fs.pair.{case}",
        phases=("smoke",),
        question=3,
        per="pair",
        proves=proves,
        quantity=f"smoke.fs.pair.{case}",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        severity=severity,
        fix=_INFRA + "file-coherence",
        needs=() if case in ("same_type", "write") else _WRITE,
    )


def _speed(name: str, per: Per, unit: str, quantity: str, proves: str, needs: tuple[str, ...] = ()) -> Gate:
    """At least what the profile declares."""
    return Gate(
        id=f"smoke.{name}",
        phases=("smoke",),
        question=3,
        per=per,
        proves=proves,
        quantity=quantity,
        unit=unit,
        rule="at_least",
        expect=FromProfile(),
        needs=needs,
        fix=_INFRA + "storage",
    )


GATES: tuple[Gate, ...] = (
    Gate(
        id="smoke.fs.reads_submit_host",
        phases=("smoke",),
        question=3,
        per="node",
        proves="the node read what the submit host had written",
        quantity="smoke.fs.read_reference",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        fix=_INFRA + "shared-fs",
    ),
    Gate(
        id="smoke.fs.seen_by_submit_host",
        phases=("smoke",),
        question=3,
        per="node",
        proves="the submit host read what the node had written",
        quantity="smoke.fs.seen_by_reference",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        fix=_INFRA + "shared-fs",
    ),
    Gate(
        id="smoke.fs.looked",
        phases=("smoke",),
        question=3,
        per="node",
        proves="the node had looked for the file before it existed",
        quantity="smoke.fs.looked",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        fix=_INFRA + "shared-fs",
    ),
    Gate(
        id="smoke.fs.late_lookup",
        phases=("smoke",),
        question=3,
        per="node",
        severity=Outcome.WARN,
        proves="a file that the node had looked for in vain was seen soon after it existed",
        quantity="smoke.fs.late_lookup_s",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        needs=("smoke.fs.looked", "smoke.fs.reads_submit_host"),
        fix=_INFRA + "shared-fs",
    ),
    Gate(
        id="smoke.fs.writes",
        phases=("smoke",),
        question=3,
        per="node",
        proves="the node could write in the results folder",
        quantity="smoke.fs.write_error",
        unit="text",
        rule="equals",
        expect=Fixed("none"),
        fix=_INFRA + "shared-fs",
    ),
    _pair("same_type", "both nodes have the same type of filesystem under the results folder"),
    _pair("write", "the second node read what the first had written"),
    _pair("attributes", "size and time of change of the file are the same on both nodes"),
    _pair("append", "the second node, which had read the file before, saw what the first then appended"),
    _pair("rename", "the second node saw the new file after the first had renamed it over the old one"),
    _pair("unlink", "the second node no longer saw a file that the first had removed"),
    # training takes no lock
    _pair("lock_refused", "a lock (flock) that the first node held was refused to the second", severity=Outcome.WARN),
    Gate(
        id="smoke.fs.pair.exclusive",
        phases=("smoke",),
        question=3,
        per="pair",
        proves="of two nodes that made one name exclusively (O_EXCL) exactly one succeeded",
        quantity="smoke.fs.pair.winners",
        unit="count",
        rule="equals",
        expect=Fixed(1),
        needs=_WRITE,
        fix=_INFRA + "file-coherence",
    ),
    Gate(
        id="smoke.fs.pair.late_lookup",
        phases=("smoke",),
        question=3,
        per="pair",
        severity=Outcome.WARN,
        proves="a file that the second node had looked for in vain was seen there soon after the first had made it",
        quantity="smoke.fs.pair.late_lookup_s",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        needs=_WRITE,
        fix=_INFRA + "file-coherence",
    ),
    _speed(
        "storage.write",
        "job",
        "GB/s",
        "smoke.storage.alone.write",
        "one node alone writes fast enough (synced)",
    ),
    _speed("storage.read", "job", "GB/s", "smoke.storage.alone.read", "one node alone reads fast enough"),
    _speed(
        "storage.write_together",
        "node",
        "GB/s",
        "smoke.storage.together.write",
        "the node writes fast enough while all nodes write",
    ),
    _speed(
        "storage.files",
        "node",
        "1/s",
        "smoke.storage.files",
        "the node makes, finds and removes files fast enough",
    ),
)
