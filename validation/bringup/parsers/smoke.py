"""What no single fact of the smoke phase says: tasks counted per node, and two nodes, or two jobs, compared with each other."""

from __future__ import annotations

import re
import statistics
from datetime import datetime

from bringup.parsers import slurm
from bringup.parsers.result import Parsed
from bringup.records import Observation, Run


def derive(parsed: Parsed, run: Run) -> None:
    """Adds to what was read. A subject whose facts did not arrive stays without evidence."""
    tasks_per_node(parsed)
    exclusive_winners(parsed)
    same_type(parsed, run)
    two_jobs_at_once(parsed)
    array_indices(parsed)
    dependency_and_latency(parsed)
    warned_before_it_began(parsed)
    spread_of_gpus(parsed)
    slowest_of_nodes(parsed, run)


def ended_job(text: str, where: str, *, name: str) -> Parsed:
    """What `scontrol show job` says of a job that has ended; times are Slurm's, to the second."""
    parsed = slurm.job(text, where, quantity=f"smoke.{name}.state", field="JobState")
    for field in ("ExitCode", "SubmitTime", "StartTime", "EndTime"):
        if parsed.observations:
            parsed.observations += slurm.job(text, where, quantity=f"smoke.{name}.{field}", field=field).observations
    return parsed


def bad_exit(text: str, where: str) -> Parsed:
    """`n0 began`, and `n0 survived` from a task that outlived the one that failed. Two tasks per node must have begun."""
    parsed = Parsed()
    said = re.findall(r"^(?:\s*\d+: )?(\S+) (began|survived)$", text, re.MULTILINE)
    if not said:
        parsed.problems.append(f"{where}: no task began")
    for node in sorted({node for node, _ in said}):
        began, survived = said.count((node, "began")), said.count((node, "survived"))
        if began < 2:
            parsed.saw("smoke.bad_exit.survivors", node, None, "count", where, f"{began} of 2 tasks began")
        else:
            parsed.saw("smoke.bad_exit.survivors", node, survived, "count", where)
    return parsed


def requeue(text: str, where: str) -> Parsed:
    """`n0 restarts 0` from the first attempt, `n1 restarts 1` from the next one."""
    parsed = Parsed()
    counts = [int(count) for count in re.findall(r"^\S+ restarts (\d+)$", text, re.MULTILINE)]
    if counts:
        parsed.saw("smoke.requeue.restarts", "job", max(counts), "count", where)
    else:
        parsed.problems.append(f"{where}: no attempt began")
    return parsed


def by_subject(parsed: Parsed, quantity: str) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = {}
    for one in parsed.observations:
        if one.quantity == quantity:
            found.setdefault(one.subject, []).append(one)
    return found


def tasks_per_node(parsed: Parsed) -> None:
    """What single tasks said about their GPU, counted per node."""
    gpus: dict[str, list[Observation]] = {}
    for subject, told in by_subject(parsed, "smoke.binding.gpu").items():
        gpus.setdefault(subject.split("/")[0], []).extend(told)
    for node, tasks in gpus.items():
        known = sorted({str(one.value) for one in tasks if one.value is not None})
        evidence = f"{tasks[0].evidence} to {tasks[-1].evidence.rpartition(':')[2]}"
        parsed.saw("smoke.binding.tasks", node, len(tasks), "count", evidence)
        remark = next((one.why for one in tasks if one.value is None), ", ".join(known))
        parsed.saw("smoke.binding.distinct_gpus", node, len(known), "count", evidence, remark)


def exclusive_winners(parsed: Parsed) -> None:
    """Both nodes of a pair say whether they made the file; only both answers together are evidence."""
    for pair, told in by_subject(parsed, "smoke.fs.pair.created").items():
        answers = [one for one in told if one.value is not None]
        evidence = ", ".join(one.evidence for one in told)
        if len(answers) == 2:
            parsed.saw("smoke.fs.pair.winners", pair, sum(one.value is True for one in answers), "count", evidence)
        else:
            why = next((one.why for one in told if one.value is None), f"{len(told)} of 2 nodes answered")
            parsed.saw("smoke.fs.pair.winners", pair, None, "count", evidence, why)


def same_type(parsed: Parsed, run: Run) -> None:
    """Pairs are compared, not all nodes: with two nodes there would be no majority to be right."""
    types = {node: told[0] for node, told in by_subject(parsed, "smoke.fs.type").items()}
    planned = (pair for gate, pairs in run.planned.items() if gate.startswith("smoke.fs.pair.") for pair in pairs)
    for pair in dict.fromkeys(planned):
        writer, _, reader = pair.partition("->")
        if writer in types and reader in types:
            one, other = types[writer], types[reader]
            known = one.value is not None and other.value is not None  # two unknowns are not one type
            parsed.saw(
                "smoke.fs.pair.same_type",
                f"{writer}->{reader}",
                one.value == other.value if known else None,
                "flag",
                f"{one.evidence}, {other.evidence}",
                f"{one.value} and {other.value}",
            )


def two_jobs_at_once(parsed: Parsed) -> None:
    """GPUs that the two jobs would compute on, and those that each was refused because the other had them."""
    seen = {(one.quantity.removeprefix("smoke."), one.subject): one for one in parsed.observations}
    for node in by_subject(parsed, "smoke.second_job.openable"):
        if ("first_job.outlasted", node) not in seen:
            parsed.saw(
                "smoke.jobs.distinct_gpus",
                node,
                None,
                "count",
                seen["second_job.openable", node].evidence,
                "the first job was not there until the second had ended",
            )
            continue
        first, second = (
            {what: seen.get((f"{job}_job.{what}", node)) for what in ("gpu", "openable", "denied")}
            for job in ("first", "second")
        )
        evidence = ", ".join(one.evidence for one in (first["gpu"], second["gpu"]) if one is not None)
        gpus = sorted(
            {str(one.value) for one in (first["gpu"], second["gpu"]) if one is not None and one.value is not None}
        )
        parsed.saw("smoke.jobs.distinct_gpus", node, len(gpus), "count", evidence, ", ".join(gpus) or "none")
        refused = _common(first["openable"], second["denied"]) | _common(second["openable"], first["denied"])
        parsed.saw(
            "smoke.jobs.refused_gpus", node, len(refused), "count", evidence, ", ".join(sorted(refused)) or "none"
        )


def _common(one: Observation | None, other: Observation | None) -> set[str]:
    sets = [set(o.value) if o is not None and isinstance(o.value, list) else set() for o in (one, other)]
    return sets[0] & sets[1]


def spread_of_gpus(parsed: Parsed) -> None:
    """smoke.compute.spread: from the slowest GPU of all nodes to the fastest, as a share of their median; both are named."""
    told = [
        (float(one.value), one)
        for several in by_subject(parsed, "smoke.compute.gpu.tflops").values()
        for one in several
        if isinstance(one.value, int | float)
    ]
    if len(told) < 2:
        return
    (low, slowest), (high, fastest) = min(told, key=lambda item: item[0]), max(told, key=lambda item: item[0])
    middle = statistics.median(speed for speed, _ in told)
    parsed.saw(
        "smoke.compute.spread",
        "job",
        round((high - low) / middle, 4) if middle > 0 else None,
        "share",
        slowest.evidence,
        f"{len(told)} devices: {slowest.subject} {low:.4g}, median {middle:.4g}, {fastest.subject} {high:.4g} TFLOP/s",
    )


def slowest_of_nodes(parsed: Parsed, run: Run) -> None:
    """smoke.compute.gpu_of_median per node: its slowest GPU against the median of all GPUs of all nodes; the GPU is named. Unknown
    for a node of which a GPU said nothing: that one may be the slowest."""
    told: dict[str, dict[str, float]] = {}
    evidence: dict[str, str] = {}
    for subject, several in by_subject(parsed, "smoke.compute.gpu.tflops").items():
        node, _, device = subject.partition("/")
        gpus = told.setdefault(node, {})
        evidence.setdefault(node, several[0].evidence)
        speeds = [float(one.value) for one in several if isinstance(one.value, int | float)]
        if device != "cpu" and len(speeds) == len(several):
            gpus[device] = min(speeds)
    everyone = [speed for gpus in told.values() for speed in gpus.values()]
    middle = statistics.median(everyone) if everyone else 0.0
    for node, gpus in told.items():
        value, why = None, f"{len(gpus)} of {run.gpus_per_node} GPUs told their speed"
        if len(gpus) >= run.gpus_per_node and middle > 0:
            slowest = min(gpus, key=lambda gpu: gpus[gpu])
            value = round(gpus[slowest] / middle, 4)
            why = f"{slowest} {gpus[slowest]:.4g}, the median of {len(everyone)} GPUs is {middle:.4g} TFLOP/s"
        parsed.saw("smoke.compute.gpu_of_median", node, value, "ratio", evidence[node], why)


def warned_before_it_began(parsed: Parsed) -> None:
    """Slurm may send the signal a minute early. A script that had not begun is ended by it: Slurm names signal 10 (USR1)."""
    ended = next(iter(by_subject(parsed, "smoke.warning.ExitCode").get("job", [])), None)
    told = any(one.value is not None for one in by_subject(parsed, "smoke.time_limit.warned").get("job", []))
    if ended is not None and ended.value == "0:10" and not told:
        parsed.saw(
            "smoke.time_limit.warned",
            "job",
            True,
            "flag",
            ended.evidence,
            "the signal came before the script had begun",
        )


def array_indices(parsed: Parsed) -> None:
    told = by_subject(parsed, "smoke.array.index").get("job", [])
    if told:
        indices = sorted(str(one.value) for one in told)
        parsed.saw(
            "smoke.array.indices", "job", " ".join(indices), "text", f"{told[0].evidence} to {told[-1].evidence}"
        )


def dependency_and_latency(parsed: Parsed) -> None:
    _seconds_between(parsed, "smoke.before.EndTime", "smoke.after.StartTime", "smoke.dependency.waited_s")
    _seconds_between(parsed, "smoke.exit_code.SubmitTime", "smoke.exit_code.StartTime", "smoke.queue.latency_s")


def _seconds_between(parsed: Parsed, earlier: str, later: str, quantity: str) -> None:
    one, other = (next(iter(by_subject(parsed, what).get("job", [])), None) for what in (earlier, later))
    if one is None or other is None:
        return
    evidence = f"{one.evidence}, {other.evidence}"
    try:
        seconds = (datetime.fromisoformat(str(other.value)) - datetime.fromisoformat(str(one.value))).total_seconds()
    except ValueError:  # Unknown: the job never started
        parsed.saw(quantity, "job", None, "s", evidence, f"{one.value} and {other.value} are not two times")
    else:
        parsed.saw(quantity, "job", seconds, "s", evidence)
