"""What `bringup history` prints, and its figures: one per measure, a point per run."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from bringup.compare.history import LEAST_DAYS, Finding
from bringup.compare.lemons import Lemons
from bringup.kernel.characters import many
from bringup.report import text

HEADER = ("measure", "where", "runs", "first", "median before", "newest", "unit", "change", "said")


def screen(findings: Sequence[Finding], runs: int) -> str:
    """Write a row per measure, regressions first; then one line that sums them up."""
    rows = [
        [
            finding.series.measure,
            finding.series.where,
            str(len(finding.series.points)),
            finding.series.points[0].opened_at[:10],
            "" if finding.usual is None else f"{finding.usual:.4g}",
            f"{finding.series.points[-1].value:.4g}",
            finding.series.unit,
            "" if finding.change is None else f"{100 * finding.change:+.1f} %",
            finding.said if finding.is_judged else f"{len(finding.series.of_days)} of {LEAST_DAYS} days",
        ]
        for finding in findings
        if finding.is_judged or len(finding.series.points) > 1  # one run alone shows nothing over time
    ]
    counts = Counter(finding.said for finding in findings if finding.is_judged)
    parts = [f"{count} {result}" for result, count in counts.items()] if findings else ["nothing was measured"]
    parts += _too_few([finding for finding in findings if not finding.is_judged])
    return "\n".join([*([text.columns(HEADER, rows), ""] if rows else []), f"{many(runs, 'run')}: {'; '.join(parts)}"])


def _too_few(findings: Sequence[Finding]) -> list[str]:
    """Say what can be said all the same: how much they changed, which may be noise."""
    if not findings:
        return []
    need = f"{many(len(findings), 'measure')} with fewer than the {LEAST_DAYS} days that tell a change from noise"
    changed = [finding for finding in findings if finding.change is not None]
    if not changed:
        return [need]
    largest = min(changed, key=lambda finding: finding.series.better * (finding.change or 0))
    series = largest.series
    return [f"{need}; the worst change is {100 * (largest.change or 0):+.1f} %: {series.measure}, {series.where}"]


def lemons(nodes: Lemons) -> str:
    """List the nodes that are named, and how the next one stands."""
    groups = [("more than chance", nodes.named), ("all of one user", nodes.of_one_user)]
    groups.append(("within chance", [nodes.next] if nodes.next is not None else []))
    rows = [
        (each.node, str(each.failed), str(each.jobs), f"{each.expected:.1f}", f"{each.chance:.2g}", remark)
        for remark, several in groups
        for each in several
    ]
    unread = f"; {many(nodes.unread, 'row')} could not be read" if nodes.unread else ""
    head = (
        f"{many(nodes.nodes, 'node')} in {many(nodes.jobs, 'job')}, of which {nodes.failed} failed; "
        f"{nodes.left_out} more ended otherwise, were before a success of the day, or followed on the node{unread}: "
    )
    names = ", ".join(each.node for each in nodes.named) or "no node"
    table = text.columns(("node", "failed", "of", "expected", "chance", "said"), rows)
    return "\n".join([*([table, ""] if rows else []), f"{head}{names} stood in failed jobs more often than chance"])


def as_json(findings: Sequence[Finding], nodes: Lemons | None = None) -> str:
    measures = [
        {
            "measure": finding.series.measure,
            "where": finding.series.where,
            "unit": finding.series.unit,
            "said": finding.said,
            "change": finding.change,
            "median_before": finding.usual,
            "points": [asdict(point) for point in finding.series.points],
        }
        for finding in findings
    ]
    return json.dumps(measures if nodes is None else {"measures": measures, "nodes": asdict(nodes)}, indent=1)
