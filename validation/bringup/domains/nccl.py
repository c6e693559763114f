"""Observations derived from the measurements of collectives, under the ids of the gates that judge them."""

from collections.abc import Iterable
from dataclasses import dataclass

from bringup.domains import pair_kinds, pairs
from bringup.kernel.characters import many
from bringup.kernel.facts.fold import ended_by_slurm
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan.subjects import ONE_GPU, nodes_of_scale, rank_subjects, scales_of
from bringup.kernel.plan.transports import is_recognised, is_tcp
from bringup.kernel.records import Observation, Run
from bringup.readers import clock
from bringup.readers.curve import Point, curves
from bringup.readers.slurm import SWITCHES

_QUANTITIES = ("nccl.rank.state", "nccl.rank.entered", "nccl.step.exit_code")


def links(derived: Parsed, observed: Seen, run: Run) -> None:
    """Score nodes and links by the speeds of pairs, by their place in the network, and by what was sent again."""
    _hung_pairs(derived, observed, run)
    places = pair_kinds.places([*observed.of(pair_kinds.NVLINK_CLUSTER), *observed.of(SWITCHES)])
    derived.add(pairs.derive(observed.under("pair.", "nccl."), run.nodes, places))
    derived.add(pairs.topology(observed))
    derived.add(pairs.sent_again(observed.of(pairs.SENT_AGAIN)))


def step(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.step per scale: the exit code of its step. Victims have the same code, so the remark names the task
    that srun reported first. If ranks hung or did not come, it names those, because srun then reports the ranks that
    waited."""
    for code in observed.of("nccl.step.exit_code"):
        missed = next((rank.why for rank in observed.of("nccl.rank.late", code.step)), None)
        nodes = run.nodes[: nodes_of_scale(code.subject) or 0]
        hang = hang_of(observed, rank_subjects(nodes, run.ranks_per_node), code.step)
        hung = hang.words() if hang is not None and hang.culprits else None
        why = code.why if code.value == 0 else missed or hung or first_error(observed, code.step)
        value, ended = code.value, ended_by_slurm(observed, code.step)
        if value != 0 and ended is not None and not (missed or hung):
            value, why = None, ended
        derived.saw("nccl.step", code.subject, value, "count", code.evidence, why)


def first_error(seen: Seen, step: str) -> str | None:
    """Say which task srun named first in a step."""
    for error in seen.of("slurm.launch.error", step):
        return f"first {error.subject}{f': {error.why}' if error.why else ''}: {error.value}"
    return None


def bypassed(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.rdma.bypassed per scale: sockets were used between hosts, although one has an active RDMA device."""
    transports = {transport.subject: transport for transport in observed.of("nccl.transport")}
    for active in observed.of("nccl.rdma.active"):
        if not isinstance(active.value, list):
            continue
        used, was_bypassed = transports.get(active.subject), None
        if used is None or used.value is None:
            why = "which network was used is not known" + (f": {used.why}" if used is not None else "")
        else:
            why = f"{'; '.join(active.value) or 'no RDMA device is active'}; used {used.why or used.value}"
            if not active.value or is_tcp(str(used.value)) or is_recognised(str(used.value)):
                was_bypassed = bool(active.value) and is_tcp(str(used.value))
            else:
                why = f"whether {used.value} is TCP is not known; {why}"
        derived.saw("nccl.rdma.bypassed", active.subject, was_bypassed, "flag", active.evidence, why)


Ratio = tuple[float, str, Point]  # of a point of the curve of this collective


def shapes(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.curve.dip: the lowest ratio of a size to the slower one of its neighbour sizes. nccl.curve.plateau:
    the ratio of the largest size to the fastest. The worst collective counts, and is named."""
    for scale, by_name in curves(observed.under("nccl.")).items():
        for gate, ratios in (("nccl.curve.dip", _dips), ("nccl.curve.plateau", _end)):
            _worst(derived, gate, scale, [ratio for name, points in by_name.items() for ratio in ratios(name, points)])


def _dips(name: str, points: list[Point]) -> Iterable[Ratio]:
    for before, point, after in zip(points, points[1:], points[2:], strict=False):
        slower = min(before[1], after[1])
        if slower > 0:
            yield min(1.0, point[1] / slower), name, point


def _end(name: str, points: list[Point]) -> Iterable[Ratio]:
    best = max(speed for _, speed, _ in points)
    if len(points) > 1 and best > 0:
        yield points[-1][1] / best, name, points[-1]


def _worst(derived: Parsed, quantity: str, scale: str, ratios: list[Ratio]) -> None:
    if not ratios:
        derived.saw(quantity, scale, None, "ratio", "raw/", "too few sizes were measured to see a shape")
        return
    ratio, name, (_, speed, measured) = min(ratios, key=lambda item: item[0])
    at = measured.quantity.partition("@")[2]
    derived.saw(quantity, scale, round(ratio, 3), "ratio", measured.evidence, f"{name} at {at}: {speed:.4g} GB/s")


def clocks_of_samples(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.monitor.clock, s, per sampled node: how exact its samples are on the common time axis."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    unknown = {behind.subject: behind.why for behind in observed.of(clock.BEHIND) if behind.value is None}
    for coverage in observed.of("nccl.monitor.coverage"):
        node, shift = coverage.subject, measured.get(coverage.subject)
        if shift is None:
            why = "its clock was not compared, and its samples stand at its own time"
            why = f"{why}: {unknown.get(node, 'nothing arrived')}"
        else:
            why = f"{shift}; its samples are moved by {shift.moved}"
        value = shift.uncertainty if shift else None
        derived.saw("nccl.monitor.clock", node, value, "s", coverage.evidence, why)


def ranks_ended(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.rank.finished, from rank 0's report about all ranks, or from each rank's own report when it made no
    progress (probes/progress.py).

    If ranks wait, the ranks inside the collective are the victims, and the rank that did not enter it hung. A stopped
    rank writes no report, while the others do. A victim did not finish but is not at fault: its end is unknown."""
    if not any(observed.of(quantity) for quantity in _QUANTITIES):
        return
    for name, count, _ in scales_of(run.phase, len(run.nodes), run.ranks_per_node):
        if name != ONE_GPU:  # a single rank does not wait for others
            _scale(derived, observed, rank_subjects(run.nodes[:count], run.ranks_per_node), f"collectives-{count}")


def _scale(derived: Parsed, observed: Seen, places: list[str], step: str) -> None:
    states, hang = _by_rank(observed, "nccl.rank.state", step), hang_of(observed, places, step)
    code = next(iter(observed.of("nccl.step.exit_code", step)), None)
    for place in places:
        if (state := states.get(place)) is not None:
            derived.saw("nccl.rank.finished", place, state.value, "text", state.evidence, state.why)
            continue
        value, evidence, why = None, f"raw/{step}.jsonl", "no rank reported how it ended"
        if hang is not None:
            value, evidence = hang.state if place in hang.culprits else None, hang.evidence
            waited = f"waited {hang.waited[place]}" if place in hang.waited else "said nothing"
            why = hang.culprits.get(place) or f"{waited}; {hang.words()}"
        elif code is not None and code.value != 0:
            evidence, why = code.evidence, f"the step ended with exit code {code.value}"
        derived.saw("nccl.rank.finished", place, value, "text", evidence, why)


def _hung_pairs(derived: Parsed, observed: Seen, run: Run) -> None:
    """Note each pair of nodes in which a rank hung, and the reason if its link was never measured."""
    measured = {seen.subject for seen in observed.under("nccl.all_reduce.busbw@") if seen.value is not None}
    noted: set[str] = set()
    for quiet in observed.of("nccl.quiet"):
        step, link = quiet.step, quiet.subject
        if step in noted or "--" not in link:
            continue
        noted.add(step)
        nodes = [node for node in run.nodes if node in link.split("--")]
        hang = hang_of(observed, rank_subjects(nodes, run.ranks_per_node), step)
        if hang is not None:
            derived.problems.append(f"raw/{step}.jsonl: {link}: {hang.words()}")
            if link not in measured:
                measured.add(link)
                derived.saw("nccl.pair.link", link, None, "ratio", hang.evidence, hang.words())


@dataclass(frozen=True)
class Hang:
    """Ranks that waited, and the ranks that they waited for."""

    state: str  # of the culprits: hung or silent
    culprits: dict[str, str]  # place -> why
    waited: dict[str, str]  # place -> where it was
    evidence: str

    def words(self) -> str:
        """Describe the first culprit."""
        if not self.culprits:
            return "no rank was behind the others"
        place, why = next(iter(self.culprits.items()))
        more = f"; and {many(len(self.culprits) - 1, 'more rank')}" if len(self.culprits) > 1 else ""
        return f"first {place} {self.state}: {why}{more}"


def hang_of(observed: Seen, places: list[str], step: str) -> Hang | None:
    """Find the hang of a step. None: no rank was long without progress, or the ranks continued to the end."""
    planned = set(places)
    by_rank = _by_rank(observed, "nccl.rank.entered", step)
    progress = {place: count for place, count in by_rank.items() if place in planned}
    entered = {place: count.value for place, count in progress.items() if isinstance(count.value, int)}
    if not entered or observed.of("nccl.rank.state", step):
        return None
    left = {place: observation.value for place, observation in _by_rank(observed, "nccl.rank.left", step).items()}
    waited = {place: str(progress[place].why) for place in entered}
    evidence = next(iter(progress.values())).evidence
    silent = [place for place in places if place not in entered]
    most = max(entered.values())
    first = next(place for place, count in entered.items() if count == most)
    if silent and len(silent) <= len(entered):  # if most ranks are silent, their reports were lost
        why = f"it said nothing, while {many(len(entered), 'rank')} waited: {first} {waited[first]}"
        return Hang("silent", dict.fromkeys(silent, why), waited, evidence)
    fewest = min(entered.values())
    behind = [place for place, count in entered.items() if count == fewest < most]
    outside = [place for place in behind if left.get(place) == fewest]  # the others wait in an earlier one
    culprits = {
        place: f"{waited[place]}: it had entered {fewest} collectives, {first} {most}, which waited {waited[first]}"
        for place in (outside or behind if not silent else [])
    }
    return Hang("hung", culprits, waited, evidence)


def _by_rank(observed: Seen, quantity: str, step: str) -> dict[str, Observation]:
    return {observation.subject: observation for observation in observed.of(quantity, step)}
