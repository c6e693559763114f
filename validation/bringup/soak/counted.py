"""What a rotation showed: hours without a fault, faults with their place, remarks and speeds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, is_number
from bringup.kernel.judge import Judged, stops
from bringup.kernel.plan import subjects
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.records import Observation, Outcome, Verdict, grouped, time_of
from bringup.report.text import MARK, sentence, shown_path
from bringup.soak.records import KINDS, Fault, kind_of, proven

_PORTS = "discovery.rdma.ports"
Place = tuple[str, str]  # kind of fault; a node, a link, or JOB
Failure = tuple[Judged, Verdict]  # what did not pass, and the run that says so


def hours(runs: Sequence[Judged]) -> dict[str, float]:
    """Return kind of fault -> hours of parts in which it was looked for and not found. A part counts for as long as a
    job ran in which a check of the kind was judged on its node, none failed, and none that stops a run is open."""
    ports = (fact for run in runs for fact in run.observations if fact.quantity == _PORTS)
    nics = {fact.subject: max(1, int(fact.value)) for fact in ports if is_number(fact.value)}
    made: dict[str, float] = defaultdict(float)
    for run in runs:
        closed = None if run.seal is None or run.objection is not None else run.seal.closed
        if closed is None:
            continue
        lasted = (time_of(closed.closed_at) - time_of(run.run.opened_at)).total_seconds() / 3600
        looked, spoilt = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for verdict in run.verdicts.verdicts:
            nodes = {node for node in subjects.nodes_of(verdict.subject) if node in run.run.nodes} or run.run.nodes
            if verdict.outcome is Outcome.FAIL or stops(verdict):
                spoilt[kind_of(verdict.gate)].update(nodes)
            elif verdict.outcome in (Outcome.PASS, Outcome.WARN):  # a number without a limit shows no fault
                looked[kind_of(verdict.gate)].update(nodes)
        parts: dict[str, Mapping[str, int]] = {"GPU": dict.fromkeys(run.run.nodes, run.run.ranks_per_node), "NIC": nics}
        for kind, nodes in looked.items():
            each = parts.get(KINDS[kind].counts, {})
            made[kind] += max(0.0, lasted) * sum(each.get(node, 1) for node in nodes - spoilt[kind])
    return {kind: round(each, 6) for kind, each in made.items()}


def faults(runs: Sequence[Judged], without: Collection[str]) -> dict[Place, list[Failure]]:
    """Group what failed by kind and place. What failed between nodes is put down to the node that failed by itself, and
    so is what failed of the job in the same run, or of the same kind. without: nodes that were left out, which may be
    silent."""
    failed = [
        (run, verdict)
        for run in runs
        for verdict in run.verdicts.verdicts
        if verdict.outcome is Outcome.FAIL or (stops(verdict) and verdict.subject in without)
    ]
    ends = [subjects.nodes_of(verdict.subject) for _, verdict in failed]  # two of a link; else a node, a scale or job
    accused = {nodes[0] for nodes in ends if len(nodes) == 1}.union(without)
    made: dict[Place, list[Failure]] = {}
    unplaced: list[Failure] = []
    for (run, verdict), nodes in zip(failed, ends, strict=True):
        named = [node for node in nodes if node in accused and node in run.run.nodes]
        if named or len(nodes) > 1:
            made.setdefault((_kind(verdict), (named or [verdict.subject])[0]), []).append((run, verdict))
        else:
            unplaced.append((run, verdict))
    for run, verdict in unplaced:
        kind = _kind(verdict)
        near = (at for at, others in made.items() if at[0] == kind or any(other is run for other, _ in others))
        made.setdefault(next(near, (kind, subjects.JOB)), []).append((run, verdict))
    return made


def _kind(verdict: Verdict) -> str:
    return kind_of(verdict.gate) if verdict.outcome is Outcome.FAIL else "node"  # it fell silent


def is_doubtful(place: Place, failed: Sequence[Failure], without: Collection[str]) -> bool:
    """Say whether it is a link, or the job, that was slow and answered: another process slows one measurement, too, and
    on a busy node one direction of a pair. It is a fault where the next rotation says the same."""
    kind, where = place
    answered = (is_number(verdict.value) and verdict.value > 0 for _, verdict in failed)
    are_speeds = all(verdict.unit in (*SPEEDS, "ratio", "us") for _, verdict in failed)
    return kind == "link" and where not in without and are_speeds and all(answered)


def as_fault(place: Place, failed: Sequence[Failure], rotation: int) -> Fault:
    kind, where = place
    run, verdict = next((each for each in failed if where in subjects.nodes_of(each[1].subject)), failed[0])
    at = run.run.opened_at if run.seal is None or run.seal.closed is None else run.seal.closed.closed_at
    also = list(dict.fromkeys(other.gate for _, other in failed if other.gate != verdict.gate))
    gate, at_run, says = verdict.gate, shown_path(run.folder), sentence(verdict)
    return Fault(kind=kind, place=where, at=at, rotation=rotation, gate=gate, run=at_run, says=says, also=also)


def observed(runs: Sequence[Judged]) -> list[Observation]:
    """Return `soak.KIND`: hours of parts for one fault at most, with 95 %, by all of these runs."""
    seen = Parsed()
    for each in proven(hours(runs), (kind for kind, _ in faults(runs, [])), {}):
        seen.saw(f"soak.{each.kind}", subjects.JOB, each.bound, f"{each.counts}-hours", "all runs")
    return seen.observations


def remarks(runs: Iterable[Judged], without: Collection[str]) -> set[str]:
    """Return warnings, and what stops a run and was not known, but of nodes that were left out."""
    places = grouped(
        (f"{MARK[verdict.outcome]} {verdict.gate}", verdict.subject)
        for run in runs
        for verdict in run.verdicts.verdicts
        if verdict.outcome is Outcome.WARN or (verdict.outcome is Outcome.INCOMPLETE and stops(verdict))
        if not set(without) & {*subjects.nodes_of(verdict.subject)}
    )
    return {f"{words} [{first_few(several, 3)}]" for words, several in places.items()}


def speeds(runs: Iterable[Judged]) -> Iterator[tuple[str, float]]:
    """Yield `GATE WHERE` and value of each speed of a node or link: of checks with a floor, in its unit or as a ratio
    to what is usual."""
    for run in (run for run in runs if run.objection is None):
        for verdict in run.verdicts.verdicts:
            check, value = GATES.get(verdict.gate), verdict.value
            if check is None or check.per not in ("node", "link") or check.rule not in ("at_least", "near_peers"):
                continue
            if check.unit in (*SPEEDS, "ratio") and is_number(value) and value > 0:
                yield f"{verdict.gate} {verdict.subject}", float(f"{value:.4g}")
