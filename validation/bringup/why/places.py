"""The node of a rank or of a task of a job that bringup did not start. Pure.

A rank is no task: torchrun starts one task on a node, and the ranks of that node in it. So a place is said only where
something carries it: torchrun's list of hosts, a line with the labels of both, srun's line about the end of a task, or
the accounting, which has the layout of each step. Else it is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.why.job_log import JobLog

HOW_TO_LEARN = "no line of its logs says it; started with `srun --label`, each line names its task"


@dataclass(frozen=True)
class Step:
    """A step of srun, as the accounting has it."""

    nodes: Sequence[str]  # in Slurm's order
    tasks: int
    layout: str  # Block, Cyclic, BCyclic (block over nodes, cyclic over sockets), Plane, ...
    of_a_node: int = 0  # tasks, as the job requested; 0: it did not, and free cores decide how many each node gets
    state: str = ""  # how it ended

    def node_of(self, task: int) -> str:
        """Return the node of a task. Empty: not known."""
        count, is_block = len(self.nodes), self.layout.startswith("B")
        if not count <= self.tasks > task or not (is_block or self.layout.startswith("C")) or not count:
            return ""
        each = 1 if self.tasks == count else self.of_a_node
        if each * count == self.tasks:
            return self.nodes[task // each if is_block else task % count]
        if is_block:  # of several tasks; each node has at least one
            return {0: self.nodes[0], self.tasks - 1: self.nodes[-1]}.get(task, "")
        return self.nodes[task] if task < count else ""


@dataclass(frozen=True)
class Places:
    """What the accounting and one log say of a job."""

    nodes: Sequence[str]
    tasks: int  # of the job; 0: not known
    steps: Sequence[Step]
    log: JobLog
    is_in_order: bool = True  # tasks are numbered along the node list

    def of_rank(self, rank: int) -> str:
        """Return the node of a rank. Empty: not known."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        if not self.nodes:  # a log alone: its own word
            return self.log.hosts.get(rank, "").replace("localhost", "")
        if node := self._as_torchrun_lists(rank):
            return node
        task = self.task_of(rank)
        return "" if task is None else self.of_task(task)

    def of_task(self, task: int) -> str:
        """Return the node of a task by its label. Empty: not known."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        named = {end.node for end in self.log.ended if end.task == task} or self._by_layout(task)
        return named.pop() if len(named) == 1 else ""

    def task_of(self, rank: int) -> int | None:
        return self.log.tasks.get(rank, rank if self.ranks_are_tasks else None)

    @property
    def ranks_are_tasks(self) -> bool:
        """Say whether ranks are tasks. With one task on a node it may be torchrun's, whose ranks are more than its
        tasks: then a line with labels of both must say it. Task 0 of torchrun has rank 0, too."""
        if any(both := self.log.tasks):
            return all(rank == task for rank, task in both.items())
        if self.log.starts or not self.steps:
            return False
        return all(step.tasks > max(len(step.nodes), self.log.last_rank) for step in self.steps)

    def _as_torchrun_lists(self, rank: int) -> str:
        """Find a rank's host. torchrun names hosts, and some ranks on each: the ranks between are there as well."""
        if self.log.hosts.get(rank) in self.nodes:
            return self.log.hosts[rank]
        starts = {start: host for start, host in self.log.starts.items() if host in self.nodes}
        before = [start for start in starts if start <= rank]
        if not before:
            return ""
        is_whole = len(set(starts.values())) == len(self.nodes) == len(starts)
        start = max(before)
        return starts[start] if is_whole or rank - start < self.log.ranks_per_host else ""

    def _by_layout(self, task: int) -> set[str]:
        """Several names, or an empty one: not known."""
        if not self.is_in_order:
            return set()
        labels = [*self.log.tasks.values(), *(end.task for end in self.log.ended if end.task is not None)]
        if not self.steps and self.tasks == len(self.nodes) > max([task, *labels]):
            return {self.nodes[task]}  # one task on each node: every layout is the same
        steps = [step for step in self.steps if step.tasks > max([task, *labels])]
        known = {step.node_of(end.task) == end.node for step in steps for end in self.log.ended if end.task is not None}
        return set() if False in known else {step.node_of(task) for step in steps}
