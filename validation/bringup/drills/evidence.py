"""Faults of the evidence itself, made in the copy of a healthy discovery. Data only."""

from __future__ import annotations

from bringup.drills.drill import Drill
from bringup.records import Outcome

# as if it had been so when the run was closed: the checksums are right, and only what the files say can tell
_CLOSE_AGAIN = ' && rm closed.json && { "$PYTHON" -m bringup close . --exit-code 0 >closed.log || true; }'
_INVENTORY = "raw/inventory.jsonl"


def _evidence(
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


EVIDENCE: tuple[Drill, ...] = (
    _evidence(
        "evidence-missing",
        "what the nodes said never arrived",
        f"rm {_INVENTORY}{_CLOSE_AGAIN}",
        "discovery.node.answered",
        "n1",
        "no evidence",
        also=(("discovery.node.answered", "n0"),),
    ),
    _evidence(
        "evidence-truncated",
        "what one node said is cut off at the end",
        f'sed -i \'/"at": "n1", "end"/d\' {_INVENTORY}{_CLOSE_AGAIN}',
        "discovery.node.answered",
        "n1",
        "no evidence",
    ),
    _evidence(
        "evidence-duplicated",
        "what the nodes said is there twice",
        f"cat {_INVENTORY} {_INVENTORY} >raw/twice && mv raw/twice {_INVENTORY}{_CLOSE_AGAIN}",
        "discovery.node.answered",
        "n1",
        "facts, and",
        also=(("discovery.node.answered", "n0"),),
    ),
    _evidence(
        "evidence-of-another-run",
        "what the nodes said belongs to another run",
        f'cp "$OTHER/{_INVENTORY}" raw/{_CLOSE_AGAIN}',
        "run.evidence",
        "job",
        "wrote it for run",
    ),
    _evidence(
        "evidence-from-the-future",
        "what the nodes said bears a date that has not come",
        f'sed -i \'s/"utc": "2/"utc": "9/\' {_INVENTORY}{_CLOSE_AGAIN}',
        "run.evidence",
        "job",
        "wrote it at 9…",
    ),
    _evidence(
        "evidence-edited",
        "a number is mended after the run",
        f'sed -i \'s/"value": 2,/"value": 3,/\' {_INVENTORY}',
        "run.evidence",
        "job",
        "inventory.jsonl was changed after the run was closed",
        consequences=(("discovery.gpu.count", "*"), ("discovery.slurm.gres", "*"), ("discovery.*", "*")),
    ),
    _evidence(
        "evidence-added",
        "a file is added after the run",
        f'cp "$OTHER/{_INVENTORY}" raw/inventory-n1.jsonl',
        "run.evidence",
        "job",
        "inventory-n1.jsonl came after the run was closed",
    ),
    _evidence(
        "evidence-removed",
        "a file is removed after the run",
        "rm raw/clock.jsonl",
        "run.evidence",
        "job",
        "clock.jsonl is gone",
    ),
    _evidence(
        "not-closed", "the record that a run ended is missing", "rm closed.json", "run.closed", "job", "no evidence"
    ),
)
