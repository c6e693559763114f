"""Every page is made by one renderer: no script but the search of our page, nothing from elsewhere, every text
escaped."""

from __future__ import annotations

import re
from typing import Any

from bringup.drill import result
from bringup.records import DrillReport, HealthyRound
from bringup.report import render
from factory import a_drill_result

EVIL = "<script>alert(1)</script> \x1b[31m {{ 7*7 }}"


def report_of(**change: Any) -> DrillReport:
    return DrillReport(
        name="d",
        place="local-cluster",
        profile=None,
        git_commit=None,
        opened_at="2026-01-01T00:00:00Z",
        planned=["one"],
        healthy_planned=0,
        healthy_nodes=4,
        healthy_gpus_per_node=2,
        healthy_phases=[],
        results=[],
        healthy=[],
    ).model_copy(update=change)


def wrong_cells(page: str) -> list[str]:
    return re.findall(r'<td class="fail">(.*?)</td>', page)


def test_on_the_page_of_drills_what_was_not_found_as_declared_is_marked_and_nothing_else():
    like_a_mark = "NO"  # a text of a verdict that reads like a mark
    good = a_drill_result(observed=like_a_mark)
    assert wrong_cells(result.page(report_of(results=[good]))) == []
    missed = a_drill_result(right_subject=False, right_cause=False, observed=like_a_mark)
    assert wrong_cells(result.page(report_of(results=[good, missed]))) == ["NO", "NO"]
    false = HealthyRound(number=1, verdicts=3, seconds=1.0, evidence=[], false_alarms=["gate [n0]"])
    assert wrong_cells(result.page(report_of(healthy=[false], healthy_planned=1))) == ["gate [n0]"]


def test_a_page_of_drills_keeps_texts_as_texts():
    page = result.page(report_of(name=EVIL, results=[a_drill_result(observed=EVIL, fault=EVIL)]))
    assert "<script" not in page
    assert "\x1b" not in page
    assert "{{ 7*7 }}" in page
    assert "default-src 'none'" in page


def test_every_template_forbids_scripts_and_requests_and_marks_nothing_as_safe():
    pages = sorted(render.TEMPLATES.glob("*.html.j2"))
    assert len(pages) == 2
    for template in pages:
        assert "Content-Security-Policy" in template.read_text()
    for template in render.TEMPLATES.rglob("*.j2"):
        text = template.read_text()
        text = (
            text.replace('<script>{% include "search.js" %}</script>', "") if template.name == "page.html.j2" else text
        )
        text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, and no request
        assert not re.search(r"\|\s*safe|autoescape|http:|https:|<script|<link", text), template
