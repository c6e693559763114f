"""What follows from what Slurm says of its nodes, of its configuration, and of the jobs of the smoke phase."""

from __future__ import annotations

from datetime import datetime

from bringup.checks.slurm import audit
from bringup.evidence.parsed import Parsed, Seen, numbers
from bringup.records import Run

_JOBS = {  # what scontrol says of a job -> the gate that judges it
    "smoke.exit_code.ExitCode": "smoke.exit_code",
    "smoke.memory.state": "smoke.memory.enforced",
    "smoke.never.state": "smoke.dependency.never",
}


def derive(seen: Seen, run: Run) -> Parsed:
    """A subject whose facts did not arrive stays without evidence."""
    found = Parsed()
    if run.phase == "discovery":
        found.add(audit.derive(seen))
        _copied(found, seen, "slurm.node.version", "discovery.slurm.version")
        _devices_behind_gres(found, seen)
    elif run.phase == "smoke":
        for said, gate in _JOBS.items():
            _copied(found, seen, said, gate)
        _array_indices(found, seen)
        _seconds_between(found, seen, "smoke.before.EndTime", "smoke.after.StartTime", "smoke.dependency.waits")
        _seconds_between(found, seen, "smoke.exit_code.SubmitTime", "smoke.exit_code.StartTime", "smoke.queue.latency")
        _warned_before_it_began(found, seen)
    return found


def _copied(found: Parsed, seen: Seen, quantity: str, gate: str) -> None:
    found.observations += [said.model_copy(update={"quantity": gate}) for said in seen.of(quantity)]


def _devices_behind_gres(found: Parsed, seen: Seen) -> None:
    """GPUs that slurm.conf promises and the node does not have."""
    there, promised = numbers(seen.of("discovery.gpu.count")), numbers(seen.of("slurm.node.gpus"))
    evidence = {gpus.subject: gpus.evidence for gpus in seen.of("slurm.node.gpus")}
    for node in [node for node in promised if node in there]:
        found.saw(
            "discovery.slurm.gres",
            node,
            int(promised[node] - there[node]),
            "count",
            evidence[node],
            f"Gres says {promised[node]:.0f}, {there[node]:.0f} devices were found",
        )


def _warned_before_it_began(found: Parsed, seen: Seen) -> None:
    """Slurm may send the signal a minute early. It ends a script that had not begun: Slurm names signal 10 (USR1)."""
    exit_codes = seen.of("smoke.warning.ExitCode")
    told = any(warned.value is not None for warned in seen.of("smoke.time_limit.warned"))
    if exit_codes and exit_codes[0].value == "0:10" and not told:
        why = "the signal came before the script had begun"
        found.saw("smoke.time_limit.warned", "job", True, "flag", exit_codes[0].evidence, why)


def _array_indices(found: Parsed, seen: Seen) -> None:
    told = seen.of("smoke.array.index")
    if told:
        indices = sorted(str(index.value) for index in told)
        found.saw("smoke.array", "job", " ".join(indices), "text", f"{told[0].evidence} to {told[-1].evidence}")


def _seconds_between(found: Parsed, seen: Seen, earlier: str, later: str, gate: str) -> None:
    first, second = next(iter(seen.of(earlier)), None), next(iter(seen.of(later)), None)
    if first is None or second is None:
        return
    evidence = f"{first.evidence}, {second.evidence}"
    try:
        seconds = (datetime.fromisoformat(str(second.value)) - datetime.fromisoformat(str(first.value))).total_seconds()
    except (ValueError, TypeError):  # Unknown: the job never started
        found.saw(gate, "job", None, "s", evidence, f"{first.value} and {second.value} are not two times")
    else:
        found.saw(gate, "job", seconds, "s", evidence)
