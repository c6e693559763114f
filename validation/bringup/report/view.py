"""One run as people read it: what its screen, its report.md, its explanation and its section of the page show.

Everything shown comes from records.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from shlex import quote

from bringup import registry
from bringup.kernel.answers import in_words, number_of
from bringup.kernel.facts import hostlist
from bringup.kernel.facts.names import listed, shortened
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue, transports
from bringup.kernel.plan import subjects as naming
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import value_in_words
from bringup.kernel.records import Kind, Outcome, Sign, Verdict, grouped
from bringup.report import collectives, text
from bringup.report.render import render
from bringup.report.trainings import layout

MAX_LISTED = 12  # on the screen; the report lists all
MIN_ALIKE = 3  # failed pairs that are alike share their lines on the screen from so many on; all others from two
_LIMITS = ("at_least", "at_most", "between", "near_peers")  # rules that leave room: the number itself says more
_COUNTED = ("count", "flag", "text", "sum")
_SHOWN = {gate for claim in CLAIMS for gate in claim.shows}
_Key = tuple[object, ...]


@dataclass(frozen=True)
class View:
    judged: Judged

    @property
    def title(self) -> str:
        return PHASES[self.judged.run.phase].title

    @property
    def mark(self) -> str:
        return text.MARK[self.judged.verdicts.outcome]

    @cached_property
    def counted(self) -> str:
        return text.counted(self.judged.verdicts.verdicts)

    @cached_property
    def bad(self) -> list[Verdict]:
        return text.not_passed(self.judged.verdicts.verdicts)

    @cached_property
    def without_limit(self) -> list[tuple[str, str, str, str]]:
        """Return what was measured and has no limit: gate, subjects, values, why there is none."""
        return [
            (gate, self._where(alike), spread(alike), _several(verdict.cause or "" for verdict in alike))
            for gate, alike in self._by_gate(Outcome.NO_LIMIT).items()
        ]

    def _by_gate(self, outcome: Outcome) -> dict[str, list[Verdict]]:
        return grouped((each.gate, each) for each in self.judged.verdicts.verdicts if each.outcome is outcome)

    @cached_property
    def passed(self) -> dict[str, list[Verdict]]:
        return self._by_gate(Outcome.PASS)

    @cached_property
    def proven(self) -> list[tuple[str, str, str, str, str]]:
        """Return for each gate, of all nodes: gate, subjects, values, expected, evidence of the first."""
        rows = []
        for gate, alike in self.passed.items():
            observed, expected = _several(v.observed for v in alike), _several(v.expected for v in alike)
            rows.append((gate, shortened([v.subject for v in alike]), observed, expected, alike[0].evidence))
        return rows

    @cached_property
    def measured(self) -> dict[str, tuple[str, str, str, str]]:
        """Return gate -> what a pass says, subjects, values, limit; of what passed a limit that leaves room and is not
        0, or has none; but for what the table of collectives, or a takeaway of a training, says."""
        elsewhere = {f"nccl.{name}.{what}" for name in self.collectives for what in ("busbw", "latency")}
        elsewhere |= {*layout().confirmed} if PHASES[self.judged.run.phase].is_training else set()
        passed = [
            (gate, alike, _several(verdict.expected for verdict in alike))
            for gate, alike in self.passed.items()
            if gate in transports.GATES
            or (alike[0].rule in _LIMITS and alike[0].unit not in _COUNTED and any(each.value for each in alike))
        ]
        open_ended = [(gate, alike, "no limit") for gate, alike in self._by_gate(Outcome.NO_LIMIT).items()]
        return {
            gate: (text.proves(gate) or gate, self._where(alike), spread(alike), limit)
            for gate, alike, limit in passed + open_ended
            if gate not in elsewhere
        }

    @property
    def numbers(self) -> list[str]:
        """Say the numbers that the answers show, of what passed: others are said in a line of their own."""
        shown = [alike for gate, alike in self.passed.items() if gate in _SHOWN]
        return [in_words(number) for alike in shown if (number := number_of(alike)) is not None]

    @property
    def next(self) -> str:
        """Return the command of the phase after this one, for who starts them one by one; empty if this failed."""
        run, phase = self.judged.run, PHASES[self.judged.run.phase]
        if self.judged.verdicts.outcome.exit_code:
            return ""
        if phase.is_training and not phase.one_gpu:
            return "bringup compare"
        nodes, phases = len(run.nodes), list(PHASES.values())
        fitting = (each for each in phases[phases.index(phase) + 1 :] if each.lacks(nodes, run.gpus_per_node) is None)
        return next((each.command(nodes) for each in fitting), "")

    @cached_property
    def collectives(self) -> dict[str, list[collectives.Row]]:
        return collectives.tables(self.judged.measured, self.judged.verdicts.verdicts)

    def not_passed(self, shown: Collection[str]) -> list[tuple[str, str, str, list[str]]]:
        """Return what did not pass, but for gates in `shown` that say the same of all subjects: outcome, subjects, why,
        and the gates of which this is true."""
        gates: dict[tuple[str, str, str], list[str]] = {}
        for group in grouped(((each.outcome, each.gate), each) for each in self.bad).values():
            reasons = grouped((text.sentence(each), each.subject) for each in group)
            if len(reasons) == 1 and group[0].gate in shown and len(group) <= MAX_LISTED:
                continue
            for why, subjects in reasons.items():
                gates.setdefault((text.MARK[group[0].outcome], _all(subjects), why), []).append(group[0].gate)
        return [(*key, names) for key, names in gates.items()]

    def _where(self, alike: Sequence[Verdict]) -> str:
        subjects = [verdict.subject for verdict in alike]
        return "all nodes" if set(subjects) == set(self.judged.run.nodes) else listed(subjects)

    @cached_property
    def domains(self) -> dict[str, list[str]]:
        """Return all that passed: the first word of gates' names -> the gates, without it."""
        return grouped((gate.partition(".")[0], gate.partition(".")[2]) for gate in self.passed)

    @property
    def profile(self) -> str:
        opened_with, verdicts = self.judged.run.profile, self.judged.verdicts
        used = verdicts.profile + (f" ({verdicts.recognised})" if verdicts.recognised is not None else "")
        return used if verdicts.profile == opened_with else f"{used} (the run was opened with {opened_with})"

    @property
    def other_profile(self) -> str:
        """Return what a further command has to name, to judge it as this one did; for a shell."""
        used = self.judged.verdicts.profile
        return "" if used == self.judged.run.profile else quote(used)

    @property
    def record(self) -> list[tuple[str, str]]:
        """Say who, when, with what."""
        run = self.judged.run
        rows = {
            "run": run.name,
            "opened": run.opened_at,
            "nodes": f"{listed(run.nodes)}, {run.gpus_per_node} GPUs each",
            "profile": self.profile,
            "site": "" if run.site is None else text.site_in_words(run.site),
            "bringup commit": text.commit(run.git_commit, run.git_dirty),
            "Slurm job": run.slurm_job_id or "none (started on the login host)",
            "time": collectives.time_spent(self.judged.measured),
            "planned before the run": f"{sum(map(len, run.planned.values()))} checks",
        }
        return [(name, value) for name, value in rows.items() if value]

    @cached_property
    def not_applicable(self) -> dict[str, list[str]]:
        """Return reason -> gates that the profile excludes for it."""
        return grouped((entry.reason, entry.gate) for entry in self.judged.verdicts.not_applicable)

    @property
    def signs(self) -> Iterator[tuple[Sign, str, str]]:
        """Yield each with its cause, and what to do about it."""
        for sign in self.judged.verdicts.signs:
            known = registry.called(registry.SIGNATURES).get(sign.signature)
            yield (sign, "unknown to this version", "") if known is None else (sign, known.cause, known.do)


def screen(judged: Judged) -> str:
    """Show one phase on one screen: outcome, what failed and where, what is not proven, where the report is."""
    groups, left = on_screen(judged.verdicts.verdicts)
    return render("screen.txt.j2", view=View(judged), shown=_shown(groups), left=left, most=MAX_LISTED)


def in_short(judged: Judged) -> str:
    """Show one phase of several: a line if there is nothing to add to its pass, else as `screen`."""
    whole, verdicts = screen(judged), judged.verdicts
    is_short = all(each.outcome is Outcome.PASS for each in verdicts.verdicts) and not verdicts.notes
    kept = 2 if judged.run.phase == "discovery" and verdicts.recognised is not None else 1  # which numbers are to come
    return "\n".join(whole.split("\n")[:kept]) if is_short else whole


def not_known(verdicts: Iterable[Verdict]) -> str:
    """Say what stays open after all phases of a playbook, a line for each reason; on the screen, below the answers."""
    groups, left = on_screen(verdict for verdict in verdicts if verdict.outcome is Outcome.INCOMPLETE)
    return render("not_known.txt.j2", shown=_shown(groups), left=left)


def reasons(verdicts: Sequence[Verdict]) -> list[str]:
    """Say why these are open, a line for each reason."""
    return [says for _, says, _ in _shown(_alike(verdicts))]


_ALIKE: tuple[Callable[[Verdict], _Key | None], ...] = (  # tried in turn; None: not of this kind
    lambda v: (v.kind, _cause(v)) if v.kind in (Kind.UNKNOWN, Kind.BLOCKED) else None,  # a log that cannot be read
    lambda v: (v.gate, v.kind, v.cause) if v.outcome is Outcome.INCOMPLETE else None,  # a number that nobody declared
    lambda v: (v.gate, v.kind) if v.outcome is Outcome.INCOMPLETE else None,  # for reasons that name a device each
    lambda v: (v.gate, v.outcome) if _is_pair(v) and v.outcome is not Outcome.INCOMPLETE else None,  # pairs of one node
    lambda v: (v.gate, v.outcome, v.observed, v.expected) if v.outcome is not Outcome.INCOMPLETE else None,  # a setting
    lambda v: (v.gate, v.outcome) if v.outcome is Outcome.FAIL and is_number(v.value) else None,  # a fault of the whole
    lambda v: (v.subject, v.outcome, v.evidence) if ":" in v.evidence else None,  # one line, judged by several gates
)


def _cause(verdict: Verdict) -> str:
    """Return its words without the numbers of jobs, steps and lines."""
    return re.sub(r"\d+", "", verdict.cause or "")


def _is_pair(verdict: Verdict) -> bool:
    gate = catalogue.GATES.get(verdict.gate)
    return gate is not None and gate.per == "pair"


def on_screen(verdicts: Iterable[Verdict]) -> tuple[list[list[Verdict]], list[Verdict]]:
    """Return (what the screen shows, those of one reason together; what it leaves to the report)."""
    groups = _alike(text.not_passed(verdicts))
    return groups[:MAX_LISTED], [verdict for group in groups[MAX_LISTED:] for verdict in group]


def _alike(bad: Sequence[Verdict]) -> list[list[Verdict]]:
    """Group what is missing for one reason, failed between pairs of nodes, or failed alike on several nodes; all others
    are alone. In the order of `bad`."""
    order = {id(verdict): number for number, verdict in enumerate(bad)}
    left, groups = list(bad), list[list[Verdict]]()
    gates = grouped(((v.subject, v.kind, _cause(v)), v.gate) for v in bad if v.outcome is Outcome.INCOMPLETE)

    def lacks_alike(v: Verdict) -> _Key | None:  # dead nodes: each lacks the same
        lacking = gates.get((v.subject, v.kind, _cause(v)), [])
        return (*lacking, v.kind, _cause(v)) if len(lacking) > 1 else None

    for key_of in (_ALIKE[0], lacks_alike, *_ALIKE[1:]):
        together = grouped((key, verdict) for verdict in left if (key := key_of(verdict)) is not None)
        groups += [group for group in together.values() if len(group) >= _least(group)]
        taken = {id(verdict) for group in groups for verdict in group}
        left = [verdict for verdict in left if id(verdict) not in taken]
    return sorted([*groups, *([verdict] for verdict in left)], key=lambda group: order[id(group[0])])


def _least(group: Sequence[Verdict]) -> int:
    """So many of them share their lines."""
    first = group[0]
    gates, observed = {v.gate for v in group}, {v.observed for v in group}
    differ = first.outcome is Outcome.FAIL and len(gates) == 1 and len(observed) > 1
    return MIN_ALIKE if first.outcome is not Outcome.INCOMPLETE and (_is_pair(first) or differ) else 2


def _shown(groups: Sequence[Sequence[Verdict]]) -> list[tuple[str, str, str]]:
    """Return mark, what is said, and the line below it; the same of several is said once, the report has a row each."""
    shown = []
    for group in groups:
        first, is_open = group[0], group[0].outcome is Outcome.INCOMPLETE
        gates = list(dict.fromkeys(v.gate for v in group))
        subjects = list(dict.fromkeys(v.subject for v in group))
        says, number = f"{first.gate} [{first.subject}]: {text.sentence(first)}", len(group)
        alike = "; or alike" if len({v.cause for v in group}) > 1 else ""
        also = f"; also {', '.join(gates[1:])}" if len(gates) > 1 else ""
        below = f"all are in the report; what to do first: {text.remedy(first)}"
        if number == 1 or (also and not is_open):
            says, below = f"{says}{also}", f"evidence {first.evidence}; what to do: {text.remedy(first)}"
        elif not is_open and _is_pair(first):
            node = naming.shared_node(subjects)
            says += f" ({number} pairs{'' if node is None else f', all with {node}'}: {_some(subjects)})"
        elif not is_open:
            values = f", {spread(group)}" if len({v.observed for v in group}) > 1 else ""
            says = f"{first.gate} [{_some(subjects)}]: {text.sentence(first)} ({naming.counted(subjects)}{values})"
        elif len(subjects) == 1:
            says = f"[{first.subject}]: {first.cause}{alike} ({number} gates: {_some(gates)})"
        elif len(gates) == 1:
            causes = list(dict.fromkeys(v.cause or "" for v in group))
            more = f"; and {len(causes) - 2} more reasons" if len(causes) > 2 else ""
            says = f"{first.gate}: {'; or '.join(causes[:2])}{more} ({naming.counted(subjects)}: {_some(subjects)})"
        else:
            says = f"{first.cause}{alike} ({number} verdicts: {_some(gates)} on {listed(subjects)})"
        shown.append((text.MARK[first.outcome], says, below))
    return shown


def spread(alike: Sequence[Verdict]) -> str:
    """Return values in the order of their subjects; of many, the lowest and the highest."""
    few = len({verdict.value for verdict in alike}) <= MIN_ALIKE
    ordered = alike if few else sorted(alike, key=lambda verdict: verdict.value if is_number(verdict.value) else 0)
    values = list(dict.fromkeys(map(_observed, ordered)))
    return "; ".join(values) if few else f"{values[0]} to {values[-1]}"


def _observed(verdict: Verdict) -> str:
    """Say what was observed; where several sizes were measured, the value of the one that tells most."""
    if verdict.outcome is Outcome.NO_LIMIT and verdict.at is not None and verdict.value is not None:
        return f"{value_in_words(verdict.value, verdict.unit)} at {verdict.at}"
    return verdict.observed.partition(" (")[0]


def _all(subjects: Iterable[str]) -> str:
    """Name each subject; nodes in Slurm's short form."""
    distinct = list(dict.fromkeys(subjects))
    return hostlist.shortened(distinct) if all(map(hostlist.is_name, distinct)) else ", ".join(distinct)


def _several(texts: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    shown = "; ".join(distinct[:3])
    return shown if len(distinct) <= 3 else f"{shown}; … ({len(distinct)} different)"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MIN_ALIKE]) + (", …" if len(names) > MIN_ALIKE else "")
