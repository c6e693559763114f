"""How each rank of the collectives ended: nccl.rank.finished, from rank 0's report about all ranks, or from each rank's
own report when it made no progress (probes/progress.py). Pure.

If ranks wait, the ranks inside the collective are the victims, and the rank that did not enter it hung. A stopped rank
writes no report, while the others do. A victim did not finish but is not at fault: its end is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.characters import many
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan.subjects import ONE_GPU, nodes_of_scale, rank_subjects, subjects
from bringup.records import Observation, Run

GATE = "nccl.rank.finished"
PHASES = ("nccl_scaling", "nccl_monitoring")
_QUANTITIES = ("nccl.rank.state", "nccl.rank.entered", "nccl.step.exit_code")


def derive(observed: Seen, run: Run) -> Parsed:
    derived = Parsed()
    if run.phase not in PHASES:
        _pairs(derived, observed, run)
        return derived
    if not any(observed.of(quantity) for quantity in _QUANTITIES):
        return derived
    for scale in subjects("scale", run.phase, run.nodes, run.ranks_per_node):
        count = nodes_of_scale(scale)
        if scale != ONE_GPU and count is not None:  # a single rank does not wait for others
            _scale(derived, observed, rank_subjects(run.nodes[:count], run.ranks_per_node), f"collectives-{count}")
    return derived


def _scale(derived: Parsed, observed: Seen, places: list[str], step: str) -> None:
    states, hang = _by_rank(observed, "nccl.rank.state", step), hang_of(observed, places, step)
    code = next(iter(observed.of("nccl.step.exit_code", step)), None)
    for place in places:
        if place in states:
            state = states[place]
            derived.saw(GATE, place, state.value, "text", state.evidence, state.why)
        elif hang is not None and place in hang.culprits:
            derived.saw(GATE, place, hang.state, "text", hang.evidence, hang.culprits[place])
        elif hang is not None:
            derived.saw(GATE, place, None, "text", hang.evidence, hang.of_victim(place))
        elif code is not None and code.value != 0:
            derived.saw(GATE, place, None, "text", code.evidence, f"the step ended with exit code {code.value}")
        else:
            derived.saw(GATE, place, None, "text", f"raw/{step}.jsonl", "no rank reported how it ended")


def _pairs(derived: Parsed, observed: Seen, run: Run) -> None:
    """Note each pair of nodes in which a rank hung, and the reason if its link was never measured."""
    measured = {
        speed.subject
        for several in observed.starting_with("nccl.all_reduce.busbw@").values()
        for speed in several
        if speed.value is not None
    }
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

    def of_victim(self, place: str) -> str:
        where = f"waited {self.waited[place]}" if place in self.waited else "said nothing"
        return f"{where}; {self.words()}"

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
    progress = {
        place: observation
        for place, observation in _by_rank(observed, "nccl.rank.entered", step).items()
        if place in planned
    }
    entered = {
        place: observation.value for place, observation in progress.items() if isinstance(observation.value, int)
    }
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
