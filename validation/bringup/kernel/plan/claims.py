"""The six questions as claims, one sentence each, and the real hardware that their evidence needs:
validation/known/questions.yaml. The gates name the claims that they prove (`claims`, `bears_on`)."""

from typing import Literal

from bringup.kernel.records import Record, known

Real = Literal["gpu", "nccl", "fabric"]
"""Hardware or software that must be real: not a placeholder for a GPU, gloo for NCCL or TCP for a fabric."""
REAL_NAMES: dict[Real, str] = {"gpu": "GPU", "nccl": "NCCL", "fabric": "fabric"}


class Claim(Record):
    id: str
    question: int
    says: str
    phases: tuple[str, ...] = ()  # only verdicts of these phases; empty: of all phases
    least_nodes: int = 1  # of the run, and of a scale: on fewer nodes the claim is not asked
    most_nodes: int | None = None  # of a scale
    real: tuple[Real, ...] = ()
    shows: tuple[str, ...] = ()  # gates whose values are the answer's numbers
    drills: bool = False  # proved by the drills of this report
    optional: bool = False  # where it is not asked, its question is answered all the same
    of_sharing: bool = False  # it matters where two jobs run on one node


class _Table(Record):
    questions: dict[int, str]
    names: dict[int, str]  # where there is room for five words
    claims: tuple[Claim, ...]


_TABLE = known("questions", _Table)
QUESTIONS, QUESTION_NAMES, CLAIMS = _TABLE.questions, _TABLE.names, _TABLE.claims
