"""Observations derived from Slurm's facts: nodes, configuration, and the jobs of the smoke phase."""

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


def derive(observed: Seen, run: Run) -> Parsed:
    """A subject without facts gets no observation, so its gates are incomplete."""
    derived = Parsed()
    if run.phase == "discovery":
        derived.add(audit.derive(observed))
        _copied(derived, observed, "slurm.node.version", "discovery.slurm.version")
        _devices_behind_gres(derived, observed)
    elif run.phase == "smoke":
        for reported, gate in _JOBS.items():
            _copied(derived, observed, reported, gate)
        _array_indices(derived, observed)
        _seconds_between(derived, observed, "smoke.before.EndTime", "smoke.after.StartTime", "smoke.dependency.waits")
        _seconds_between(
            derived, observed, "smoke.exit_code.SubmitTime", "smoke.exit_code.StartTime", "smoke.queue.latency"
        )
        _warned_before_it_began(derived, observed)
    return derived


def _copied(derived: Parsed, observed: Seen, quantity: str, gate: str) -> None:
    derived.observations += [observation.model_copy(update={"quantity": gate}) for observation in observed.of(quantity)]


def _devices_behind_gres(derived: Parsed, observed: Seen) -> None:
    """GPUs that slurm.conf lists and the node does not have."""
    present, promised = numbers(observed.of("discovery.gpu.count")), numbers(observed.of("slurm.node.gpus"))
    evidence = {gpus.subject: gpus.evidence for gpus in observed.of("slurm.node.gpus")}
    for node in [node for node in promised if node in present]:
        derived.saw(
            "discovery.slurm.gres",
            node,
            int(promised[node] - present[node]),
            "count",
            evidence[node],
            f"Gres says {promised[node]:.0f}, {present[node]:.0f} devices were found",
        )


def _warned_before_it_began(derived: Parsed, observed: Seen) -> None:
    """Slurm may send the signal up to a minute early. Then it kills a script that had not begun: signal 10 (USR1)."""
    exit_codes = observed.of("smoke.warning.ExitCode")
    was_warned = any(warned.value is not None for warned in observed.of("smoke.time_limit.warned"))
    if exit_codes and exit_codes[0].value == "0:10" and not was_warned:
        why = "the signal came before the script had begun"
        derived.saw("smoke.time_limit.warned", "job", True, "flag", exit_codes[0].evidence, why)


def _array_indices(derived: Parsed, observed: Seen) -> None:
    reported = observed.of("smoke.array.index")
    if reported:
        indices = sorted(str(index.value) for index in reported)
        derived.saw(
            "smoke.array", "job", " ".join(indices), "text", f"{reported[0].evidence} to {reported[-1].evidence}"
        )


def _seconds_between(derived: Parsed, observed: Seen, earlier: str, later: str, gate: str) -> None:
    first, second = next(iter(observed.of(earlier)), None), next(iter(observed.of(later)), None)
    if first is None or second is None:
        return
    evidence = f"{first.evidence}, {second.evidence}"
    try:
        seconds = (datetime.fromisoformat(str(second.value)) - datetime.fromisoformat(str(first.value))).total_seconds()
    except (ValueError, TypeError):  # Unknown: the job never started
        derived.saw(gate, "job", None, "s", evidence, f"{first.value} and {second.value} are not two times")
    else:
        derived.saw(gate, "job", seconds, "s", evidence)
