"""How each rank ended: train.rank.finished, from what the rank said, the launcher, Slurm, and the stacks; and with them
the job: train.exit_code. Pure.

What the rank itself said counts first, then who ended it, then who missed it at the start, then where it stood still,
then what Slurm said of its node.
A rank whose peers are gone, or whose collective waited too long, did not finish and is not the fault: its end is
unknown, and its own words are kept. blame.py says after judging who was first. Ranks that refuse what they were given
(arguments, data, memory) say nothing about the cluster: their end is unknown, and that of a job of which no more is
known.
"""

from __future__ import annotations

import dataclasses

from bringup.evidence.launcher import LOST_PEERS
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.slurm import NODE_FAILURE
from bringup.plan.subjects import JOB, nodes_of, rank_subjects
from bringup.records import Observation, Run, Value

GATE, JOB_GATE = "train.rank.finished", "train.exit_code"
FINISHED, REFUSED = "finished", "refused: "
_TERMINATED = -15  # torchrun ends the peers of a failed rank so
_KILLED = -9
_REFUSED = 2
_CRASHED = (-6, -11)  # NCCL's threads end their own rank so when a peer is gone or a collective timed out


def derive(seen: Seen, run: Run) -> Parsed:
    parsed = Parsed()
    for slurm in seen.of("launcher.ended_by_slurm"):
        parsed.problems.append(f"{slurm.evidence}: Slurm ended the step: {slurm.value} (on {slurm.subject})")
    facts = _Facts(seen)
    for place in rank_subjects(run.nodes, run.ranks_per_node):
        parsed.observations += facts.ends(place)
    parsed.observations += [_of_job(code, parsed.observations) for code in seen.of("run.exit_code")]
    return parsed


def _of_job(code: Observation, ends: list[Observation]) -> Observation:
    refused = [end.why for end in ends if end.value is None and (end.why or "").startswith(REFUSED)]
    if code.value == 0 or not refused or any(end.value not in (None, FINISHED) for end in ends):
        return dataclasses.replace(code, quantity=JOB_GATE)
    return dataclasses.replace(code, quantity=JOB_GATE, value=None, why=f"exit code {code.value}: {refused[0]}")


def _end(place: str, value: Value | None, evidence: str, why: str | None = None) -> Observation:
    return Observation(quantity=GATE, subject=place, value=value, unit="text", evidence=evidence, why=why)


class _Facts:
    """By rank and node."""

    def __init__(self, seen: Seen) -> None:
        self.states = seen.by_subject("train.rank.state")
        self.errors = _last(seen, "train.rank.error")
        self.codes = _first(seen, "launcher.exit_code")
        self.failed_first = _first(seen, "launcher.first_failed")
        self.lost_peers = _first(seen, "launcher.lost_peers")
        self.short_of_memory = {kill.subject for kill in seen.of("launcher.out_of_memory")}
        self.late = {late.subject.rpartition("/rank")[2]: late for late in seen.of("train.rank.late")}
        self.late_nodes = _first(seen, "launcher.late")
        # srun names a lost node in any step of the job: the step of the ranks may have ended before
        self.lost = _down(seen) | _last(seen, "slurm.launch.lost") | _first(seen, "launcher.node_lost")
        self.stacks = _last(seen, "train.rank.stack")
        self.steps = _last(seen, "train.rank.step")
        self.entered = {
            place: count.value for place, count in _last(seen, "train.rank.entered").items() if place in self.stacks
        }
        self.unwritable = _first(seen, "launcher.cannot_write")
        self.not_started = _first(seen, "slurm.launch.not_started")  # files are read by name: launch.log first
        self.refused = seen.of("launcher.refused")
        self.slurm = seen.of("launcher.ended_by_slurm")

    def ends(self, place: str) -> list[Observation]:
        """Return the ends. Empty when nothing at all is known."""
        if place in self.states:
            return [self._own_word(place, state) for state in self.states[place]]
        node = nodes_of(place)[0]
        for end in (
            self._ended_by_another(place, node),
            self._came_late(place, node),
            self._stood_still(place),
            self._could_not_begin(place, node),
            self._was_refused(place),
            self._exited(place),
            self._ended_by_slurm(place),
        ):
            if end is not None:
                return [end]
        return []

    def _own_word(self, place: str, state: Observation) -> Observation:
        error = self.errors.get(place)
        if state.value not in ("raised", "hung", "refused") or error is None:
            return _end(place, state.value, state.evidence, state.why)
        if LOST_PEERS.search(str(error.value)):
            return _end(place, None, state.evidence, f"lost its peers: {error.value}")
        return _end(place, state.value, state.evidence, str(error.value))

    def _ended_by_another(self, place: str, node: str) -> Observation | None:
        code = self.codes.get(place)
        if code is not None and code.value in _CRASHED and place in self.lost_peers:
            return _end(place, None, code.evidence, f"lost its peers: {self.lost_peers[place].value}")
        if code is not None and isinstance(code.value, int) and code.value < 0 and code.value != _TERMINATED:
            # a kill that names no node is of this one only where none was named
            memory = code.value == _KILLED and (node in self.short_of_memory or self.short_of_memory == {JOB})
            why = f"out of memory on {node}: the limit of the job's cgroup was reached" if memory else None
            return _end(place, f"killed by signal {-code.value}", code.evidence, why)
        lost = self.lost.get(node)
        return None if lost is None else _end(place, "lost with its node", lost.evidence, str(lost.value))

    def _came_late(self, place: str, node: str) -> Observation | None:
        """Say that a node came late, as ranks that were there do: they know its number, and not always its node. Or its
        launcher did not start."""
        late = self.late.get(place.rpartition("/rank")[2])
        if late is not None:
            return _end(place, "late", late.evidence, late.why)
        launcher = self.late_nodes.get(node)
        return None if launcher is None else _end(place, "late", launcher.evidence, str(launcher.value))

    def _stood_still(self, place: str) -> Observation | None:
        """Names the rank that hung. Of the ranks that left only a stack, it is the one that had begun fewer collectives
        than the others: they wait in one that it never reached. Where all had begun equally many, none is named."""
        stack = self.stacks.get(place)
        if stack is None:
            return None
        done = f" after step {self.steps[place].value}" if place in self.steps else ""
        entered, counts = self.entered.get(place), [count for count in self.entered.values() if isinstance(count, int)]
        if not isinstance(entered, int):
            why = f"no progress{done} in {stack.value}; how far it was is not known"
            return _end(place, None, stack.evidence, why)
        if entered == min(counts) < max(counts):
            why = f"hung{done} in {stack.value}: it had begun {entered} collectives, others {max(counts)}"
            return _end(place, "hung", stack.evidence, why)
        return _end(place, None, stack.evidence, f"waited{done} in {stack.value}, and was not behind")

    def _could_not_begin(self, place: str, node: str) -> Observation | None:
        """Apply to all ranks of a node what one rank or launcher there says: it cannot start or cannot write."""
        if node in self.unwritable:
            problem = self.unwritable[node]
            return _end(place, "could not begin", problem.evidence, f"{problem.value}, seen from {node}")
        if node in self.not_started:
            problem = self.not_started[node]
            return _end(place, "could not begin", problem.evidence, str(problem.value))
        return None

    def _was_refused(self, place: str) -> Observation | None:
        """Its arguments, by the first rank of a node. With another exit code than that of a refusal it is its own."""
        code = self.codes.get(place)
        if not self.refused or (code is not None and code.value != _REFUSED):
            return None
        return _end(place, None, self.refused[0].evidence, f"{REFUSED}{self.refused[0].value}")

    def _exited(self, place: str) -> Observation | None:
        """Find a program that left no word of its own, because it failed before its first line, say. Of those that exit
        with a code only the first under each torchrun counts: the others may have missed it."""
        code = self.failed_first.get(place)
        if code is None or not isinstance(code.value, int) or code.value <= 0:
            return None
        if place in self.lost_peers:
            return _end(place, None, code.evidence, f"lost its peers: {self.lost_peers[place].value}")
        return _end(place, f"exited with code {code.value}", code.evidence)

    def _ended_by_slurm(self, place: str) -> Observation | None:
        if not self.slurm:
            return None
        return _end(place, None, self.slurm[0].evidence, f"Slurm ended the step: {self.slurm[0].value}")


def _down(seen: Seen) -> dict[str, Observation]:
    """Nodes that were down when Slurm had ended the job for a lost node. srun names it, unless it was ended first."""
    ended_for_node = any(str(ended.value) == NODE_FAILURE for ended in seen.of("launcher.ended_by_slurm"))
    if not ended_for_node and all(state.value != "NODE_FAIL" for state in seen.of("run.job_state")):
        return {}
    return {
        state.subject: state.model_copy(update={"value": f"Slurm says {state.value}"})
        for state in seen.of("slurm.node.state")
        if "DOWN" in str(state.value).split("+")
    }


def _first(seen: Seen, quantity: str) -> dict[str, Observation]:
    return {subject: several[0] for subject, several in seen.by_subject(quantity).items()}


def _last(seen: Seen, quantity: str) -> dict[str, Observation]:
    return {subject: several[-1] for subject, several in seen.by_subject(quantity).items()}
