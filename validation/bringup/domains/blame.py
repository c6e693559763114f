"""Who was first: the one last step after judging. It adds words to causes, says what helps against the first of them,
and changes no outcome, value or kind.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from bringup import registry
from bringup.domains.fabric import is_a_setting, ports_of
from bringup.domains.gpu_names import changed
from bringup.kernel.characters import many
from bringup.kernel.facts.facts import UNFINISHED
from bringup.kernel.facts.parser_result import Seen, is_number
from bringup.kernel.plan import subjects
from bringup.kernel.plan.phases import EXIT_CODE, PHASES, RANK_FINISHED
from bringup.kernel.records import Action, Kind, Outcome, Run, Verdict, Verdicts

_STATE = "discovery.node.state"
_DIVIDED, _COUNTED = "discovery.gpu.mig", ("discovery.gpu.count", "discovery.gpu.answering", "discovery.slurm.gres")
_SENT_AGAIN = ("load.tcp_sent_again", "load.rdma_sent_again")
_SPEEDS = ("GB/s", "us", "ratio")
_PORTS = ("discovery.rdma.active", "discovery.rdma.same")
_PART_OF = {  # begin of a gate of smoke -> the part of the phase that brings its evidence
    "smoke.compute.": "compute",
    "smoke.storage.": "storage",
    "smoke.fs.": "folder",
    "smoke.time_limit.": "warning",
    "smoke.requeue": "requeue",
    **dict.fromkeys(("smoke.gpu.", "smoke.cpu.", "smoke.jobs.", "smoke.node.", "smoke.bad_exit"), "binding"),
    **dict.fromkeys(("smoke.exit_code", "smoke.memory.", "smoke.array", "smoke.dependency.", "smoke.queue."), "jobs"),
}
_ALL_ALIKE = ("refused",)  # all ranks say it together: none is first


def blame(verdicts: Verdicts, seen: Seen, run: Run) -> Verdicts:
    """Name the first rank that failed as the cause of the exit code, beside the end of those it took along.

    Where several failed, the oldest error file is first. A rank that left none was ended from outside, earlier."""
    verdicts = _out_of_service(_of_parts(_of_slurm(_sent_again(verdicts, run), seen), seen))
    if not PHASES[run.phase].is_training:
        return _switched_off(_divided(verdicts, seen, run), seen)
    failed = [v for v in verdicts.verdicts if v.gate == RANK_FINISHED and _failed(v) and v.value not in _ALL_ALIKE]
    if not failed:
        # no rank left a message: the task of the launcher that srun named first
        error = registry.called(registry.FIRST_ERROR)(seen, "launch")
        return verdicts if error is None else _with_cause(verdicts, error, None)
    seconds = raised_at(seen)
    first = min(failed, key=lambda verdict: (seconds.get(verdict.subject, 0), verdict.subject))
    words = f"first {first.subject} {first.value}"
    first_failure = words + (f" ({first.cause})" if first.cause else "")
    second = seconds.get(first.subject)
    first_failure += f" at {datetime.fromtimestamp(second, timezone.utc):%H:%M:%S} UTC" if second else ""
    first_failure += f"; and {many(len(failed) - 1, 'more rank')}" if len(failed) > 1 else ""
    return _with_cause(verdicts, first_failure, words)


def _failed(verdict: Verdict) -> bool:
    return verdict.outcome is Outcome.FAIL


def _of_slurm(verdicts: Verdicts, seen: Seen) -> Verdicts:
    """Where no evidence arrived, or a probe did not finish, and Slurm refused or ended a step, its words stand beside:
    the first of each file."""
    words: dict[str, str] = {}
    for what in ("refused", "ended"):
        for answer in seen.of(f"slurm.launch.{what}"):
            words.setdefault(answer.evidence.rpartition(":")[0], f"Slurm {what} a step: {answer.value}")
    if not words:
        return verdicts
    first, *others = words.values()
    where = ", and in ".join([next(iter(words)), *([many(len(others), "more file")] if others else [])])

    def change(v: Verdict) -> Mapping[str, object] | None:
        is_open = v.kind is Kind.ABSENT or (v.kind is Kind.UNKNOWN and UNFINISHED in (v.cause or ""))
        return {"cause": f"{v.cause}; {first} ({where})"} if is_open else None

    return changed(verdicts, change)


def _of_parts(verdicts: Verdicts, seen: Seen) -> Verdicts:
    """Say of what did not arrive because its part of smoke was not wanted that this is why, and nothing of Slurm."""
    left_out = [str(part.value) for part in seen.of("run.part_left_out")]
    words = f"parts of smoke that were left out by hand (BRINGUP_SMOKE_PARTS): {', '.join(left_out)}"

    def change(v: Verdict) -> Mapping[str, object] | None:
        part = next((part for begin, part in _PART_OF.items() if v.gate.startswith(begin)), None)
        return {"cause": words} if v.kind is Kind.ABSENT and part in left_out else None

    return changed(verdicts, change) if left_out else verdicts


def _out_of_service(verdicts: Verdicts) -> Verdicts:
    """Say of what did not arrive from a node to which Slurm gives no jobs that this is why."""
    states = {v.subject: v.value for v in verdicts.verdicts if v.gate == _STATE and _failed(v)}

    def change(v: Verdict) -> Mapping[str, object] | None:
        is_why = v.kind is Kind.ABSENT and v.subject in states
        return {"cause": f"Slurm gives no job to this node: {states[v.subject]}"} if is_why else None

    return changed(verdicts, change) if states else verdicts


def _divided(verdicts: Verdicts, seen: Seen, run: Run) -> Verdicts:
    """Where Slurm counts the parts of divided GPUs (MIG), a node has fewer GPUs than Slurm says, and misses none."""
    parts: dict[str, int] = {}
    for gpu in seen.of("inventory.gpu.mig_devices"):
        node = gpu.node
        parts[node] = parts.get(node, 0) + (int(gpu.value) if is_number(gpu.value) else 0)
    divided = {v.subject for v in verdicts.verdicts if v.gate == _DIVIDED and _failed(v)}
    divided = {node for node in divided if parts.get(node) == run.gpus_per_node}
    if not divided:
        return verdicts
    words = f"Slurm counts {run.gpus_per_node} parts as GPUs; ranks on them have neither NVLink nor NCCL between them"

    def change(v: Verdict) -> Mapping[str, object] | None:
        if v.subject not in divided or not _failed(v):
            return None
        because = {"cause": f"its GPUs are divided: {_DIVIDED}", "action": Action.CONFIGURE}
        return {"cause": words} if v.gate == _DIVIDED else because if v.gate in _COUNTED else None

    return changed(verdicts, change)


def _sent_again(verdicts: Verdicts, run: Run) -> Verdicts:
    """Name the node that sends much of it twice beside what is slow between nodes: that may be why.

    A pair has one number for both directions where it is measured with all_reduce, and does not tell the two apart."""
    nodes = [v for v in verdicts.verdicts if v.gate in _SENT_AGAIN and v.outcome is Outcome.WARN and is_number(v.value)]
    if not nodes:
        return verdicts
    most = max(nodes, key=lambda v: float(v.value))  # type: ignore[arg-type]
    words = f"{most.subject} sent {float(most.value):.1%} of its data again ({most.gate}): look at what it sends first"  # type: ignore[arg-type]

    def change(v: Verdict) -> Mapping[str, object] | None:
        is_beside = _is_slow(v) and _takes_part(most.subject, v.subject, run.nodes)
        return {"cause": f"{v.cause}; {words}" if v.cause else words} if is_beside else None

    return changed(verdicts, change)


def _takes_part(node: str, subject: str, nodes: Sequence[str]) -> bool:
    """nodes: of the run. A scale takes the first of them, and inside one node nothing goes over the network."""
    count = subjects.nodes_of_scale(subject)
    if count is not None:
        return count > 1 and node in nodes[:count]
    return subject == subjects.JOB or node in subjects.nodes_of(subject)


def _is_slow(verdict: Verdict) -> bool:
    speed = verdict.gate.startswith("nccl.") and verdict.unit in _SPEEDS
    return speed and verdict.kind is Kind.JUDGED and verdict.outcome in (Outcome.FAIL, Outcome.WARN)


def _switched_off(verdicts: Verdicts, seen: Seen) -> Verdicts:
    """Say of a port that was switched off to set it, and not to take it out and put it in again."""
    if not any(v.gate in _PORTS and _failed(v) for v in verdicts.verdicts):
        return verdicts
    ports = ports_of(seen)
    most = max(map(len, ports.values()), default=0)  # where one is gone, no setting brings it back

    def change(v: Verdict) -> Mapping[str, object] | None:
        own = ports.get(v.subject, {})
        is_set = v.gate in _PORTS and _failed(v) and len(own) in (0, most) and is_a_setting(own)
        return {"action": Action.CONFIGURE} if is_set else None

    return changed(verdicts, change)


def _with_cause(verdicts: Verdicts, first_failure: str, words: str | None) -> Verdicts:
    """first_failure: the cause of the job. words: the cause of ranks that ended with it; None where none is known."""

    def change(v: Verdict) -> Mapping[str, object] | None:
        if v.gate == EXIT_CODE and _failed(v):
            return {"cause": first_failure}
        is_taken_along = words is not None and v.gate == RANK_FINISHED and v.kind in (Kind.UNKNOWN, Kind.ABSENT)
        return {"cause": f"{v.cause}; {words}"} if is_taken_along else None

    return changed(verdicts, change)


def raised_at(seen: Seen) -> dict[str, int]:
    """Return rank -> second at which it raised. Each rank says which error file is its own."""
    times = {raised.evidence: raised.value for raised in seen.of("launcher.raised_at")}
    second_of = {file.subject: times.get(str(file.value)) for file in seen.of("train.rank.error_file")}
    return {subject: second for subject, second in second_of.items() if isinstance(second, int)}
