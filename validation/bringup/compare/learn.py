"""A profile from finished runs: what a cluster without published numbers showed when it was healthy, as expectations
for later.

Only speeds become numbers: the worst one seen, divided by 1 + the spread of measurements of the same thing, and by
1.1 at least. What differs between runs (placement, neighbours, the hour) cannot be seen inside one, so one run alone
is divided by 2 at least. A declared limit that is not a speed (ratios between peers, shares, seconds to wait) stays as
it was: a quiet hour would make it a false alarm. So does a floor that was declared for each number of nodes. Every
entry says what was measured, its spread, by which runs, and when.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from bringup.kernel import judge
from bringup.kernel.errors import RunError
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.plan.catalogue import GATES, of_phase
from bringup.kernel.plan.expectation import MEASURED_HERE, SPEEDS, Expectation, size_bytes
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Observation, Run, Value
from bringup.report import run_folders
from bringup.training.comparison.entries import refuse_copies

LEAST_SPREAD = 0.1  # no cluster repeats itself better on another day
ONE_RUN_SPREAD = 1.0  # between runs, where there is only one: a factor of two
EQUALS = ("node", "rank", "pair", "link")  # subjects of one run that should be equally fast; scales and jobs are not


def measured(judgements: Sequence[judge.Judged], name: str) -> Profile:
    """Make a profile with a number for each gate that takes one and was observed. Raises RunError, NotComparable."""
    refuse_copies((judged.folder, judged.run) for judged in judgements)
    run_folders.refuse_other_clusters((judged.folder, judged.run) for judged in judgements)
    expect: dict[str, Expectation] = {}
    runs_by_gate: dict[str, list[RunObservations]] = {}
    first = judgements[0]
    base = first.profile
    for judged in judgements:
        folder, run, profile = judged.folder, judged.run, judged.profile
        if profile.name != base.name:
            other = f"{first.folder} against {base.name}"
            raise RunError(f"{folder}: judged against {profile.name}, {other}; give runs of one profile")
        expect |= profile.expect
        bad = [verdict for verdict in judged.verdicts.verdicts if judge.is_fault_or_gap(verdict)]
        if bad:
            why = f"{bad[0].gate} [{bad[0].subject}] is {bad[0].outcome} ({len(bad)} such verdicts)"
            raise RunError(f"{folder}: {why}; a profile is made of runs that passed")
        for gate in of_phase(run.phase):
            if gate.expect == "profile" and profile.reason_not_applicable(gate.id) is None:
                runs_by_gate.setdefault(gate.id, []).append(_of_run(gate, run, profile, judged.observations))
    learnt = {gate: _expectation(GATES[gate], runs, expect.get(gate)) for gate, runs in runs_by_gate.items()}
    expect |= {gate: entry for gate, entry in learnt.items() if entry is not None}
    names = ", ".join(dict.fromkeys(run.run.name for runs in runs_by_gate.values() for run in runs))
    description = f"measured by {names}; before that they had passed {base.name}"
    return base.model_copy(update={"name": name, "extends": None, "expect": expect, "description": description})


class RunObservations(NamedTuple):
    """A gate's observations in one run. inside: spread of the repetitions inside the run (share; None: unknown)."""

    run: Run
    observations: list[Observation]
    inside: float | None


def _of_run(gate: Gate, run: Run, profile: Profile, observations: Sequence[Observation]) -> RunObservations:
    """Read the gate's quantity on the planned subjects, at the declared size or else the largest one."""
    declared = profile.expect.get(gate.id)
    planned = set(run.planned.get(gate.id, []))
    known = (seen for seen in observations if seen.subject in planned and seen.value is not None)
    observed = [seen for seen in known if seen.quantity.partition("@")[0] == gate.id]
    sizes = {seen.quantity.partition("@")[2] for seen in observed}
    if sizes <= {""}:
        return RunObservations(run, observed, None)
    # ports are counted by rate: take the highest rate that any port has
    reached = {seen.quantity.partition("@")[2] for seen in observed if seen.value} or sizes
    at = declared.at if declared is not None else max(sorted(reached), key=_magnitude)
    spread = f"{gate.id.rpartition('.')[0]}.time_spread@{at}"
    of_spread = [seen.value for seen in observations if seen.quantity == spread and seen.subject in planned]
    of_size = [observation for observation in observed if observation.quantity == f"{gate.id}@{at}"]
    return RunObservations(run, of_size, max(_numbers(of_spread), default=None))


def _magnitude(at: str) -> int:
    """Magnitude of a message size or of a port's rate: `8GiB`, `400Gb/s`."""
    rate, is_rate, _ = at.partition("Gb/s")
    return size_bytes(at) or (int(rate) if is_rate else 0)


def _expectation(gate: Gate, runs: list[RunObservations], declared: Expectation | None) -> Expectation | None:
    """Return the new expectation of a gate. None: nothing was observed, or the values do not give one expectation."""
    observed = [observation for run in runs for observation in run.observations]
    if not observed:
        return None
    rule = declared.rule if declared is not None else str(gate.rule)
    values = [observation.value for observation in observed if observation.value is not None]
    by = ", ".join(f"{run.run.phase} {run.run.name} on {run.run.opened_at[:10]}" for run in runs if run.observations)
    source = f"{MEASURED_HERE}{by}: {_range(values)}"
    spread = _spread(gate, runs)
    limit: object
    if rule == "at_least" and gate.unit in SPEEDS:
        least = min(_numbers(values), default=0)
        if least <= 0:
            return None  # a floor of 0 cannot fail
        subjects = [subject for run in runs for subject in {seen.subject for seen in run.observations}]
        repeated = len(set(subjects)) < len(subjects)  # one of them was measured in two runs
        part = 1 + max(LEAST_SPREAD if repeated else ONE_RUN_SPREAD, spread or 0)
        limit = float(f"{least / part:.3g}")  # a few runs are not more precise, and the margin is wider
        source += "" if spread is None else f"; the same thing differed by {spread:.0%}"
        source += "" if repeated else "; one run does not tell how runs differ"
        source += f"; the lowest, divided by {part:.3g}"
        if declared is not None and declared.depends_on_nodes:  # it also holds for scales that these runs did not reach
            return declared.model_copy(update={"source": f"{declared.source}; {source}"})
        if declared is not None and declared.expected >= limit:  # a declared limit that was reached is not lowered
            return declared.model_copy(update={"source": f"{declared.source}; {source}, is no more"})
    elif declared is not None:
        return declared.model_copy(update={"source": f"{declared.source}; {source}"})
    else:
        limit = _as_observed(rule, values)
    if limit is None:
        return None
    at = observed[0].quantity.partition("@")[2] or None
    return Expectation.model_validate({rule: limit, "at": at, "unit": gate.unit, "source": source})


def _spread(gate: Gate, runs: Sequence[RunObservations]) -> float | None:
    """Spread of repeated measurements: the largest over the smallest, minus 1. None: nothing was repeated.

    Repeated: one subject in several runs, the peers of one run, the repetitions inside a run.
    """
    groups: dict[str, list[float]] = {}
    for seen in (seen for run in runs for seen in run.observations):
        groups.setdefault(gate.per if gate.per in EQUALS else seen.subject, []).extend(_numbers([seen.value]))
    known = [max(group) / min(group) - 1 for group in groups.values() if len(group) > 1 and min(group) > 0]
    return max([*known, *(run.inside for run in runs if run.inside is not None)], default=None)


def _as_observed(rule: str, values: list[Value]) -> object | None:
    """Return the limit for an undeclared value that is not a speed: the observed value. A ceiling gets a margin."""
    numbers, texts = _numbers(values), sorted({str(value) for value in values})
    match rule:
        case "at_least" if numbers:
            return min(numbers) if min(numbers) > 0 else None  # a floor of 0 cannot fail
        case "at_most" if numbers:
            return max(numbers) * (1 + LEAST_SPREAD)
        case "between" if numbers:
            return [min(numbers), max(numbers)]
        case "equals" if len(texts) == 1:
            return values[0]
        case "one_of":
            return texts
    return None


def _numbers(values: Sequence[Value | None]) -> list[float]:
    return [float(value) for value in values if is_number(value)]


def _range(values: list[Value]) -> str:
    numbers = _numbers(values)
    if numbers and len(numbers) == len(values):
        return f"{min(numbers):.6g} to {max(numbers):.6g}, median {median(numbers):.6g} of {len(numbers)}"
    return f"{', '.join(sorted({str(value) for value in values}))} in {len(values)} observations"
