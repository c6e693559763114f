"""A gate: what is checked, which source the expected value comes from, and the section of docs/ that helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from bringup.kernel.plan.rules import Rule
from bringup.kernel.records import Action, Limit, Outcome, Record

Per = Literal["job", "node", "pair", "link", "rank", "scale", "wide_scale"]
"""The subject of one verdict: the whole job, a node, an ordered pair of nodes (n0->n1, in the rounds of the circle), a
link (n0--n1, in the rounds of the tournament), a rank, or a scale: one GPU, then numbers of nodes (wide_scale: those
with more than one rank)."""


@dataclass(frozen=True)
class Fixed:
    """A value that is the same on every cluster: zero wrong values, an exit code that arrives."""

    value: Limit


RequestedField = Literal["gpus_per_node", "world_size", "scale_ranks", "scale_nodes", "strategy"]


@dataclass(frozen=True)
class Requested:
    """A value that this run requested, from run.json."""

    field: RequestedField


Source = Literal["profile", "fleet"]
"""profile: the number that the profile declares; if it declares none, the verdict is incomplete, never a pass.
fleet: no number; the nodes are compared with each other."""


How = Literal[
    "as-is", "each", "worst", "count", "against-peers", "against-all", "alike", "setting", "rise", "share", "computed"
]  # fmt: skip
FOLDS: tuple[str, ...] = get_args(How)
NUMBERS = ("gpus_per_node", "folders")
"""What may stand behind `of` and is no fact: GPUs of a node; the folder of the results and those of the site file."""
_IN_A_SENTENCE = ("value", "limit")
"""What `fails` may name in braces: what was observed, and what is expected, both with their unit."""
_FACT = re.compile(r"[a-zA-Z0-9_.]+@?\*?")
_FUNCTION = re.compile(r"[a-z_]+\.[a-z_]+")


class Fold(Record):
    """`from:` of a check: how what was observed of devices or ranks becomes the value that the check judges.

    `worst inventory.rdma.flaps of discovery.rdma.ports`: the fold (facts/fold.py says what each does), the facts, and
    behind `of` how many there must be: another fact, a number, or one of NUMBERS."""

    how: How = "as-is"
    facts: tuple[str, ...] = ()  # quantities; a * at the end: all that begin so. None: the check's own id
    of: str | None = None
    has: str | None = None  # of a setting: the word that it must list

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        how, *words = text.split() or [""]
        if how not in FOLDS:
            raise ValueError(f"{how!r} is no fold; there are {', '.join(FOLDS)}")
        of = words.pop() if words[-2:-1] == ["of"] else None
        words = words[:-1] if of is not None else words
        has = words.pop() if how == "setting" and words[-2:-1] == ["has"] else None
        facts = words[:-1] if has is not None else words
        if how == "computed" and (of or len(facts) > 1 or not all(map(_FUNCTION.fullmatch, facts))):
            raise ValueError("computed is followed by nothing, or by one function of a domain: gpu.driver_log")
        if how == "share" and of is None:
            raise ValueError("share is followed by counters, and behind `of` by the one that they are a share of")
        if how not in ("computed", "as-is") and not facts:
            raise ValueError(f"{how} is followed by a fact")
        if how == "setting" and len(facts) != 1:
            raise ValueError("setting is followed by one fact, and perhaps by `has` and a word")
        wrong = next((fact for fact in (*facts, *([of] if of else [])) if not _FACT.fullmatch(fact)), None)
        if wrong is not None or "of" in facts:
            raise ValueError(f"{wrong or text!r} is not the name of a fact")
        if of is not None and how not in ("rise", "share") and "." not in of and not of.isdigit() and of not in NUMBERS:
            raise ValueError(f"of {of}: needs a fact, a number, or one of {', '.join(NUMBERS)}")
        return {"how": how, "facts": tuple(facts), "of": of, "has": has}


class NoDrill(Record):
    """Why no drill makes a gate fail, and the test that shows it failing on evidence instead."""

    reason: str
    test: str  # file in tests/; it marks the tests in question with shows_failing


class Gate(Record):
    """A check of validation/checks/*.yaml."""

    id: str  # also the quantity of the observation that it judges, and its anchor in docs/
    phases: tuple[str, ...]
    # claims of kernel/plan/claims.py that it proves; and those that its failure contradicts, while its pass alone
    # does not test them
    claims: tuple[str, ...] = ()
    bears_on: tuple[str, ...] = ()
    proves: str  # what a pass says
    # what is wrong where it fails, and what that means for a job; the subject stands in front of it, the cause behind
    fails: str = "observed {value}, expected {limit}"
    per: Per
    fold: Fold = Field(default=Fold(), alias="from")
    unit: str
    rule: Rule
    expect: Fixed | Requested | Source
    guide: Guide  # help for a verdict that is not a pass
    action: Action | None = None  # where another one than that of its section usually helps
    needs: tuple[str, ...] = ()  # gates that must pass first: speed is not judged on the wrong rank count
    explained_by: tuple[str, ...] = ()  # gates of nodes: a node that fails one of them explains a failure of this one
    # if nodes differ without a majority, a node that fails one of these is the odd one
    decided_by: tuple[str, ...] = ()
    severity: Outcome = Outcome.FAIL  # WARN: worth a fix, but the run goes on
    # after these outcomes, phases that need this one do not run
    stops: tuple[Outcome, ...] = (Outcome.FAIL, Outcome.INCOMPLETE)
    command: str | None = None  # of a site's own check: bash that each node runs (kernel/plan/own.py)
    min_nodes: int = 1  # planned only for runs of at least this many nodes
    max_nodes: int | None = None  # of a scale
    min_ranks_per_node: int = 1  # ... and nodes with at least this many GPUs
    shared_nodes: bool = False  # ... and where two jobs may run on one node at the same time
    no_drill: NoDrill | None = None

    @field_validator("fails")
    @classmethod
    def _known_places(cls, fails: str) -> str:
        for _, name, form, conversion in Formatter().parse(fails):  # ValueError: a single brace
            if name is not None and (name not in _IN_A_SENTENCE or form or conversion):
                known = " and ".join(f"{{{place}}}" for place in _IN_A_SENTENCE)
                raise ValueError(f"{{{name}}} is not known here; there are {known}")
        return fails

    @property
    def helps(self) -> Action:
        return self.action or self.guide.action

    @property
    def fix(self) -> str:
        """Return the place in docs/ that says what to do."""
        return self.guide.page if self.command else f"docs/{self.guide.page}.md#{self.id}"


OF_SITE = "site."  # begins the id of a check of a site
Gates = Mapping[str, Gate]

_PLACE = re.compile(r"\{(\w+)\}")
PLACES = ("node", "nodes", "node_count", "gpus", "run", "job", "profile", "script")
"""Places in a command: one node that failed, all nodes of the run (n0,n1), their number, GPUs per node, the run's
folder, its Slurm job, its profile, its script."""


class Guide(Record):
    """Help for one gate, or for several that fail for the same reasons."""

    title: str  # the heading of the section
    page: str  # in docs/, without .md
    action: Action  # what usually helps, in one word
    next: tuple[str, ...] = ()  # commands; each runs as pasted once its places are filled

    def commands(self, known: Mapping[str, str]) -> list[str]:
        """Return `next` with its places filled. Leave out a command with an unknown place, because it would not run."""

        def value(match: re.Match[str]) -> str:
            return shlex.quote(known[match[1]]) if match[1] in PLACES else match[0]

        places = {command: {*_PLACE.findall(command)} & {*PLACES} for command in self.next}
        return [_PLACE.sub(value, command) for command in self.next if places[command] <= known.keys()]
