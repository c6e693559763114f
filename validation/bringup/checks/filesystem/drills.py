"""Faults of the shared filesystem. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks.faults import FOLDER
from bringup.plan.drill import FOUR_NODES, Command, Drill, NoDrill
from bringup.records import Outcome

_UMOUNT: tuple[Command, ...] = (("on", "n1", "umount", "{results}"),)
_HIDDEN: tuple[Command, ...] = (("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),)
_NO_JOBS = (("BRINGUP_SMOKE_PARTS", "binding folder compute storage"),)
_STORAGE = (("BRINGUP_SMOKE_PARTS", "storage"), ("BRINGUP_STORAGE_MIB", "8"))

# The login host and both nodes see the whole checkout as a stock NFS client does: a missing name is kept for 30 s.
# lazy: whoever unmounts it may stand in it.
_NFS_HOSTS = ("ctl", "n0", "n1")
_NFS: tuple[Command, ...] = tuple(("nfs-like", host, "{checkout}") for host in _NFS_HOSTS)
_NO_NFS: tuple[Command, ...] = (
    ("on", "n0", "umount", "--lazy", "{checkout}"),
    ("on", "n1", "umount", "--lazy", "{checkout}"),
    ("sh", "umount", "--lazy", "{checkout}"),
)
_NFS_PARTS = (*_NO_JOBS, ("BRINGUP_STORAGE_MIB", "8"))
_NFS_IS_SLOW = (("smoke.storage.*", "*"),)  # a client in user space on a busy disk says nothing about speed


def _bash(script: str) -> Command:
    """On n1; the folder of all runs is $0."""
    return ("on", "n1", "bash", "-euc", script, "{results}")


# A full overlay of 64 KiB over the results folder. Other nodes do not see what n1 writes into it, and n1 keeps its old
# lookups.
_FULL = _bash(
    "mkdir -p /tmp/full && mount -t tmpfs -o size=64k,nr_inodes=64 tmpfs /tmp/full && "
    "mkdir /tmp/full/upper /tmp/full/work && { head -c 1M /dev/zero >/tmp/full/upper/fill || true; } 2>/dev/null && "
    'mount -t overlay -o "lowerdir=$0,upperdir=/tmp/full/upper,workdir=/tmp/full/work" overlay "$0"'
)


def _room(options: str) -> Command:
    """What n1 sees of the results folder has the room of a filesystem in memory."""
    return _bash(
        f"mkdir -p /tmp/room && mount -t tmpfs -o {options} tmpfs /tmp/room && mkdir /tmp/room/upper /tmp/room/work && "
        'mount -t overlay -o "lowerdir=$0,upperdir=/tmp/room/upper,workdir=/tmp/room/work" overlay "$0"'
    )


_ROOM_AGAIN: tuple[Command, ...] = (("on", "n1", "umount", "{results}"), ("on", "n1", "umount", "/tmp/room"))

# An overlay over the folder shows what was there, and keeps what it once looked up, as a stale attribute cache does:
# changes that n0 makes stay unseen on n1, and what n1 makes stays there.
_STALE = _bash(
    'mkdir -p /tmp/upper /tmp/work && mount -t overlay -o "lowerdir=$0,upperdir=/tmp/upper,workdir=/tmp/work" '
    'overlay "$0"'
)


def _own_file(drill: str, name: str, text: str) -> tuple[Command, ...]:
    """n1 sees a file of its own under the name that n0 writes to, as soon as the folder is there and before n0 does."""
    return (
        _bash(f"""until folder=$(ls -dt "$0"/smoke/*-{drill}*/raw/shared_fs | head -n 1)
        [[ -n $folder ]]; do sleep 0.05; done 2>/dev/null
        touch "$folder/{name}"
        printf '{text}' >/tmp/{name} && touch -d '1 hour ago' /tmp/{name}
        mount --bind /tmp/{name} "$folder/{name}\""""),
    )


_NO_OWN_FILE: tuple[Command, ...] = (
    (
        "on",
        "n1",
        "bash",
        "-euc",
        """awk '$2 ~ "/raw/shared_fs/" { print $2 }' /proc/mounts |
        while read -r point; do umount "$(printf %b "$point")"; done""",  # a space is written \040 there
    ),
)


def _folder(id: str, fault: str, gate: str, says: str, inject: tuple[Command, ...], **rest: Any) -> Drill:
    """n1 has no room or no right in the results folder; it is asked before the first phase writes there."""
    return Drill(
        **rest,
        id=id,
        fault=fault,
        phase="discovery",
        inject=inject,
        gate=f"discovery.folders.{gate}",
        subject="n1",
        outcome=Outcome.FAIL,
        says=says,
        silent=("n0",),
    )


DRILLS: tuple[Drill, ...] = (
    _folder(
        "folder-read-only",
        "one node cannot write to the results folder",
        "writes",
        "Read-only file system",
        (
            ("on", "n1", "mount", "--bind", "{results}", "{results}"),
            ("on", "n1", "mount", "-o", "remount,bind,ro", "{results}"),
        ),
        undo=_UMOUNT,
    ),
    _folder(
        "folder-small",
        "for one node the results folder has room for 64 MiB",
        "space",
        "results",
        (_room("size=64m"),),
        undo=_ROOM_AGAIN,
        between=(0.05, 0.0626),
    ),
    _folder(
        "folder-inodes",
        "for one node the results folder has room for a few hundred files",
        "files",
        "results",
        (_room("size=4g,nr_inodes=500"),),
        undo=_ROOM_AGAIN,
        between=(1, 500),
    ),
    Drill(
        id="path-full",
        waits=True,
        fault="the results folder is full for one node",
        phase="smoke",
        inject=(_FULL,),
        undo=(("on", "n1", "umount", "{results}"), ("on", "n1", "umount", "/tmp/full")),
        environment=(("BRINGUP_SMOKE_PARTS", "folder"),),
        gate="smoke.fs.writes",
        subject="n1",
        outcome=Outcome.FAIL,
        says="No space left",
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "n?->n?")),
    ),
    Drill(
        id="path-not-shared",
        waits=True,
        fault="the results folder is not shared on one node",
        phase="smoke",
        inject=_HIDDEN,
        undo=_UMOUNT,
        environment=FOLDER,
        gate="smoke.fs.reads_submit_host",
        subject="n1",
        outcome=Outcome.FAIL,
        value=False,
        # on two nodes both pairs hold the bad node
        also=(
            ("smoke.fs.seen_by_submit_host", "n1"),
            ("smoke.fs.writes", "n1"),
            ("smoke.fs.pair.write", "n0->n1"),
            ("smoke.fs.pair.write", "n1->n0"),
            ("smoke.fs.pair.same_type", "n0->n1"),
            ("smoke.fs.pair.same_type", "n1->n0"),
        ),
    ),
    Drill(
        id="path-not-shared-of-four",
        fault="the results folder is not shared on one node of four",
        phase="smoke",
        shape=FOUR_NODES,
        inject=_HIDDEN,
        undo=_UMOUNT,
        environment=_NO_JOBS,
        gate="smoke.fs.pair.write",
        subject="n1->n2",
        outcome=Outcome.FAIL,
        value=False,
        also=(("smoke.fs.pair.write", "n0->n1"),),
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "*n1*")),
        silent=("n0", "n2", "n3", "n2->n3", "n3->n0", "n0->n2", "n3->n2"),
    ),
    Drill(
        id="nfs-client",
        waits=True,
        fault="none: all hosts have the caches of a stock NFS client, and no gate may fail",
        phase="smoke",
        inject=_NFS,
        undo=_NO_NFS,
        environment=_NFS_PARTS,
        gate="smoke.fs.late_lookup",
        subject="n1",
        outcome=Outcome.PASS,
        between=(15, 32),  # the client did keep the missing name
        consequences=_NFS_IS_SLOW,
        silent=("n0", "n1", "n0->n1", "n1->n0"),
    ),
    Drill(
        id="nfs-client-not-shared",
        waits=True,
        fault="the results folder is not shared on one node, and all hosts have the caches of a stock NFS client",
        phase="smoke",
        inject=(*_HIDDEN, *_NFS),
        undo=(*_NO_NFS, *_UMOUNT),
        environment=_NFS_PARTS,
        gate="smoke.fs.reads_submit_host",
        subject="n1",
        outcome=Outcome.FAIL,
        value=False,
        consequences=(("smoke.fs.*", "n1"), ("smoke.fs.pair.*", "*n1*"), *_NFS_IS_SLOW),
        silent=("n0",),
    ),
    Drill(
        id="path-read-only",
        waits=True,
        fault="the results folder is mounted read-only on one node",
        phase="smoke",
        inject=(
            ("on", "n1", "mount", "--bind", "{results}", "{results}"),
            ("on", "n1", "mount", "-o", "remount,bind,ro", "{results}"),
        ),
        undo=_UMOUNT,
        environment=FOLDER,
        gate="smoke.fs.writes",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Read-only",
        consequences=(("smoke.fs.seen_by_submit_host", "n1"), ("smoke.fs.pair.write", "n1->n0")),
    ),
    Drill(
        id="no-room",
        fault="one node cannot write any byte into its files",
        phase="smoke",
        where="anywhere",
        environment=(("BRINGUP_DRILL", "no-room:{n1}"), *FOLDER),
        gate="smoke.fs.writes",
        subject="{n1}",
        outcome=Outcome.FAIL,
        says="File too large",
        consequences=(("smoke.fs.*", "{n1}"), ("smoke.fs.pair.*", "*{n1}*")),
    ),
    Drill(
        id="stale-lookups",
        waits=True,
        fault="one node keeps old directory entries",
        phase="smoke",
        inject=(_STALE,),
        undo=_UMOUNT,
        environment=FOLDER,
        gate="smoke.fs.pair.rename",
        subject="n0->n1",
        outcome=Outcome.FAIL,
        value=False,
        also=(
            ("smoke.fs.pair.unlink", "n0->n1"),
            ("smoke.fs.pair.exclusive", "n0->n1"),
        ),
        consequences=(
            ("smoke.fs.late_lookup", "n1"),
            ("smoke.fs.seen_by_submit_host", "n1"),
            ("smoke.fs.pair.*", "n*"),
        ),
    ),
    Drill(
        id="stale-copy",
        fault="one node keeps an old copy of a file",
        phase="smoke",
        environment=FOLDER,
        during=_own_file("stale-copy", "n0.data", r"first\n"),
        undo=_NO_OWN_FILE,
        gate="smoke.fs.pair.attributes",
        subject="n0->n1",
        outcome=Outcome.FAIL,
        value=False,
        also=(("smoke.fs.pair.append", "n0->n1"),),
    ),
    Drill(
        id="local-locks",
        fault="the locks of one node are not seen by the others",
        phase="smoke",
        environment=FOLDER,
        during=_own_file("local-locks", "n0.lock", ""),
        undo=_NO_OWN_FILE,
        gate="smoke.fs.pair.lock_refused",
        subject="n0->n1",
        outcome=Outcome.WARN,
        value=False,
    ),
    Drill(
        id="looked-late",
        fault="the nodes look for a file only when it already exists",
        phase="smoke",
        where="anywhere",
        environment=(("BRINGUP_DRILL", "looked-late"), *FOLDER),
        gate="smoke.fs.looked",
        subject="{n1}",
        outcome=Outcome.FAIL,
        value=False,
        also=(("smoke.fs.looked", "{n0}"),),
    ),
    Drill(
        id="slow-storage",
        fault="one node reads and writes slowly",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "slow-storage:{n0}"), *_STORAGE),
        where="anywhere",
        gate="smoke.storage.files",
        subject="{n0}",
        outcome=Outcome.FAIL,
        says="1/s",
        between=(4, 11),
        also=(("smoke.storage.write_together", "{n0}"), ("smoke.storage.write", "job"), ("smoke.storage.read", "job")),
    ),
)

NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=("smoke.fs.late_lookup", "smoke.fs.pair.late_lookup"),
        reason=(
            "no filesystem here is that late and still comes; where names never come (stale-lookups), both warn "
            "beside its failures"
        ),
        test="checks/filesystem/test_filesystem.py",
    ),
)
