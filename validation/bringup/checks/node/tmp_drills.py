"""Faults of a node's own folders: full, small, read-only. Data only."""

from __future__ import annotations

from typing import Any

from bringup.plan.drill import Command, Drill
from bringup.records import Outcome


def _tmp(options: str) -> Command:
    """/tmp of n1 is a filesystem in memory: what it may hold is what it holds now, and so much more."""
    script = (
        "head -c 64K /dev/zero >/tmp/held; used=$(df --output=used -B 1 /tmp | tail -n 1); "
        f"files=$(df --output=iused /tmp | tail -n 1); mount -o remount,{options} /tmp"
    )
    return ("on", "n1", "bash", "-c", script)


_AGAIN: Command = ("on", "n1", "mount", "-o", "remount,size=1g,nr_inodes=1m", "/tmp")


def _on_n1(id: str, fault: str, gate: str, says: str, **rest: Any) -> Drill:
    settled: dict[str, Any] = {"undo": (_AGAIN,)}
    return Drill(
        **{**settled, **rest},
        id=id,
        fault=fault,
        phase="discovery",
        gate=f"discovery.tmp.{gate}",
        subject="n1",
        outcome=Outcome.FAIL,
        says=says,
        silent=("n0",),
    )


DRILLS: tuple[Drill, ...] = (
    _on_n1(
        "tmp-full",
        "/tmp of one node is full",
        "writes",
        "No space left on device",
        inject=(_tmp("size=$used"),),
        consequences=(("discovery.tmp.space", "n1"),),
    ),
    _on_n1(
        "tmp-small",
        "/tmp of one node has room for 64 MiB",
        "space",
        "/tmp",
        inject=(_tmp("size=$((used + 67108864))"),),
        between=(0.05, 0.0626),
    ),
    _on_n1(
        "tmp-inodes",
        "/tmp of one node has room for 64 files",
        "files",
        "/tmp",
        inject=(_tmp("nr_inodes=$((files + 64))"),),
        between=(0, 64),
    ),
    _on_n1(
        "shm-read-only",
        "/dev/shm of one node is read-only",
        "writes",
        "Read-only file system",
        inject=(("on", "n1", "mount", "-o", "remount,ro", "/dev/shm"),),
        undo=(("on", "n1", "mount", "-o", "remount,rw", "/dev/shm"),),
    ),
)
