"""What follows from the facts of a training: exit code, devices, transport, and how each rank ended. Pure.

What the rank itself said counts first, then who ended it, then who missed it at the start, then where it stood still,
then what Slurm said of its node.
A rank whose peers are gone, or whose collective waited too long, did not finish and is not the fault: its end is
unknown, and its own words are kept. blame.py says after judging who was first. Ranks that refuse what they were given
(arguments, data, memory) say nothing about the cluster: their end is unknown, and that of a job of which no more is
known.
"""

from collections.abc import Iterator
from itertools import islice

from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.plan.phases import EXIT_CODE, RANK_FINISHED
from bringup.kernel.plan.subjects import JOB, nodes_of, rank_subjects, scale_name
from bringup.kernel.records import Observation, Run, Value
from bringup.readers.launcher import LOST_PEERS
from bringup.readers.srun import NODE_FAILURE

FINISHED, REFUSED = "finished", "refused: "
GOT_SIGTERM = "the job got SIGTERM, so its ranks ended"  # preemption, scancel: training/slurm/attempt.sh
_TERMINATED = (1, 15)  # torchrun ends the peers of a failed rank so: of training/src/launcher.py with SIGHUP
_KILLED = 9
_REFUSED = 2
_CRASHED = (6, 11)  # NCCL's threads end their own rank so when a peer is gone or a collective timed out


def transport(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive train.transport under NCCL: what its log says, when every node left one. Under gloo the record has it."""
    nodes, scale = len(run.nodes), scale_name(len(run.nodes))
    if not any((backend.subject, backend.value) == (scale, "nccl") for backend in observed.of("nccl.backend")):
        return
    hosts = observed.by_subject("nccl.log.hosts").get(scale, [])
    logged = next((host.value for host in hosts if is_number(host.value)), 0)
    transports = observed.by_subject("nccl.transport").get(scale, [])
    if logged < nodes or not transports:
        why = f"{logged} of {nodes} nodes left a log of NCCL; an NCCL_DEBUG that was set by hand suppresses it"
        derived.saw("train.transport", JOB, None, "text", f"raw/nccl-{nodes}", why)
    else:
        derived.saw("train.transport", JOB, transports[-1].value, "text", transports[-1].evidence, transports[-1].why)


def devices(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive train.device: what all ranks computed on. A fallback is ranks on the CPU though the driver lists GPUs."""
    places = rank_subjects(run.nodes, run.ranks_per_node)
    by_rank = {device.subject: device for device in observed.of("train.rank.device")}
    listed = {count.subject: count for count in observed.of("train.rank.driver_gpus")}
    if not by_rank:
        return
    where = next(iter(by_rank.values())).evidence
    unsaid = [place for place in places if place not in by_rank or by_rank[place].value is None]
    kinds = sorted({"cpu" if each.value == "cpu" else "cuda" for each in by_rank.values() if each.value is not None})
    why = f"{len(unsaid)} of {len(places)} ranks did not say their device, first {unsaid[0]}" if unsaid else None
    derived.saw("train.device", JOB, None if unsaid else " and ".join(kinds), "text", where, why)
    on_cpu = [listed[rank] for rank in places if rank in listed and rank in by_rank and by_rank[rank].value == "cpu"]
    bypassed = [count for count in on_cpu if is_number(count.value) and count.value > 0]
    unsaid += [place for place in places if place not in listed or listed[place].value is None]
    why = f"{unsaid[0]} did not say its device and its driver's GPUs" if unsaid else None
    if bypassed:
        where, first = bypassed[0].evidence, bypassed[0]
        why = f"first {first.subject}: the driver lists {first.value} GPUs, torch sees none"
    number = len(bypassed) if bypassed or not unsaid else None
    derived.saw("train.device.fallback", JOB, number, "count", where, why)


def ranks_ended(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive train.rank.finished of each rank, and with them train.exit_code of the job."""
    for slurm in observed.of("launcher.ended_by_slurm"):
        derived.problems.append(f"{slurm.evidence}: Slurm ended the step: {slurm.value} (on {slurm.subject})")
    facts, places = _Facts(observed), rank_subjects(run.nodes, run.ranks_per_node)
    ends = [end for place in places for end in facts.ends(place)]
    derived.observations += [*ends, *(_of_job(code, ends) for code in observed.of("run.exit_code"))]


def _of_job(code: Observation, ends: list[Observation]) -> Observation:
    refused = [end.why for end in ends if end.value is None and (end.why or "").startswith((REFUSED, GOT_SIGTERM))]
    if code.value == 0 or not refused or any(end.value not in (None, FINISHED) for end in ends):
        return code.model_copy(update={"quantity": EXIT_CODE})
    why = f"exit code {code.value}: {refused[0]}"
    return code.model_copy(update={"quantity": EXIT_CODE, "value": None, "why": why})


def _end(place: str, value: Value | None, evidence: str, why: str | None = None) -> Observation:
    return Observation(quantity=RANK_FINISHED, subject=place, value=value, unit="text", evidence=evidence, why=why)


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
        entered = _last(seen, "train.rank.entered")
        self.entered = {place: count.value for place, count in entered.items() if place in self.stacks}
        self.unwritable = _first(seen, "launcher.cannot_write")
        self.not_started = _first(seen, "slurm.launch.not_started")  # files are read by name: launch.log first
        self.refused = seen.of("launcher.refused")
        self.slurm = seen.of("launcher.ended_by_slurm")
        self.sigterm = seen.of("launcher.got_sigterm")

    def ends(self, place: str) -> list[Observation]:
        """Return the ends. Empty when nothing at all is known."""
        if place in self.states:
            return [self._own_word(place, state) for state in self.states[place]]
        return list(islice(self._ends(place, nodes_of(place)[0]), 1))

    def _own_word(self, place: str, state: Observation) -> Observation:
        error = self.errors.get(place)
        if state.value not in ("raised", "hung", "refused") or error is None:
            return _end(place, state.value, state.evidence, state.why)
        if LOST_PEERS.search(str(error.value)):
            return _end(place, None, state.evidence, f"lost its peers: {error.value}")
        return _end(place, state.value, state.evidence, str(error.value))

    def _ends(self, place: str, node: str) -> Iterator[Observation]:
        """Yield what is known of a rank that left no word, what counts most first."""
        code = self.codes.get(place)
        signal = -code.value if code is not None and isinstance(code.value, int) else 0
        lost_peers = f"lost its peers: {self.lost_peers[place].value}" if place in self.lost_peers else None
        # it was ended by another
        if code is not None and signal in _CRASHED and lost_peers:
            yield _end(place, None, code.evidence, lost_peers)
        if code is not None and signal > 0 and signal not in _TERMINATED:
            # a kill that names no node is of this one only where none was named
            memory = signal == _KILLED and (node in self.short_of_memory or self.short_of_memory == {JOB})
            why = f"out of memory on {node}: the limit of the job's cgroup was reached" if memory else None
            yield _end(place, f"killed by signal {signal}", code.evidence, why)
        if (lost := self.lost.get(node)) is not None:
            yield _end(place, "lost with its node", lost.evidence, str(lost.value))
        # ranks that were there know the number of a late one, and not always its node; or its launcher did not start
        if (late := self.late.get(place.rpartition("/rank")[2])) is not None:
            yield _end(place, "late", late.evidence, late.why)
        if (launcher := self.late_nodes.get(node)) is not None:
            yield _end(place, "late", launcher.evidence, str(launcher.value))
        yield from self._stood_still(place)
        # all ranks of a node cannot begin where one of them says so
        if (unwritable := self.unwritable.get(node)) is not None:
            yield _end(place, "could not begin", unwritable.evidence, f"{unwritable.value}, seen from {node}")
        if (not_started := self.not_started.get(node)) is not None:
            yield _end(place, "could not begin", not_started.evidence, str(not_started.value))
        # its arguments were refused, says the first rank of a node. Another exit code than that of a refusal is its own
        if self.refused and (code is None or code.value == _REFUSED):
            yield _end(place, None, self.refused[0].evidence, f"{REFUSED}{self.refused[0].value}")
        # a program may fail before its first line. Only the first under each torchrun counts: others may have missed it
        first = self.failed_first.get(place)
        if first is not None and isinstance(first.value, int) and first.value > 0:
            exited = None if lost_peers else f"exited with code {first.value}"
            yield _end(place, exited, first.evidence, lost_peers)
        if self.slurm:
            yield _end(place, None, self.slurm[0].evidence, f"Slurm ended the step: {self.slurm[0].value}")
        if self.sigterm:
            yield _end(place, None, self.sigterm[0].evidence, GOT_SIGTERM)

    def _stood_still(self, place: str) -> Iterator[Observation]:
        """Name the rank that hung. Of the ranks that left only a stack, it is the one that had begun fewer collectives
        than the others: they wait in one that it never reached. Where all had begun equally many, none is named."""
        if (stack := self.stacks.get(place)) is None:
            return
        done = f" after step {self.steps[place].value}" if place in self.steps else ""
        entered, counts = self.entered.get(place), [count for count in self.entered.values() if isinstance(count, int)]
        if not isinstance(entered, int):
            why = f"no progress{done} in {stack.value}; how far it was is not known"
            yield _end(place, None, stack.evidence, why)
        elif entered == min(counts) < max(counts):
            why = f"hung{done} in {stack.value}: it had begun {entered} collectives, others {max(counts)}"
            yield _end(place, "hung", stack.evidence, why)
        else:
            yield _end(place, None, stack.evidence, f"waited{done} in {stack.value}, and was not behind")


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
