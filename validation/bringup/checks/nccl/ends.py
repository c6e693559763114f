"""How each rank of the collectives ended: nccl.rank.finished, from what rank 0 said of all, or what each rank said
itself when it got no further (probes/progress.py). Pure.

Where ranks wait, those that entered the collective are the victims. The one that never came to it hung. A rank that is
stopped says nothing, while the others do. A victim did not finish and is not the fault: its end is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.evidence.parsed import Parsed, Seen
from bringup.plan.subjects import ONE_GPU, nodes_of_scale, rank_subjects, subjects
from bringup.records import Observation, Run

GATE = "nccl.rank.finished"
PHASES = ("nccl_scaling", "nccl_monitoring")
_LISTED = 4
_SAID = ("nccl.rank.state", "nccl.rank.entered", "nccl.step.exit_code")


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    if run.phase not in PHASES:
        _pairs(found, seen, run)
        return found
    if not any(seen.of(quantity) for quantity in _SAID):
        return found
    for scale in subjects("scale", run.phase, run.nodes, run.ranks_per_node):
        count = nodes_of_scale(scale)
        if scale != ONE_GPU and count is not None:  # one rank alone waits for nobody
            places = rank_subjects(run.nodes[:count], run.ranks_per_node)
            _scale(found, seen, places, f"raw/collectives-{count}")
            found.problems += _flight(seen, places, f"raw/nccl-{count}")
    return found


def _scale(found: Parsed, seen: Seen, places: list[str], files: str) -> None:
    states, hang = _of_file(seen, "nccl.rank.state", files), hang_of(seen, places, files)
    code = next((code for code in seen.of("nccl.step.exit_code") if code.evidence == f"{files}.rc"), None)
    for place in places:
        if place in states:
            said = states[place]
            found.saw(GATE, place, said.value, "text", said.evidence, said.why)
        elif hang is not None and place in hang.culprits:
            found.saw(GATE, place, hang.state, "text", hang.evidence, hang.culprits[place])
        elif hang is not None:
            found.saw(GATE, place, None, "text", hang.evidence, hang.of_victim(place))
        elif code is not None and code.value != 0:
            found.saw(GATE, place, None, "text", code.evidence, f"the step ended with exit code {code.value}")
        else:
            found.saw(GATE, place, None, "text", f"{files}.jsonl", "no rank reported how it ended")


def _flight(seen: Seen, places: list[str], folder: str) -> list[str]:
    """A note of what torch's flight recorder kept. It corroborates, and accuses nobody by itself."""
    begun = {
        one.subject: one for one in seen.of("nccl.flight.begun") if one.evidence.startswith(f"{folder}/flight.rank")
    }
    if not begun:
        return []
    by_words: dict[str, list[str]] = {}
    for place in places:
        one = begun.get(place)
        words = "left no record" if one is None else f"had begun {one.value} collectives, the last {one.why}"
        by_words.setdefault(words, []).append(place)
    told = [
        f"{', '.join(ranks[:_LISTED])}{f' and {len(ranks) - _LISTED} more' if len(ranks) > _LISTED else ''} {words}"
        for words, ranks in sorted(by_words.items(), key=lambda item: len(item[1]))
    ]
    return [f"{folder}: torch's flight recorder: {'; '.join(told[:_LISTED])}"]


def _pairs(found: Parsed, seen: Seen, run: Run) -> None:
    """A note for each pair of nodes in which a rank hung; and why its link was not measured, if it never was."""
    measured = {
        speed.subject
        for several in seen.starting_with("nccl.all_reduce.busbw@").values()
        for speed in several
        if speed.value is not None
    }
    told: set[str] = set()
    for quiet in seen.of("nccl.quiet"):
        files, link = quiet.evidence.rpartition(".jsonl:")[0], quiet.subject
        if files in told or "--" not in link:
            continue
        told.add(files)
        nodes = [node for node in run.nodes if node in link.split("--")]
        hang = hang_of(seen, rank_subjects(nodes, run.ranks_per_node), files)
        if hang is not None:
            found.problems.append(f"{files}.jsonl: {link}: {hang.words()}")
            if link not in measured:
                measured.add(link)
                found.saw("nccl.pair.link", link, None, "ratio", hang.evidence, hang.words())


@dataclass(frozen=True)
class Hang:
    """Ranks that waited, and whom they waited for."""

    state: str  # of the culprits: hung or silent
    culprits: dict[str, str]  # place -> why
    waited: dict[str, str]  # place -> where it was
    evidence: str

    def of_victim(self, place: str) -> str:
        where = f"waited {self.waited[place]}" if place in self.waited else "said nothing"
        return f"{where}; {self.words()}"

    def words(self) -> str:
        """Of the first culprit."""
        if not self.culprits:
            return "no rank was behind the others"
        place, why = next(iter(self.culprits.items()))
        more = f"; and {len(self.culprits) - 1} more rank(s)" if len(self.culprits) > 1 else ""
        return f"first {place} {self.state}: {why}{more}"


def hang_of(seen: Seen, places: list[str], files: str) -> Hang | None:
    """None: no rank of this step was without progress for long, or went on to its end."""
    planned = set(places)
    said = {place: one for place, one in _of_file(seen, "nccl.rank.entered", files).items() if place in planned}
    entered = {place: one.value for place, one in said.items() if isinstance(one.value, int)}
    if not entered or _of_file(seen, "nccl.rank.state", files):
        return None
    left = {place: one.value for place, one in _of_file(seen, "nccl.rank.left", files).items()}
    waited = {place: str(said[place].why) for place in entered}
    evidence = next(iter(said.values())).evidence
    silent = [place for place in places if place not in entered]
    most = max(entered.values())
    first = next(place for place, count in entered.items() if count == most)
    if silent and len(silent) <= len(entered):  # where most are silent, their words were lost
        why = f"it said nothing, while {len(entered)} rank(s) waited: {first} {waited[first]}"
        return Hang("silent", dict.fromkeys(silent, why), waited, evidence)
    fewest = min(entered.values())
    behind = [place for place, count in entered.items() if count == fewest < most]
    outside = [place for place in behind if left.get(place) == fewest]  # the others wait in an earlier one
    culprits = {
        place: f"{waited[place]}: it had entered {fewest} collectives, {first} {most}, which waited {waited[first]}"
        for place in (outside or behind if not silent else [])
    }
    return Hang("hung", culprits, waited, evidence)


def _of_file(seen: Seen, quantity: str, files: str) -> dict[str, Observation]:
    return {one.subject: one for one in seen.of(quantity) if one.evidence.startswith(f"{files}.jsonl:")}
