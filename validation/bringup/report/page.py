"""One self-contained HTML page of everything a set of runs says: `bringup report`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from bringup.answers import stand_ins_of
from bringup.characters import many
from bringup.compare import recommend
from bringup.evidence.names import listed
from bringup.plan.phases import PHASES
from bringup.records import Mark, Outcome
from bringup.report import drain, fleet, layers, next_steps, system, tiles
from bringup.report import text as report
from bringup.report.charts import rails
from bringup.report.charts import training as charts
from bringup.report.collection import Collection
from bringup.report.links import Links, nowhere
from bringup.report.render import TEMPLATES
from bringup.report.render import render as rendered
from bringup.report.section import MAX_BAD, Section, timeline
from bringup.report.training.chapters import report as report_of_trainings

NOT_FOLDED = (
    "GPU",
    "GPU driver",
    "CUDA of the driver",
    "NCCL library",
    "torch and driver",
    "RDMA ports",
    "kernel",
    "Slurm",
)
SEARCH = (TEMPLATES / "search.js").read_text(encoding="utf-8").rstrip("\n")
"""The only script of the page, as the template includes it. The page's policy names its hash: no other one runs."""


def render(collection: Collection, links: Links = nowhere) -> str:
    return rendered("page.html.j2", **_view(collection, links))


def _view(collection: Collection, links: Links) -> dict[str, Any]:
    nodes = fleet.nodes(collection.judged)
    cards = next_steps.cards(collection.judged, links)
    facts = system.facts(collection.judged)
    sections = [
        Section(judged, f"run-{index}", collection.seconds.get(judged.folder), links)
        for index, judged in enumerate(collection.judged)
    ]
    shown = [fact for fact in facts if fact.what not in system.ONLY_WHERE_THEY_DIFFER]
    trained = report_of_trainings(collection.judged, varied=collection.varied)
    compared = trained.compared
    node_rows, clean_rows = fleet.rows(nodes)
    return {
        "outcome": collection.outcome,
        "overall": collection.headline,
        "counted": next_steps.counted(collection.judged),
        "cluster": system.cluster_name(collection.judged),
        "context": _context(collection, nodes, facts),
        "standing": fleet.standing(collection.judged, nodes),
        "who": _who(collection, [node.name for node in nodes]),
        "facts": [fact for fact in shown if fact.what in NOT_FOLDED],
        "folded": [fact for fact in shown if fact.what not in NOT_FOLDED],
        "drift": [fact for fact in facts if fact.others],
        "stand_ins": stand_ins_of(
            claim for answer in collection.answers for claim in answer.claims if claim.mark is Mark.REHEARSED
        ),
        "node_rows": node_rows,
        "clean_rows": clean_rows,
        "named": len(nodes) <= fleet.MAX_NAMES,
        "not_well": any(node.letter for node in nodes),
        "nothing_judged": any(not node.judged for row in node_rows for node in row),
        "answers": collection.answers,
        "tiles": tiles.tiles(collection.answers, collection.verdicts),
        "max_bad": MAX_BAD,
        "sections": sections,
        "layers": layers,
        "waterfalls": layers.waterfalls(collection.judged),
        "timeline": timeline(sections),
        "fabric": _fabric(sections),
        "rails": rails.draw(collection.verdicts),
        "search_hash": base64.b64encode(hashlib.sha256(SEARCH.encode()).digest()).decode("ascii"),
        "absent": [
            (PHASES[absent.phase].title if absent.phase in PHASES else absent.phase, absent.why)
            for absent in collection.absent
        ],
        "left_out": collection.left_out,
        "cards": next_steps.arranged(cards),
        "failed_first": [card for card in cards if card.outcome is Outcome.FAIL],
        "keep_away": drain.keep_away(collection.judged, nodes),
        "commands": next_steps.commands(collection),
        "training": trained,
        "deciding": charts.deciding([row.entry for row in compared.rows]) if compared is not None else [],
        "advice": recommend.recommend(compared) if compared is not None else None,
    }


def _context(collection: Collection, nodes: Sequence[fleet.Node], facts: Sequence[system.Fact]) -> list[str]:
    """Say what was looked at, by which numbers and when: `4 nodes × 2 NVIDIA H100 80GB`, `profile auto`, a date."""
    runs = [judged.run for judged in collection.judged]
    gpus = max((run.gpus_per_node for run in runs), default=0)
    model = next((fact.value for fact in facts if fact.what == "GPU" and fact.nodes), "GPUs")
    size = many(len(nodes), "node") + (f" × {gpus} {model}" if gpus else "")
    profiles = ", ".join(dict.fromkeys(judged.verdicts.profile for judged in collection.judged))
    opened = min((run.opened_at for run in runs), default="").replace("T", " ")[:16]
    cluster = system.cluster_name(collection.judged)
    return [text for text in (cluster, size, profiles and f"profile {profiles}", opened and f"{opened} UTC") if text]


def _fabric(sections: Sequence[Section]) -> list[Section]:
    """Return the runs whose bandwidth stands on the page itself: over size that of all scales, else the last one that
    measured it; between nodes the last one. The others have it among their details."""
    curves = [section for section in sections if section.curves]
    scales = [section for section in curves if section.view.run.phase == "nccl_scaling"] or curves
    between = [section for section in sections if section.between]
    return list({section.anchor: section for section in [*scales[-1:], *between[-1:]]}.values())


def _who(collection: Collection, nodes: list[str]) -> list[tuple[str, str]]:
    """Who, when, with what: each line once, however many runs there are."""
    runs = [judged.run for judged in collection.judged]

    def each(values: list[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    seconds = sum(value for value in collection.seconds.values() if value is not None)
    torch = [run.training.metrics.torch for run in collection.judged if run.training is not None]
    lines = [
        ("nodes", listed(nodes)),
        ("GPUs of a node, as requested", str(max((run.gpus_per_node for run in runs), default=""))),
        ("profile", each([judged.verdicts.profile for judged in collection.judged])),
        ("site file", each([run.site.name for run in runs if run.site is not None])),
        ("torch", each(torch)),
        ("bringup commit", each([report.commit(run.git_commit, run.git_dirty) for run in runs])),
        ("first run opened", min((run.opened_at for run in runs), default="")),
        ("duration of the steps", f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s" * bool(seconds)),
    ]
    return [(name, value) for name, value in lines if value]
