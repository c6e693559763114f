"""Pages of the phases have one shape and one numbering, and the code that they show is the code that is there."""

import re
import tomllib
from pathlib import Path

import pytest
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from generated import with_quotes
from loops import case_for_each, for_each
from programs import ROOT

PAGES = sorted((ROOT / "docs").glob("0[1-6]-*.md"))
SHAPE = ["Run it", "What you see", "What to do next", "What it proves", "What it does not prove"]


@for_each(*PAGES, ids=lambda page: page.stem)
def test_a_page_of_a_phase_has_the_shape_of_all(page):
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading != "How it works"] == SHAPE
    assert page.read_text(encoding="utf-8").startswith(f"# Phase {int(page.stem[:2])}: ")


def test_every_phase_has_a_page_and_its_command_is_on_it():
    text = {int(page.stem[:2]): "" for page in PAGES}
    for page in PAGES:
        text[int(page.stem[:2])] += page.read_text(encoding="utf-8")
    assert set(text) == {phase.number for phase in PHASES.values()} == {1, 2, 3, 4, 5, 6}
    for phase in PHASES.values():
        assert phase.script in text[phase.number], phase.stem


def test_a_page_of_a_phase_is_short():
    for page in PAGES:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 260, page.name


def test_every_gate_is_explained_in_the_reference_and_a_page_of_its_phases_links_there():
    assert "(gates/run.md" in (ROOT / "docs/07-failure-modes.md").read_text(encoding="utf-8")
    text = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    for gate in GATES.values():
        numbers = {PHASES[stem].number for stem in gate.phases}
        pages = [text[page.name] for page in PAGES if int(page.stem[:2]) in numbers]
        assert gate.guide.page == "gates/run" or any(f"({gate.guide.page}.md" in page for page in pages), gate.id


def test_training_pages_show_the_code_that_does_it():
    quotes = {page.stem: page.read_text(encoding="utf-8").count("<!-- quoted: ") for page in PAGES}
    assert all(count >= 2 for name, count in quotes.items() if "training" in name), quotes


SOURCE = """import os

LIMIT = 3


class Trainer:
    def step(self):
        \"\"\"One step.\"\"\"
        first = 1
        return first
"""


def quote(what: str, folder: Path) -> str:
    return with_quotes(f"text\n<!-- quoted: {what} -->\nold\n<!-- end quoted -->\nmore", folder)


def test_a_quote_is_the_code_as_it_is_now(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    page = quote("a.py | Trainer.step | first = | return", tmp_path)
    assert "`a.py`, `Trainer.step`:\n\n```python\nfirst = 1\nreturn first\n```\n" in page
    assert page.startswith("text\n<!-- quoted: a.py") and page.endswith("<!-- end quoted -->\nmore")
    assert with_quotes(page, tmp_path) == page
    assert "```python\nLIMIT = 3\n```" in quote("a.py | LIMIT", tmp_path)
    assert "```python\nimport os\n```" in quote("a.py | | import", tmp_path)


@case_for_each(
    ("b.py | Trainer", "expected the file b.py"),
    ("a.py | Trainer.run", "expected Trainer.run in the file, run is not there"),
    ("a.py | Trainer.step | second", "expected a line that begins with `second`"),
)
def test_a_quote_of_code_that_is_gone_is_an_error(tmp_path, what, missing):
    (tmp_path / "a.py").write_text(SOURCE)
    with pytest.raises(ValueError, match=re.escape(missing)):
        quote(what, tmp_path)


def test_code_on_a_page_that_is_python_is_quoted():
    """What is not copied by `make generated` would be out of date one day."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        rest = re.sub(r"<!-- quoted: .*?<!-- end quoted -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```python" not in rest, page.name


def test_the_newest_entry_of_the_changes_is_of_the_version_that_is_built():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+?),", (ROOT / "docs/CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == version


def test_the_document_of_a_whole_run_is_read_in_three_minutes_and_has_the_chapters_of_a_report():
    """It had 3,800 words, a table of 34 claims and cells of 150 characters."""
    text = (ROOT / "docs/results/local/report.md").read_text()
    assert len(re.findall(r"\S*\w\S*", text)) <= 2500
    chapters = ("The six questions", "Discovery: what is there", "Collectives at every scale", "Training", "Takeaways")
    assert all(re.search(f"^##+ {chapter}$", text, re.MULTILINE) for chapter in chapters)
    assert "![Bus bandwidth over size](curves.svg)" in text
    assert "not recorded" not in text
