"""What the jobs of the smoke phase say, put together: arrays, dependencies, signals, requeues."""

from __future__ import annotations

from datetime import datetime

from bringup.checks.slurm import audit
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def derive(seen: Seen, run: Run) -> Parsed:
    """A subject whose facts did not arrive stays without evidence."""
    found = audit.derive(seen)
    _array_indices(found, seen)
    _dependency_and_latency(found, seen)
    _warned_before_it_began(found, seen)
    return found


def _warned_before_it_began(found: Parsed, seen: Seen) -> None:
    """Slurm may send the signal a minute early. A script that had not begun is ended by it: Slurm names signal 10 (USR1)."""
    ended = next(iter(seen.by_subject("smoke.warning.ExitCode").get("job", [])), None)
    told = any(one.value is not None for one in seen.by_subject("smoke.time_limit.warned").get("job", []))
    if ended is not None and ended.value == "0:10" and not told:
        found.saw(
            "smoke.time_limit.warned",
            "job",
            True,
            "flag",
            ended.evidence,
            "the signal came before the script had begun",
        )


def _array_indices(found: Parsed, seen: Seen) -> None:
    told = seen.by_subject("smoke.array.index").get("job", [])
    if told:
        indices = sorted(str(one.value) for one in told)
        found.saw("smoke.array.indices", "job", " ".join(indices), "text", f"{told[0].evidence} to {told[-1].evidence}")


def _dependency_and_latency(found: Parsed, seen: Seen) -> None:
    _seconds_between(found, seen, "smoke.before.EndTime", "smoke.after.StartTime", "smoke.dependency.waited_s")
    _seconds_between(found, seen, "smoke.exit_code.SubmitTime", "smoke.exit_code.StartTime", "smoke.queue.latency_s")


def _seconds_between(found: Parsed, seen: Seen, earlier: str, later: str, quantity: str) -> None:
    one, other = (next(iter(seen.by_subject(what).get("job", [])), None) for what in (earlier, later))
    if one is None or other is None:
        return
    evidence = f"{one.evidence}, {other.evidence}"
    try:
        seconds = (datetime.fromisoformat(str(other.value)) - datetime.fromisoformat(str(one.value))).total_seconds()
    except ValueError:  # Unknown: the job never started
        found.saw(quantity, "job", None, "s", evidence, f"{one.value} and {other.value} are not two times")
    else:
        found.saw(quantity, "job", seconds, "s", evidence)
