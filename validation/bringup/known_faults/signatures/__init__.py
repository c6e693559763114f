"""What known faults leave behind: a line or an exit code -> its cause -> the next command. Data only, a file per area.

The first match of a line counts. Exact signatures are tried first, in the order of the areas and then of the file;
then those that know only the program; then errno words. So NCCL's own words explain a line of NCCL, and the subject
of a line (shared memory, locked memory, a queue pair) comes before the errno at its end. Why a job waits is in
pending.py, what a message of the driver asks for in xid.py; docs/07-failure-modes.md is made from all three.
"""

from __future__ import annotations

from bringup.known_faults.signature import Signature
from bringup.known_faults.signatures import data, gpu, nccl, node, pytorch, slurm

EXIT_CODES = {
    2: "bringup could not tell, or an argument was wrong: its own line says which",
    126: "a program may not be executed here (permissions, or a mount with noexec)",
    127: "a program is not there on this node",
    134: "abort (SIGABRT): an assertion, often in a library whose peer was lost",
    135: "bus error (SIGBUS): /dev/shm full, or a file cut off under a mapping",
    137: "killed (SIGKILL): the kernel's memory killer, a limit of Slurm, or a person",
    139: "crashed (SIGSEGV)",
    143: "ended (SIGTERM): by Slurm, or by torchrun because another rank had failed",
}
"""Exit codes of a step, as the shell counts them: 128 + signal. Source: bash(1), EXIT STATUS; signal(7)."""

_BREADTHS = ("exact", "program", "errno")
_BY_AREA: tuple[Signature, ...] = (
    *slurm.SIGNATURES,
    *gpu.SIGNATURES,
    *nccl.SIGNATURES,
    *pytorch.SIGNATURES,
    *node.SIGNATURES,
    *data.SIGNATURES,
)

SIGNATURES = {signature.id: signature for signature in _BY_AREA}
"""By area, as a reader looks them up."""

IN_ORDER: tuple[Signature, ...] = tuple(sorted(_BY_AREA, key=lambda signature: _BREADTHS.index(signature.breadth)))
"""As a line is matched."""
