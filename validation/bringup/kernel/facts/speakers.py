"""Who may say what: a line of a step is bound to the node on which srun ran the task that printed it.

srun puts the number of the task before each line, and a task cannot change that. Slurm numbers tasks node by node, in
the order of its own table. So the label says which node a line is from, and a node speaks of itself alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from bringup.kernel.facts.parser_result import Parsed, lines
from bringup.kernel.plan.subjects import nodes_of
from bringup.kernel.records import Run

LABEL = re.compile(r" {0,9}(\d{1,9}): ")
_STEP = re.compile(r"([1-9]\d{0,3}) (\S+)\n")
_SCALE = re.compile(r"[a-z_]+-(1gpu|[1-9]\d{0,5})")
_RANK = re.compile(r"rank(\d{1,9})")
_NO_STEP = {  # files of facts that no step wrote -> the probe that did: on the batch host, or as a job of its own
    "names-table": "names_table",
    "fs-reference": "shared_fs_reference",
    "fs-check": "shared_fs_check",
    "array": "scheduler_array",
    "warning": "scheduler_warning",
}
_ABOUT_OTHERS = ("nccl.rank.", "train.rank.late", "names.address", "smoke.fs.seen_by_submit_host", "rail.")
"""Facts that one node tells of others: rank 0 of all ranks, and who compares nodes."""


@dataclass(frozen=True)
class Speakers:
    """The tasks that wrote a file."""

    nodes: Sequence[str]  # of the step, in Slurm's order
    tasks_per_node: int
    of_run: Collection[str]
    rank: str | None = None  # the file is this rank's own, and its lines have no label
    probe: str | None = None  # no step wrote the file: no label says on which node this probe ran

    def of_task(self, label: str, at: str, probe: str) -> str | None:
        """Say why nothing that this probe says for this node, behind this label, is believed."""
        if self.probe is None:
            return self.of_another(label if self.rank is None else self.rank, at)
        if label or probe != self.probe:
            return f"{self.probe} alone writes there, without a label of srun, and the line claims {at}"
        return None

    def of_subject(self, at: str, subject: str, quantity: str) -> str | None:
        """Say why a fact of this node about this subject is not believed."""
        if self.probe is None and subject.partition("/")[0] == at:
            return None
        if quantity.startswith((*_ABOUT_OTHERS, *([f"probe.{self.probe}."] if self.probe else []))):
            return None
        named = [node for node in nodes_of(subject) if node in self.of_run]
        if not named or (self.probe is None and at in named):
            return None
        return f"the line of {at} claims {quantity} of {subject}"

    def of_another(self, label: str, claimed: str) -> str | None:
        """Say why a line with this label is not one of the node that it claims."""
        place = int(label) // self.tasks_per_node if label else len(self.nodes)
        if place < len(self.nodes):
            expected = self.nodes[place]
            return None if claimed == expected else f"task {label} runs on {expected}, and the line claims {claimed}"
        return f"{f'the step has no task {label}' if label else 'no label of srun'}, and the line claims {claimed}"

    def as_labelled(self, claims: Iterable[tuple[str, str]]) -> Speakers | None:
        """Put the nodes in the order of the labels, where that is another one: Slurm may number the tasks by
        its topology. claims: (label, node) of lines. None where a task claims two nodes, or a node of the step is
        missing: so one node alone cannot claim another one's place."""
        named: list[set[str]] = [set() for _ in self.nodes]
        for label, node in claims:
            if (place := int(label or -1) // self.tasks_per_node) not in range(len(named)):
                return None
            named[place].add(node)
        order = [node for nodes in named if len(nodes) == 1 for node in nodes]
        if order == list(self.nodes) or sorted(order) != sorted(self.nodes):
            return None
        return replace(self, nodes=order)

    def of_labelled(self, label: str, subject: str) -> str | None:
        """Say why a labelled line is not believed about this subject."""
        named = (node for node in nodes_of(subject) if node in self.of_run)
        return next((why for node in named if (why := self.of_another(label, node))), None)


def of_file(stem: str, run: Run, placed: str | None) -> Speakers:
    """Return the tasks that wrote a file of raw/. placed: the text of its `.step` file; without one, its name says what
    is not usual: usually one task on each node of the job. A damaged `.step` file gives no node."""
    tasks = {"binding": run.gpus_per_node, "sweep": run.gpus_per_node, "bad-exit": 2}.get(stem, 1)
    nodes, rank = run.ran_on, None
    if match := _RANK.fullmatch(stem):
        tasks, rank = run.ranks_per_node, match[1]
    elif placed is not None:
        nodes, tasks = step(placed, nodes) or ([], 1)
    elif match := _SCALE.fullmatch(stem):
        alone = match[1] == "1gpu"
        nodes, tasks = nodes[: 1 if alone else int(match[1])], 1 if alone else run.gpus_per_node
    elif stem.startswith("inventory-"):
        nodes = [stem.removeprefix("inventory-")]
    return Speakers(nodes, tasks, {*run.nodes, *run.ran_on}, rank, _NO_STEP.get(re.sub(r"-\d{1,9}$", "", stem)))


def step(text: str, run_nodes: Sequence[str]) -> tuple[list[str], int] | None:
    """Read (nodes of a step in Slurm's order, tasks per node) of a `.step` file, `TASKS n3,n0`. None: it is damaged."""
    match = _STEP.fullmatch(text)
    if match is None or not set(named := match[2].split(",")) <= set(run_nodes):
        return None
    chosen = set(named)
    return [node for node in run_nodes if node in chosen], int(match[1])


def believed(text: str, where: str, speakers: Speakers, speaks_of: Callable[[str], str | None]) -> tuple[str, Parsed]:
    """Return the text of a tool that labels its lines, without what it says of nodes other than the task's own; and a
    problem for each line left out. speaks_of: the node that a line, without its label, is about; None: of none."""
    parsed, kept = Parsed(), lines(text)
    refusals, claims = Refusals(where), set()
    for number, line in enumerate(kept):
        label = LABEL.match(line)
        node = speaks_of(line[label.end() :] if label else line)
        if node is None:
            continue
        claims.add(((label[1] if label else ""), node))
        if (objection := speakers.of_another(label[1] if label else "", node)) is not None:
            refusals.note(objection, number + 1)
            kept[number] = ""
    if refusals and (by_label := speakers.as_labelled(claims)) is not None:
        return believed(text, where, by_label, speaks_of)
    parsed.problems += refusals.problems()
    return "\n".join(kept), parsed


class Refusals:
    """Lines that are not believed: one problem for each objection, at its first line."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._seen: dict[str, list[int]] = {}

    def note(self, objection: str, line: int) -> None:
        self._seen.setdefault(objection, [line, 0])[1] += 1

    def __bool__(self) -> bool:
        return bool(self._seen)

    def problems(self) -> list[str]:
        return [
            f"{self._where}:{first}: refused: {objection}" + (f" ({count} lines)" if count > 1 else "")
            for objection, (first, count) in self._seen.items()
        ]
