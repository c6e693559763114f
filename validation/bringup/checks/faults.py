"""Faults on the local cluster, and how to undo them, for the drills of several rooms."""

from __future__ import annotations

from bringup.plan.drill import Command, Drill
from bringup.records import Outcome

ALL = ("n0", "n2", "n3")  # the healthy ones of four nodes


def reread(file: str, how: str) -> Command:
    """`how`: bash that changes "$file" of Slurm's configuration. cgroup.conf is read by every step anyway."""
    then = "scontrol reconfigure" if file == "slurm.conf" else "true"
    return "sh", "bash", "-c", f'file="$(dirname "$SLURM_CONF")/{file}"; {how} && {then}'


def edited(edit: str, file: str = "slurm.conf") -> Command:
    return reread(file, f'cp "$file" "$file.good" && sed -i "{edit}" "$file"')


def put_back(file: str = "slurm.conf") -> Command:
    return reread(file, 'mv "$file.good" "$file"')


def login(script: str) -> Command:
    return ("sh", "bash", "-euc", script)


# Slurm pings a node that was silent for a third of SlurmdTimeout, and all nodes at that time after its own start. Newer
# versions start anew when they are reconfigured. So the job meets the next fault before Slurm notices it, even if the
# job starts late. The pause lets every node answer the reconfiguration first.
UNNOTICED: tuple[Command, ...] = (edited("s/^SlurmdTimeout=.*/SlurmdTimeout=600/"), ("sh", "sleep", "2"))


# the other parts of the phase are skipped, and incomplete
BINDING = (("BRINGUP_SMOKE_PARTS", "binding"),)


FOLDER = (("BRINGUP_SMOKE_PARTS", "folder"),)


# as if the run had been closed with these files: the checksums match, so only the contents show the fault
CLOSE_AGAIN = ' && rm closed.json && { "$PYTHON" -m bringup close . --exit-code 0 >closed.log || true; }'


# a driver that lists one GPU, on one node: no process there can see that GPU
DRIVER_OF_N1 = (
    ("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "/proc/driver"),
    ("on", "n1", "mkdir", "-p", "/proc/driver/nvidia/gpus/0000:1b:00.0"),
)
NO_DRIVER_ON_N1 = (("on", "n1", "umount", "/proc/driver"),)


INVENTORY = "raw/inventory.jsonl"


def evidence(
    id: str,
    fault: str,
    tamper: str,
    gate: str,
    subject: str,
    says: str,
    *,
    also: tuple[tuple[str, str], ...] = (),
    consequences: tuple[tuple[str, str], ...] = (),
) -> Drill:
    return Drill(
        id=id,
        fault=fault,
        phase="discovery",
        where="anywhere",
        tamper=tamper,
        gate=gate,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        says=says,
        also=also,
        consequences=consequences,
    )
