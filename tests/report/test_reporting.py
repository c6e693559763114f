"""bringup report: one page, machine outputs, drain lines; and nothing from a log or a host name gets out of its
place."""

import base64
import hashlib
import html.parser
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bringup.cli import main
from bringup.kernel.judge import Judged
from bringup.kernel.records import NotApplicable, Observation, Outcome, Verdict, write_record
from bringup.kernel.run_folder import RunFolder
from bringup.report import page, render
from bringup.report.campaigns import Playbook, Step
from bringup.report.run_folders import Absent
from factory import a_run, a_verdict, gathered, judged_of, records_in
from runs_for_tests import FIXTURES, discovery
from trained_runs import change

EVIL = """<script>alert(1)</script> & "double" 'single' `tick` $(reboot) ; rm -rf / {{ 7*7 }} \x1b[31m \x00"""
NAME = EVIL.partition(" \x1b")[0]  # a record takes no control characters in names
TAGS = (
    "html head meta title style body header h1 h2 h3 b dl dt dd p span div table tr th td a pre code details summary "
    "ul li figure figcaption svg polyline path rect text label input select option output script"
)


def verdict(gate: str, subject: str, outcome: Outcome = Outcome.FAIL, observed: str = "1") -> Verdict:
    return a_verdict(gate, subject, outcome, observed, cause=observed)


def judged(*verdicts: Verdict, phase: str = "discovery", name: str = "run", **how: Any) -> Judged:
    return judged_of(*verdicts, run=a_run(phase, how.pop("nodes", ("n0", "n1", "n2", "n3")), name=name, plan={}), **how)


class Page(html.parser.HTMLParser):
    """Tags, and the text outside of them; fails on a tag that is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open and "script" not in self.open:
            self.words += data


def test_markup_in_any_text_of_a_record_is_text_on_the_page():
    speed = Observation(quantity="pair.bandwidth", subject=f"{NAME}->n0", value=4.0, unit="GB/s", evidence="raw/x:1")
    run = judged(
        verdict("discovery.gpu.count", f"n1 {EVIL}", observed=EVIL),
        nodes=("n0", NAME),
        notes=(EVIL,),
        observations=(speed,),
        not_applicable=(NotApplicable(gate="discovery.gpu.ecc", reason=EVIL),),
    )
    text = page.render(gathered(run, absent=(Absent("smoke", EVIL),)))
    parsed_page = Page(text)
    assert {tag for tag, _ in parsed_page.tags} <= set(TAGS.split())
    assert text.count("<script") == text.count(f"<script>{page.SEARCH}</script>") == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    # shown, as what it is
    assert parsed_page.words.count("<script>alert(1)</script> & \"double\" 'single' `tick` $(reboot)") >= 6
    assert f"{html.escape(NAME).replace('&quot;', '&#34;').replace('&#x27;', '&#39;')} → n0: 4 GB/s</title>" in text
    assert "{{ 7*7 }}" in parsed_page.words
    assert "49" not in parsed_page.words
    for tag, attributes in parsed_page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag


def test_the_page_asks_nobody_for_anything():
    speed = Observation(quantity="pair.bandwidth", subject="n0->n1", value=1.5, unit="GB/s", evidence="raw/x:1")
    run = judged(verdict("nccl.pair.link", "n0--n1"), phase="nccl_pairwise", observations=(speed,))
    text = page.render(gathered(run))
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    parsed_page = Page(text)
    figures = [attributes["aria-label"] for tag, attributes in parsed_page.tags if attributes.get("role") == "img"]
    assert figures[-1] == "Bandwidth between nodes"
    assert "Bandwidth between nodes" in parsed_page.words
    assert not [attributes for _, attributes in parsed_page.tags if "src" in attributes or "xlink:href" in attributes]
    assert all(attributes["href"].startswith("#") for tag, attributes in parsed_page.tags if tag == "a")
    policy = next(attributes["content"] for tag, attributes in parsed_page.tags if attributes.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"


def test_nothing_in_the_template_or_the_code_goes_around_the_escaping():
    templates = list(filter(Path.is_file, render.TEMPLATES.rglob("*")))
    assert len(templates) >= 8
    for template in templates:
        text = template.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, and no request
        text = text.replace('<script>{% include "search.js" %}</script>', "")
        assert not re.search(r"\|\s*safe|Markup|autoescape|http:|https:|<script|<link", text), template
    code = Path(render.__file__).read_text()
    assert "autoescape=True" in code
    marked = re.findall(r"Markup\((.*)", code)  # each time around a text that text.py made safe
    assert marked and all(re.search(r"text\.(plain|printable|escaped|table)\(", words) for words in marked)


def test_a_text_of_a_record_is_made_safe_in_a_template_of_each_form():
    safe = {"html": "[2J a b | &lt;b&gt; `x`", "md": r"\[2J a b \| &lt;b&gt; \`x\`", "txt": "[2J a b | <b> `x`"}
    for form, expected in safe.items():
        template = render._environment(form).from_string("{% macro shown(x) %}{{ x }}{% endmacro %}{{ shown(x) }}")
        assert template.render(x="\x1b[2J a\nb | <b> `x`") == expected, form


def test_what_was_not_run_is_said_and_makes_the_report_incomplete(tmp_path, capsys):
    passed = {"folder": "validation/results/discovery/gone", "outcome": Outcome.PASS, "blocks": False}
    removed = Step(phase="discovery", seconds=1, **passed)
    not_run = {"folder": None, "outcome": Outcome.INCOMPLETE, "blocks": True, "why_not_run": "needs more"}
    left = Step(phase="smoke", seconds=0, **not_run)
    planned = ["discovery", "smoke", "run_1gpu"]
    playbook = Playbook(
        name="p", nodes=["n0"], profile="local-cpu", planned=planned, left_out=["too few nodes"], steps=[removed, left]
    )
    folder = tmp_path / "validation/results/playbook/p"
    folder.mkdir(parents=True)
    write_record(folder / "playbook.json", playbook)
    assert main(["report", str(folder)]) == 2
    words = Page((folder / "report.html").read_text()).words
    for phrase in ("needs more", "too few nodes", "interrupted before it", "gone", "NOT RUN", "INCOMPLETE"):
        assert phrase in words
    assert "PASS" not in words
    assert "not run: discovery, smoke, run_1gpu" in capsys.readouterr().out


def test_a_healthy_run_gives_a_page_and_exit_code_0(tmp_path, monkeypatch, shown):
    folder = discovery(tmp_path, monkeypatch)
    out = shown(0, "report", folder)
    assert "report.html" in out
    assert "scontrol" not in out
    words = Page((folder / "report.html").read_text()).words
    assert "Slurm considers the node usable" in words
    assert "Cannot tell yet" in words
    assert "Nothing failed." in words
    assert "placeholder GPUs have no driver" in words  # what is not applicable is not hidden


def test_trainings_are_compared_on_the_page_and_unlike_ones_refused_in_words(tmp_path):
    names = ("run_1gpu", "run_ddp_2node")
    for name in names:
        shutil.copytree(FIXTURES / "training" / name, tmp_path / name)

    def trained(name: str, evidence: Outcome = Outcome.PASS) -> Judged:
        whole = {"run.closed": Outcome.PASS, "run.evidence": evidence, "train.strategy": Outcome.PASS}
        made = judged(*(verdict(gate, "job", outcome) for gate, outcome in whole.items()), phase=name, name=name)
        return replace(made, files=RunFolder(tmp_path / name), training=records_in(tmp_path / name))

    parsed_page = Page(page.render(gathered(*map(trained, names))))
    assert "tokens/s/rank" in parsed_page.words
    assert 0 < parsed_page.words.find("Which strategy: cannot tell.") < parsed_page.words.find("DDP: tokens per second")
    figures = [attributes["aria-label"] or "" for tag, attributes in parsed_page.tags if tag == "svg"]
    for title in ("Loss, nats", "DDP: tokens per second", "Loss gap", "Step time"):
        assert any(figure.startswith(title) for figure in figures), title
    open_ended = gathered(trained(names[0]), trained(names[1], Outcome.INCOMPLETE))
    assert "its evidence does not hold: run_ddp_2node" in Page(page.render(open_ended)).words
    change(tmp_path / names[1], "run_args.json", seed=99)
    assert "not comparable: seed" in Page(page.render(gathered(*map(trained, names)))).words


def test_several_folders_need_a_place_for_the_page(tmp_path, monkeypatch, refused):
    folder = str(discovery(tmp_path, monkeypatch))
    assert "-o FILE.html" in refused("report", folder, folder)
    written = [word for option in ("-o", "--junit", "--prometheus") for word in (option, str(tmp_path / option))]
    assert main(["report", folder, *written]) == 0
    assert ElementTree.parse(tmp_path / "--junit").getroot().tag == "testsuites"
    assert "bringup_verdicts{" in (tmp_path / "--prometheus").read_text()
