"""Phases inside a user's job, by their own scripts and in short form; whom their verdicts accuse, and who is best."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bringup.domains import pairs as pairwise
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.characters import many
from bringup.kernel.errors import SlurmError
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue, subjects
from bringup.kernel.plan.phases import PHASES, Phase
from bringup.kernel.plan.profile import Profile
from bringup.kernel.plan.rules import FLEET
from bringup.kernel.records import Kind, Outcome, Verdict, grouped
from bringup.preflight.allocation import Allocation
from bringup.preflight.records import PreflightLook
from bringup.report import text, write
from bringup.report.campaigns import LeftOut
from bringup.run import open as opening
from bringup.run import site as at_site
from bringup.run import slurm, waiting
from bringup.run.launch import Launch

SHORT = {"BRINGUP_LOAD_S": "10", "BRINGUP_DCGM_LEVEL": "1", "BRINGUP_PAIR_REPEATS": "1", "BRINGUP_START_S": "120"}
LIMIT_S = 240  # of one phase; then a node without an answer is accused by what is missing
STATE = "discovery.node.state"  # _by_slurm asks it anew: a job may run on a node that takes no other one
SILENT, SILENT_S = "NOT_RESPONDING", 30
LOST_STATES = {SILENT, "DOWN", "FAIL", "FAILING", "ERROR", "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN"}
_NAMED = 2  # sentences about one node
_SPEEDS = {"ratio", "share", "us", "GB/s", "TFLOP/s"}  # units of gates that other work on a node may fail for a moment

STEP = 0.1
"""Of a speed: nodes within a tenth of the best are equally fast, and Slurm's order decides. Healthy nodes differ by
less, and an order by noise would scatter the ranks over the switches."""
_LOAD = "sweep.gpu.load.tflops"

Link = tuple[str, str]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    command: Sequence[str]
    nodes: int  # that the command needs; all others are spares
    retries: int
    stall_after_s: int | None
    phases: Sequence[str]
    profile: Profile
    profile_name: str
    site: at_site.AtSite | None


@dataclass(frozen=True)
class Setting:
    """What is the same for all looks of a preflight."""

    request: Request
    allocation: Allocation
    name: str  # of the preflight: its runs are called NAME-0, NAME-1, …
    folder: Path  # of the preflight
    tell: Tell


@dataclass
class Accusation:
    """What verdicts say about nodes. everywhere: gates that failed on more than half of the nodes, with these nodes."""

    nodes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # sentences
    broken: set[str] = field(default_factory=set)  # nodes that are accused of more than a speed: it is asked once
    everywhere: dict[str, list[str]] = field(default_factory=dict)  # sentence -> nodes
    links: list[Link] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, node: str, verdict: Verdict) -> None:
        self.nodes[node].append(_words(verdict))
        if catalogue.GATES[verdict.gate].unit not in _SPEEDS:
            self.broken.add(node)

    @property
    def has_slow(self) -> bool:
        return bool(self.links or self.nodes.keys() - self.broken)

    def confirmed_by(self, again: "Accusation") -> "Accusation":
        """Return what is broken in one of two looks, and what is slow in both. A bad end leaves work on nodes,
        and neighbours have their own: a healthy node was exchanged for the pace of one moment."""
        broken = self.broken | again.broken
        sentences = {**again.nodes, **self.nodes, **{node: again.nodes[node] for node in again.broken}}
        confirmed = broken | (self.nodes.keys() & again.nodes.keys())
        nodes = {node: why for node, why in sentences.items() if node in confirmed}
        links = [link for link in self.links if link in again.links or not set(link).isdisjoint(nodes)]
        once = [*(self.nodes.keys() - nodes.keys()), *("--".join(link) for link in self.links if link not in links)]
        remarks = [f"{name} was slow, and no more when it was measured again" for name in sorted(once)]
        return replace(self, nodes=nodes, broken=broken, links=links, remarks=[*self.remarks, *again.remarks, *remarks])


def look(
    setting: Setting, nodes: Sequence[str], number: int, *, until: Collection[str] = (), is_first: bool = False
) -> tuple[PreflightLook, list[Judged]]:
    """Ask these nodes. until: end after the first phase that accuses one of them. is_first: nothing ran yet, so that a
    fault of most nodes counts against each of them. Later it may be the command's doing, and counts against none."""
    begun = time.monotonic()
    accused, remarks = _by_slurm(nodes)
    judged: list[Judged] = []
    links: list[Link] = []
    for stem in setting.request.phases:
        if opening.lacks_torch(PHASES[stem], setting.request.site):
            remarks.append(f"{stem} was not asked: torch is not installed here (make venv)")
            continue
        if not set(until).isdisjoint(entry.node for entry in accused):
            break
        left = [node for node in nodes if node not in {entry.node for entry in accused}]
        if not left or len(left) < PHASES[stem].min_nodes:
            remarks.append(f"{stem} was not asked: {many(len(left), 'node')} are left")
            continue
        setting.tell(f"{PHASES[stem].title}, on {many(len(left), 'node')}")
        judged.append(_one_phase(setting, PHASES[stem], left, str(number)))
        accusation = accuse(judged[-1])
        if not is_first and accusation.has_slow:
            setting.tell(f"{PHASES[stem].title}, again: what was slow is measured twice before an exchange")
            judged.append(_one_phase(setting, PHASES[stem], left, f"{number}-again"))
            accusation = accusation.confirmed_by(accuse(judged[-1]))
        against = dict(accusation.nodes)
        for sentence, several in accusation.everywhere.items():
            remarks.append(f"{sentence}: on {len(several)} of {len(left)} nodes, a fault of no single node")
            for node in several if is_first else ():
                against.setdefault(node, []).append(sentence)
        blamed = [node for node in left if node in against]
        accused += [LeftOut(node=node, phase=stem, why=first_few(against[node], _NAMED)) for node in blamed]
        links += accusation.links
        remarks += accusation.remarks
    folders, took = [text.shown_path(run.folder) for run in judged], round(time.monotonic() - begun, 1)
    words = list(dict.fromkeys(remarks))
    looked = PreflightLook(nodes=list(nodes), runs=folders, accused=accused, links=links, remarks=words, seconds=took)
    return looked, judged


def _by_slurm(nodes: Sequence[str]) -> tuple[list[LeftOut], list[str]]:
    """Return (nodes that Slurm does not reach; remarks). A node that drains or waits for maintenance keeps its jobs.
    One that gave no answer is asked again for a while: a busy one answers late, and a lost one is called down."""
    deadline = time.monotonic() + SILENT_S
    while True:
        try:
            known = slurm.nodes(nodes)
        except SlurmError as error:
            return [], [f"Slurm does not say how its nodes are: {error}"]
        states = {node: known[node].state.rstrip("*").upper().replace("~", "") for node in nodes if node in known}
        lost = {node: LOST_STATES.intersection(state.split("+")) for node, state in states.items()}
        silent = [node for node, words in lost.items() if words == {SILENT}]
        if not silent or time.monotonic() > deadline:
            break
        time.sleep(1)
    accused, remarks = [], []
    for node in (node for node in nodes if node in known and not known[node].is_usable):
        why = f"Slurm says {known[node].state}: {known[node].reason or 'no reason'}"
        if lost[node] and not (node in silent and 2 * len(silent) > len(nodes) > 1):
            accused.append(LeftOut(node=node, phase="slurm", why=why))
        else:
            remarks.append(f"{node}: {why}")
    return accused, remarks


def accuse(judged: Judged) -> Accusation:
    """Accuse the node of a failed gate of a node or rank, and of a gap, unless it is one of a comparison. Of
    pairs, the node that all those share that are not explained by now; where there is none, the links are named."""
    result = Accusation()
    by_gate: dict[tuple[str, bool], dict[str, Verdict]] = defaultdict(dict)
    pairs: dict[bool, list[Verdict]] = {True: [], False: []}  # failed; or not measured
    for verdict in judged.verdicts.verdicts:
        gate = catalogue.GATES.get(verdict.gate)
        if gate is None or gate.id == STATE or not judge.stops(verdict):
            continue
        is_fail = verdict.outcome is Outcome.FAIL
        if gate.per in ("node", "rank"):
            is_comparison = gate.rule in FLEET and verdict.kind is not Kind.ABSENT
            if is_fail or not (is_comparison or verdict.kind is Kind.BLOCKED):
                by_gate[gate.id, is_fail].setdefault(subjects.nodes_of(verdict.subject)[0], verdict)
        elif gate.per in ("pair", "link"):
            pairs[is_fail].append(verdict)
        elif is_fail:
            result.remarks.append(_words(verdict))
    # what failed first: it is often why something else was not found out
    for (_, is_fail), several in sorted(by_gate.items(), key=lambda entry: not entry[0][1]):
        if 2 * len(several) > len(judged.run.nodes) > 1:
            if is_fail:
                result.everywhere[_words(next(iter(several.values())))] = list(several)
            else:
                result.remarks.append(f"not known on {len(several)} nodes: {_words(next(iter(several.values())))}")
            continue
        for node, verdict in several.items():
            result.add(node, verdict)
    _accuse_of_pairs(result, pairs[True])
    if unmeasured := pairs[False]:  # no bad links: the pairs may have been ended, or never begun
        result.remarks.append(f"not known of {many(len(unmeasured), 'link')} or pairs: {_words(unmeasured[0])}")
    return result


def _accuse_of_pairs(result: Accusation, pairs: Sequence[Verdict]) -> None:
    unexplained: dict[Link, Verdict] = {}
    for verdict in pairs:
        first, second = sorted(subjects.nodes_of(verdict.subject))
        if first not in result.nodes and second not in result.nodes:
            unexplained.setdefault((first, second), verdict)
    node = subjects.shared_node(v.subject for v in unexplained.values()) if len(unexplained) > 1 else None
    if node is not None:
        for verdict in unexplained.values():
            result.add(node, verdict)
    else:
        result.links += unexplained
        result.remarks += [f"{_words(verdict)} [{first}--{second}]" for (first, second), verdict in unexplained.items()]


def _words(verdict: Verdict) -> str:
    return f"{verdict.gate}: {text.plain(text.sentence(verdict))}"


def _one_phase(setting: Setting, phase: Phase, nodes: list[str], look: str) -> Judged:
    """By the phase's own script, which finds itself in a job. What it left is judged, also where it was ended."""
    allocation, request = setting.allocation, setting.request
    name, folder = f"{setting.name}-{look}", setting.folder / look
    folder.mkdir(exist_ok=True)
    runs.folder_of(phase, name).parent.mkdir(parents=True, exist_ok=True)
    environment = SHORT | allocation.for_script(nodes, phase.stem) | {"BRINGUP_PROFILE": request.profile_name}
    at = (nodes, allocation.gpus_per_node, environment, request.profile, request.site)
    launch = Launch(phase, name, folder, lambda words: None, *at)
    others = waiting.steps_of(allocation.job)
    if not launch.here(environment, limit_s=LIMIT_S):
        waiting.end_steps(allocation.job, others, setting.tell)
    return write.judge_and_save(launch.opened("preflight"))


# --- the best of the others; pure


def speeds(judged: Iterable[Judged]) -> dict[str, float]:
    """Return node -> TFLOP/s of its slowest device under load."""
    seen = (each for run in judged for each in run.observations if each.quantity == _LOAD)
    of_node = grouped((each.node, each.value) for each in seen if is_number(each.value))
    return {node: float(min(values)) for node, values in of_node.items()}


def bandwidths(judged: Iterable[Judged]) -> dict[str, float]:
    """Return node -> GB/s with its middle partner, both directions."""
    measured = [each for run in judged for each in pairwise.measured(run.observations)[0].items()]
    of_node = grouped((node, speed.best) for direction, speed in measured for node in direction)
    return {node: median(values) for node, values in of_node.items()}


def warned(judged: Iterable[Judged]) -> dict[str, int]:
    """Count gates of its own that warn, by node."""
    warnings = (each for run in judged for each in run.verdicts.verdicts if each.outcome is Outcome.WARN)
    return Counter(each.node for each in warnings)


def ranked(nodes: Sequence[str], judged: Sequence[Judged]) -> list[str]:
    """Sort, best first: by speed under load, bandwidth, warnings, then as in `nodes`, which is Slurm's order."""
    load, network, warnings = speeds(judged), bandwidths(judged), warned(judged)
    return sorted(nodes, key=lambda node: (_below(load, node), _below(network, node), warnings.get(node, 0)))


def _below(values: Mapping[str, float], node: str) -> int:
    """By how many steps a node is slower than the best; 0 where it is not known."""
    best = max(values.values(), default=0.0)
    return int((1 - values[node] / best) / STEP) if best > 0 and node in values else 0


def choose(candidates: Sequence[str], count: int, links: Iterable[tuple[str, str]]) -> list[str] | None:
    """Choose the first `count` candidates of which no two share one of these bad links; None: there are not so many."""
    bad = {frozenset(link) for link in links}
    chosen: list[str] = []
    for node in candidates:
        if len(chosen) < count and not any(frozenset((node, other)) in bad for other in chosen):
            chosen.append(node)
    return chosen if len(chosen) == count else None
