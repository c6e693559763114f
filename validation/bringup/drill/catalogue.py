"""Drills: declared faults with the gate and subject that must report them, in validation/checks/*.yaml behind `---`.

Commands are verbs of infrastructure-validation/local-cluster/cluster. Its nodes are called n0, n1, …
`environment` goes to the phase that is run. {size} is how large the fault is, in a drill that has sizes.
A drill that can be performed anywhere uses places instead of names: {n1} is the second node of the cluster, {rank3} the
rank that takes the place of rank 3 in the drill's shape, {gpus} or {gpus-1} a count. `Drill.placed` fills them in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bringup.kernel.errors import FileError
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import OF_FILES, Fields, by_id, documents
from bringup.kernel.plan.gate import Gate
from bringup.kernel.records import Outcome, Record, Value


def _words(command: Any) -> Any:
    """Split `off n1` into its words, as a shell does. Of {`on n1 bash -c`: script} the script, or list, stays whole."""
    if isinstance(command, str):
        return tuple(shlex.split(command))
    if isinstance(command, dict) and len(command) == 1:
        ((words, script),) = command.items()
        return (*shlex.split(words), *(script if isinstance(script, list) else [script]))
    return command


Command = Annotated[tuple[str, ...], BeforeValidator(_words)]
_PLACE = re.compile(r"\{(?:n(?P<node>\d)|rank(?P<rank>\d)|gpus(?P<less>-\d)?)\}")


@dataclass(frozen=True)
class Shape:
    """Shape of the cluster that a drill is declared for, and needs."""

    nodes: int = 2
    gpus_per_node: int = 2
    unconfined: bool = False  # the cluster does not confine devices, memory or cores
    simulate: str | None = None  # GPUs, driver and RDMA ports answer like this model's; +cuda: torch uses them

    @property
    def names(self) -> list[str]:
        """Name the nodes of such a local cluster."""
        return [f"n{number}" for number in range(self.nodes)]


class Sizes(Record):
    """How large a fault can be, from the largest to the smallest. The first is the drill's own."""

    unit: str
    of: tuple[float, ...] = Field(min_length=2)


class Drill(Record):
    id: str
    fault: str
    phase: str  # run while the fault is in place
    gate: str
    subject: str
    outcome: Outcome  # PASS: the fault must not make anything fail
    # What the verdict must say: its value, a number in a range, and whole words (… behind them: their beginning) of
    # what was observed or of its cause. The words may also be a signature that was found in the logs.
    value: Value | None = None
    between: tuple[float, float] | None = None
    says: str = ""
    # words of their own: {results}, the folder of all runs; {checkout}. {phase}: the name of its job
    inject: tuple[Command, ...] = ()
    during: tuple[Command, ...] = ()  # commands run when the file `when` exists
    when: str = "run.json"  # a file of the run; run.json: the run was opened
    undo: tuple[Command, ...] = ()
    wait_for: tuple[str, str] | None = None  # node and Slurm state, before the phase starts
    environment: dict[str, str] = Field(default_factory=dict)
    shape: Shape = Shape()
    tamper: str | None = None  # bash, in the folder of a healthy run; $OTHER is the folder of another one
    also: tuple[tuple[str, str], ...] = ()  # further (gate, subject) pairs that must have the same outcome
    silent: tuple[str, ...] = ()  # subjects on which every gate must pass
    consequences: tuple[tuple[str, str], ...] = ()  # patterns of (gate, subject) that this fault may make fail, too
    where: Literal["local-cluster", "anywhere"] = "local-cluster"  # anywhere: inside one's own job, on any cluster
    waits: bool = False  # it mostly waits, so other drills run at the same time, on another cluster
    # gate, and a pattern that the profile's expected value must match
    needs_expected: tuple[str, str] | None = None
    sizes: Sizes | None = None

    def of_size(self, size: float) -> Drill:
        """Return the fault in this size."""
        fields = ("fault", "inject", "during", "undo", "environment")
        return self._filled(lambda text: text.replace("{size}", f"{size:g}"), fields, sizes=None)

    def placed(self, names: Sequence[str], gpus: int) -> Drill:
        """Fill in the places of the drill, in its own size. names: nodes, enough for the shape. gpus: of a node."""
        if self.sizes is not None:
            return self.of_size(self.sizes.of[0]).placed(names, gpus)

        def text(declared: str) -> str:
            return _PLACE.sub(lambda match: _at_place(match, self.shape, names, gpus), declared)

        fields = ("subject", "says", "environment", "tamper", "also", "consequences", "silent")
        is_place = isinstance(self.value, str) and _PLACE.fullmatch(self.value)
        return self._filled(text, fields, value=int(text(str(self.value))) if is_place else self.value)

    @property
    def at_home(self) -> Drill:
        """Return the drill as it is performed on a local cluster of its shape."""
        return self.placed(self.shape.names, self.shape.gpus_per_node)

    def _filled(self, text: Callable[[str], str], fields: Sequence[str], **more: object) -> Drill:
        """With every word of these fields as `text` gives it."""
        return self.model_copy(update={name: _each(getattr(self, name), text) for name in fields} | more)


def _each(declared: Any, text: Callable[[str], str]) -> Any:
    if isinstance(declared, tuple):
        return tuple(_each(part, text) for part in declared)
    if isinstance(declared, dict):
        return {name: text(value) for name, value in declared.items()}
    return declared if declared is None else text(declared)


def _at_place(match: re.Match[str], shape: Shape, names: Sequence[str], gpus: int) -> str:
    if match["node"]:
        return names[int(match["node"])]
    if match["rank"]:  # it keeps its place on its node
        node, place = divmod(int(match["rank"]), shape.gpus_per_node)
        return str(node * gpus + min(place, gpus - 1))
    return str(gpus + int(match["less"] or 0))


class _File(Record):
    defaults: Fields = Field(default_factory=dict)  # of every drill that does not give its own
    sections: dict[str, Fields] = Field(default_factory=dict)  # title of a section -> defaults of its drills
    drills: dict[str, dict[str, Fields]]  # check -> drills by id


def read(path: Path, gates: Sequence[Gate]) -> list[Drill]:
    """Read the drills of a file of checks, in the order of its checks. Raises FileError."""
    _, text = documents(path)
    if not text:
        return []
    file = profile_text.valid(_File, profile_text.read(text, str(path), "drills", "drills"), text, str(path))
    known = {"drills": {gate.id for gate in gates}, "sections": {gate.guide.title for gate in gates}}
    for kind, names in known.items():
        for name in getattr(file, kind).keys() - names:
            line = profile_text.line_of(text, (kind, name))
            raise FileError(f"{path}:{line}: {kind}: the first part of the file has no {name!r}")
    drills = []
    for gate in gates:
        phase = {"phase": gate.phases[0]} if len(gate.phases) == 1 else {}
        shared = {"outcome": gate.severity, **phase, **file.defaults, **file.sections.get(gate.guide.title, {})}
        for id, own in file.drills.get(gate.id, {}).items():
            fields = {**shared, **own, "id": id, "gate": gate.id}
            drills.append(profile_text.valid(Drill, fields, text, str(path), ("drills", gate.id, id)))
    return drills


DECLARED: dict[str, Drill] = by_id(drill for path, gates in OF_FILES.items() for drill in read(path, gates))
DRILLS: tuple[Drill, ...] = tuple(drill.at_home for drill in DECLARED.values())
