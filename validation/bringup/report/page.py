"""One self-contained HTML page of everything a set of runs says: `bringup report`. At its top the six questions, a tile
each; then a section for each run."""

import base64
import hashlib
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import NamedTuple

from bringup.kernel.answers import in_words, stand_ins_of
from bringup.kernel.characters import many
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.claims import QUESTION_NAMES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Answer, Mark, Outcome, Verdict, grouped, time_of
from bringup.report import drain, figures, fleet, layers, next_steps, system, text, trainings
from bringup.report.charts.drawing import Drawing
from bringup.report.collection import Collection
from bringup.report.links import Links, nowhere, to_evidence
from bringup.report.render import TEMPLATES
from bringup.report.render import render as rendered
from bringup.report.view import View

SEARCH = (TEMPLATES / "search.js").read_text(encoding="utf-8").rstrip("\n")
"""The only script of the page, as the template includes it. The page's policy names its hash: no other one runs."""

MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all
WIDTH = 100.0  # of the whole time, in units of a bar
_LEAST = 0.6  # of a bar, so that a short step is seen


@dataclass(frozen=True)
class Section:
    judged: Judged
    anchor: str
    waited_s: float | None  # that a playbook waited for its phase
    links: Links

    @cached_property
    def view(self) -> View:
        return View(self.judged)

    @cached_property
    def curves(self) -> list[Drawing]:
        """Return bandwidth over size."""
        return figures.over_size(self.judged)

    @cached_property
    def between(self) -> list[Drawing]:
        """Return bandwidth between nodes."""
        return figures.between_nodes(self.judged)

    @cached_property
    def drawings(self) -> list[Drawing]:
        """Return all other figures."""
        drawn = figures.sampled(self.judged)
        if self.judged.training is not None:
            from bringup.report.charts import training
            from bringup.report.training.conclusions import entry_of

            drawn += [] if (entry := entry_of(self.judged)) is None else training.of_ranks(entry)
        return drawn

    @cached_property
    def counts(self) -> Counter[Outcome]:
        return Counter(verdict.outcome for verdict in self.judged.verdicts.verdicts)

    @property
    def wrong(self) -> str:
        """Say what is wrong first. Empty: all passed."""
        bad = self.view.bad
        return first_few([f"{each.subject}: {text.sentence(each)}" for each in bad[:1]], 1, len(bad))

    @cached_property
    def span(self) -> tuple[float, float]:
        """Return begin and end, Unix s. A run that was not closed ends when its playbook waited no longer for it."""
        begin = time_of(self.judged.run.opened_at).timestamp()
        seal = self.judged.seal
        if seal is None or seal.closed is None:
            return begin, begin + (self.waited_s or 0.0)
        return begin, max(begin, time_of(seal.closed.closed_at).timestamp())

    @property
    def seconds(self) -> float | None:
        begin, end = self.span
        return self.waited_s if self.waited_s is not None else end - begin if end > begin else None

    @property
    def link(self) -> str | None:
        """Return the address of its folder."""
        return self.links(self.judged.folder) if self.judged.folder.is_dir() else None

    def address(self, evidence: str) -> str | None:
        return to_evidence(self.links, self.judged.folder, evidence)


class Timeline(NamedTuple):
    """The steps in the time of the whole run: each with begin and width of its bar."""

    steps: list[tuple[Section, float, float]]
    begin: str
    end: str


def timeline(sections: Sequence[Section]) -> Timeline:
    first = min((section.span[0] for section in sections), default=0.0)
    last = max((section.span[1] for section in sections), default=first)
    unit = WIDTH / ((last - first) or 1.0)
    steps = []
    for section in sections:
        begin, end = section.span
        width = max(_LEAST, (end - begin) * unit)
        steps.append((section, min((begin - first) * unit, WIDTH - width), width))
    begin_of_all, end_of_all = (
        datetime.fromtimestamp(moment, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC") for moment in (first, last)
    )
    return Timeline(steps, begin_of_all, end_of_all)


def render(collection: Collection, links: Links = nowhere) -> str:
    nodes = fleet.nodes(collection.judged)
    cards = next_steps.cards(collection.judged, links)
    facts = system.facts(collection.judged)
    sections = [
        Section(judged, f"run-{index}", collection.seconds.get(judged.folder), links)
        for index, judged in enumerate(collection.judged)
    ]
    shown = [fact for fact in facts if fact.what not in system.TABLE.where_nodes_differ]
    trained = trainings.report(collection.judged, varied=collection.varied)
    of_page: dict[str, object] = {"deciding": [], "advice": None}
    if trained.compared is not None:
        from bringup.report.charts import training
        from bringup.training.comparison import recommend

        entries = [row.entry for row in trained.compared.rows]
        of_page = {"deciding": training.deciding(entries), "advice": recommend.recommend(trained.compared)}
    node_rows, clean_rows = fleet.rows(nodes)
    return rendered(
        "page.html.j2",
        outcome=collection.outcome,
        overall=collection.headline,
        counted=next_steps.counted(collection.judged),
        cluster=system.cluster_name(collection.judged),
        context=_context(collection, nodes, facts),
        standing=fleet.standing(collection.judged, nodes),
        who=_who(collection, [node.name for node in nodes]),
        facts=[fact for fact in shown if fact.what in system.TABLE.at_once],
        folded=[fact for fact in shown if fact.what not in system.TABLE.at_once],
        drift=[fact for fact in facts if fact.others],
        stand_ins=stand_ins_of(
            claim for answer in collection.answers for claim in answer.claims if claim.mark is Mark.NOT_PROVEN
        ),
        node_rows=node_rows,
        clean_rows=clean_rows,
        named=len(nodes) <= fleet.MAX_NAMES,
        not_well=any(node.letter for node in nodes),
        nothing_judged=any(not node.verdicts for row in node_rows for node in row),
        answers=collection.answers,
        tiles=tiles(collection.answers, collection.verdicts),
        max_bad=MAX_BAD,
        sections=sections,
        layers=layers,
        waterfalls=layers.waterfalls(collection.judged),
        timeline=timeline(sections),
        fabric=_fabric(sections),
        rails=figures.against_floors(collection.verdicts),
        search_hash=base64.b64encode(hashlib.sha256(SEARCH.encode()).digest()).decode("ascii"),
        absent=[(PHASES[gap.phase].title if gap.phase in PHASES else gap.phase, gap.why) for gap in collection.absent],
        left_out=collection.left_out,
        cards=next_steps.arranged(cards),
        failed_first=[card for card in cards if card.outcome is Outcome.FAIL],
        keep_away=drain.keep_away(collection.judged, nodes),
        commands=next_steps.commands(collection),
        training=trained,
        **of_page,
    )


def _context(collection: Collection, nodes: Sequence[fleet.Node], facts: Sequence[system.Fact]) -> list[str]:
    """Say what was looked at, by which numbers and when: `4 nodes × 2 NVIDIA H100 80GB`, `profile auto`, a date."""
    runs = [judged.run for judged in collection.judged]
    gpus = max((run.gpus_per_node for run in runs), default=0)
    model = next((fact.value for fact in facts if fact.what == "GPU" and fact.nodes), "GPUs")
    size = many(len(nodes), "node") + (f" × {gpus} {model}" if gpus else "")
    profiles = ", ".join(dict.fromkeys(judged.verdicts.profile for judged in collection.judged))
    opened = min((run.opened_at for run in runs), default="").replace("T", " ")[:16]
    cluster = system.cluster_name(collection.judged)
    return [part for part in (cluster, size, profiles and f"profile {profiles}", opened and f"{opened} UTC") if part]


def _fabric(sections: Sequence[Section]) -> list[Section]:
    """Return the runs whose bandwidth stands on the page itself: over size that of all scales, else the last one that
    measured it; between nodes the last one. The others have it among their details."""
    curves = [section for section in sections if section.curves]
    scales = [section for section in curves if section.view.judged.run.phase == "nccl_scaling"] or curves
    between = [section for section in sections if section.between]
    return list({section.anchor: section for section in [*scales[-1:], *between[-1:]]}.values())


def _who(collection: Collection, nodes: list[str]) -> list[tuple[str, str]]:
    """Who, when, with what: each line once, however many runs there are."""
    runs = [judged.run for judged in collection.judged]

    def each(values: list[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    seconds = sum(value for value in collection.seconds.values() if value is not None)
    torch = list[str]()
    if any(run.training is not None for run in collection.judged):
        from bringup.training.records.folder import records_of

        torch = [records.metrics.torch for run in collection.judged if (records := records_of(run)) is not None]
    lines = [
        ("nodes", listed(nodes)),
        ("GPUs of a node, as requested", str(max((run.gpus_per_node for run in runs), default=""))),
        ("profile", each([judged.verdicts.profile for judged in collection.judged])),
        ("site file", each([run.site.name for run in runs if run.site is not None])),
        ("torch", each(torch)),
        ("bringup commit", each([text.commit(run.git_commit, run.git_dirty) for run in runs])),
        ("first run opened", min((run.opened_at for run in runs), default="")),
        ("duration of the steps", f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s" * bool(seconds)),
    ]
    return [(name, value) for name, value in lines if value]


MOST = 110  # characters of a reason
_SIDES = ("at_least", "at_most")
_SHOWS_ITS_LINE = (Mark.FAIL, Mark.INCOMPLETE, Mark.WARN)


class Tile(NamedTuple):
    answer: Answer
    name: str
    number: str
    reason: str


def tiles(answers: Sequence[Answer], verdicts: Iterable[Verdict] = ()) -> list[Tile]:
    """Make tiles. verdicts: of the report; those that failed are counted."""
    bad = ((catalogue.GATES.get(each.gate), each.subject) for each in verdicts if each.outcome is Outcome.FAIL)
    failed = grouped((catalogue.question_of(gate), subject) for gate, subject in bad if gate is not None)
    return [_tile(answer, failed.get(answer.question, [])) for answer in answers]


def _tile(answer: Answer, failed: Sequence[str]) -> Tile:
    """failed: subjects of failed checks of this question; the repair list says in words what is wrong."""
    # where something failed, and no number is beyond its limit, it was no number that failed
    margins = [each for each in _margins(answer) if answer.mark is not Mark.FAIL or each[0] < 1]
    checks = f"{len(failed)} failed check{'s'[: len(failed) > 1]}" if failed else ""
    number = min(margins)[1] if margins else checks or _claims(answer)
    if answer.mark is Mark.FAIL and failed:
        reason = f"{checks} on {listed(failed)}" if margins else f"on {listed(failed)}"
    elif answer.mark in _SHOWS_ITS_LINE:
        reason = answer.line
    elif answer.reservations:
        reason = answer.reservations[0]
    else:
        reason = answer.line if answer.mark is Mark.NOT_ASKED else ""
    short = textwrap.shorten(reason, MOST, placeholder=" …")
    return Tile(answer=answer, name=QUESTION_NAMES[answer.question], number=number, reason=short)


def _claims(answer: Answer) -> str:
    marks, count = [claim.mark for claim in answer.claims], len(answer.claims)
    if not marks:
        return ""
    if answer.mark is Mark.FAIL:
        return f"{marks.count(Mark.FAIL)} of {count} statements failed"
    return f"{sum(mark in (Mark.PASS, Mark.WARN) for mark in marks)} of {count} statements are proven"


def _margins(answer: Answer) -> Iterator[tuple[float, str]]:
    """Yield each number that has a floor or a ceiling: how far it is from it (below 1: beyond it), and its words."""
    for number in (number for claim in answer.claims for number in claim.numbers):
        value, limit = number.value, number.limit
        if is_number(value) and is_number(limit) and value > 0 and limit > 0 and number.rule in _SIDES:
            yield (value / limit if number.rule == "at_least" else limit / value), in_words(number)
