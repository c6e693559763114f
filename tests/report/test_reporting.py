"""bringup report: one page, machine outputs, drain lines; and nothing from a log or a host name gets out of its
place."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from bringup.cli import main
from bringup.judge import Judged
from bringup.records import (
    NotApplicable,
    Observation,
    Outcome,
    Playbook,
    Step,
    Verdict,
    write_record,
)
from bringup.report import collection, page, render
from bringup.report.junit import junit
from bringup.report.prometheus import prometheus
from bringup.results import Absent, TrainingRecords
from factory import a_run, a_verdict, gathered, judged_of
from runs_for_tests import FIXTURES, discovery

EVIL = """<script>alert(1)</script> & "double" 'single' `tick` $(reboot) ; rm -rf / {{ 7*7 }} \x1b[31m \x00 \ud83d"""
NAME = EVIL.partition(" \x1b")[0]  # a record takes no control characters in names


def verdict(gate: str, subject: str, outcome: Outcome = Outcome.FAIL, observed: str = "1") -> Verdict:
    return a_verdict(gate, subject, outcome, observed, cause=observed)


def judged(
    *verdicts: Verdict,
    nodes: tuple[str, ...] = ("n0", "n1", "n2", "n3"),
    name: str = "run",
    notes: tuple[str, ...] = (),
    observations: tuple[Observation, ...] = (),
    phase: str = "discovery",
    reason: str = "no GPU",
) -> Judged:
    return judged_of(
        *verdicts,
        run=a_run(phase, nodes, name=name, plan={}),
        notes=notes,
        observations=observations,
        not_applicable=(NotApplicable(gate="discovery.gpu.ecc", reason=reason),),
    )


SVG = ("svg", "polyline", "path", "rect", "text")
SEARCH = ("label", "input", "select", "option", "output", "script")


def without_our_script(text: str) -> str:
    """The page forbids every other one, by the hash of this one."""
    ours = f"<script>{page.SEARCH}</script>"
    assert text.count(ours) == 1
    return text.replace(ours, "")


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
    evil = EVIL.replace("\ud83d", "")
    text = page.render(
        gathered(
            judged(
                verdict("discovery.gpu.count", f"n1 {evil}", observed=evil),
                nodes=("n0", NAME),
                notes=(evil,),
                reason=evil,
            ),
            absent=(Absent("smoke", evil),),
        )
    )
    parsed_page = Page(text)
    assert {tag for tag, _ in parsed_page.tags} <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "h1",
        "h2",
        "h3",
        "b",
        "dl",
        "dt",
        "dd",
        "p",
        "span",
        "div",
        "table",
        "tr",
        "th",
        "td",
        "a",
        "pre",
        "code",
        "details",
        "summary",
        "figure",
        "figcaption",
        *SVG,
        *SEARCH,
        "ul",
        "li",
    }
    assert without_our_script(text).count("<script") == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    # shown, as what it is
    assert parsed_page.words.count("<script>alert(1)</script> & \"double\" 'single' `tick` $(reboot)") >= 6
    assert "{{ 7*7 }}" in parsed_page.words
    assert "49" not in parsed_page.words
    for tag, attributes in parsed_page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag


def test_the_page_asks_nobody_for_anything():
    observed = (
        Observation(
            quantity="pair.bandwidth", subject="n0->n1", value=1.5, unit="GB/s", evidence="raw/pairs-0.jsonl:1"
        ),
    )
    text = page.render(
        gathered(judged(verdict("nccl.pair.link", "n0--n1"), phase="nccl_pairwise", observations=observed))
    )
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    parsed_page = Page(text)
    assert [attributes["aria-label"] for tag, attributes in parsed_page.tags if attributes.get("role") == "img"][
        -1:
    ] == ["Bandwidth between nodes"]
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
    playbook = Playbook(
        name="p",
        nodes=["n0"],
        profile="local-cpu",
        planned=["discovery", "smoke", "run_1gpu"],
        left_out=["too few nodes"],
        steps=[
            Step(
                phase="discovery",
                folder="validation/results/discovery/gone",
                outcome=Outcome.PASS,
                blocks=False,
                seconds=1,
            ),
            Step(
                phase="smoke", folder=None, outcome=Outcome.INCOMPLETE, blocks=True, why_not_run="needs more", seconds=0
            ),
        ],
    )
    folder = tmp_path / "validation/results/playbook/p"
    folder.mkdir(parents=True)
    write_record(folder / "playbook.json", playbook)
    assert main(["report", str(folder)]) == 2
    words = Page((folder / "report.html").read_text()).words
    for phrase in ("needs more", "too few nodes", "interrupted before it", "gone", "NOT RUN", "INCOMPLETE"):
        assert phrase in words
    assert "PASS" not in words
    assert "not run: run_1gpu, discovery, smoke" in capsys.readouterr().out


def test_a_healthy_run_gives_a_page_and_exit_code_0(tmp_path, monkeypatch, capsys):
    folder = discovery(tmp_path, monkeypatch)
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "report.html" in out
    assert "scontrol" not in out
    words = Page((folder / "report.html").read_text()).words
    assert "Slurm considers the node usable" in words
    assert "Cannot tell yet" in words
    assert "Nothing failed." in words
    assert "placeholder GPUs have no driver" in words  # what is not applicable is not hidden


def test_a_playbook_that_was_copied_with_its_runs_is_found_beside_it(tmp_path, monkeypatch):
    run = discovery(tmp_path / "copy/validation/results/discovery", monkeypatch)
    folder = tmp_path / "copy/validation/results/playbook/p"
    folder.mkdir(parents=True)
    write_record(
        folder / "playbook.json",
        Playbook(
            name="p",
            nodes=["n0", "n1"],
            profile="local-cpu",
            planned=["discovery"],
            left_out=[],
            steps=[
                Step(
                    phase="discovery",
                    folder=f"validation/results/discovery/{run.name}",
                    outcome=Outcome.PASS,
                    blocks=False,
                    seconds=3,
                )
            ],
        ),
    )
    gathered_value = collection.gather([folder])
    assert gathered_value.absent == []
    assert [judged.folder for judged in gathered_value.judged] == [run.resolve()]
    assert gathered_value.outcome is Outcome.PASS


def test_trainings_are_compared_on_the_page_and_unlike_ones_refused_in_words(tmp_path):
    names = ("run_1gpu", "run_ddp_2node")
    for name in names:
        shutil.copytree(FIXTURES / "training" / name, tmp_path / name)

    def trained() -> list[Judged]:
        whole = [verdict(gate, "job", Outcome.PASS) for gate in ("run.closed", "run.evidence", "train.strategy")]
        return [
            replace(
                judged(*whole, phase=name, name=name),
                folder=tmp_path / name,
                training=TrainingRecords(tmp_path / name),
            )
            for name in names
        ]

    runs = trained()
    parsed_page = Page(page.render(gathered(*runs)))
    assert "tokens/s/rank" in parsed_page.words
    assert 0 < parsed_page.words.find("Which strategy: cannot tell.") < parsed_page.words.find("DDP: tokens per second")
    figures = [attributes["aria-label"] or "" for tag, attributes in parsed_page.tags if tag == "svg"]
    for title in ("Loss, nats", "DDP: tokens per second", "Loss gap", "Step time"):
        assert any(figure.startswith(title) for figure in figures), title
    file = tmp_path / names[1] / "run_args.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seed": 99}))
    assert "not comparable: seed" in Page(page.render(gathered(*trained()))).words
    changed = replace(trained()[1], verdicts=judged(verdict("run.evidence", "job", Outcome.INCOMPLETE)).verdicts)
    assert "its evidence does not hold: run_ddp_2node" in Page(page.render(gathered(runs[0], changed))).words


def test_junit_counts_failures_errors_and_skips_apart_and_takes_any_text():
    text = junit(
        gathered(
            judged(
                verdict("discovery.gpu.count", "n1", observed=EVIL),
                verdict("discovery.kernel", "n1", Outcome.INCOMPLETE),
                verdict("discovery.kernel", "n0", Outcome.PASS),
                verdict("discovery.gpu.persistence", "n0", Outcome.WARN),
            ),
            absent=(Absent("smoke", EVIL),),
        )
    )
    suites = ElementTree.fromstring(text.encode("utf-8"))
    suite, missing, questions = suites.findall("testsuite")
    assert questions.get("name") == "the six questions"
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert len(suite.findall("testcase")) == 5
    assert "<script>" in suite.find("testcase/failure").get("message")
    assert suite.find("testcase/error") is not None
    assert missing.find("testcase/error") is not None


SERIES = re.compile(r'[a-z_]+\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\} [0-9.e+]+')


def test_prometheus_lines_are_well_formed_and_none_comes_twice():
    evil = EVIL.replace("\ud83d", "") + '\\ "x\ny'
    bad = verdict("discovery.gpu.count", evil)
    text = prometheus(
        gathered(
            judged(bad, bad, verdict("discovery.kernel", "n0", Outcome.PASS)),
            judged(bad, name="again"),
            absent=(Absent("smoke", "x"),),
        )
    )
    assert text.endswith("\n")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SERIES.fullmatch(line) for line in lines)
    series = [line.rpartition(" ")[0] for line in lines]
    assert len(series) == len(set(series))
    assert 'bringup_verdicts{phase="discovery",gate="discovery.gpu.count",outcome="fail"} 3' in lines
    assert 'bringup_phase_exit_code{phase="discovery"} 1' in lines
    assert 'bringup_phase_exit_code{phase="smoke"} 2' in lines


def test_several_folders_need_a_place_for_the_page(tmp_path, monkeypatch, capsys):
    folder = discovery(tmp_path, monkeypatch)
    assert main(["report", str(folder), str(folder)]) == 2
    assert "-o FILE.html" in capsys.readouterr().err
    assert (
        main(
            [
                "report",
                str(folder),
                "-o",
                str(tmp_path / "p.html"),
                "--junit",
                str(tmp_path / "j.xml"),
                "--prometheus",
                str(tmp_path / "b.prom"),
            ]
        )
        == 0
    )
    assert ElementTree.parse(tmp_path / "j.xml").getroot().tag == "testsuites"
    assert "bringup_verdicts{" in (tmp_path / "b.prom").read_text()


def test_a_thousand_nodes_make_a_page_that_can_be_read():
    nodes = tuple(f"node{number:04d}" for number in range(1024))
    text = page.render(
        gathered(
            judged(
                *(
                    verdict("discovery.kernel", node, Outcome.PASS if number else Outcome.FAIL)
                    for number, node in enumerate(nodes)
                ),
                nodes=nodes,
            )
        )
    )
    assert len(text) < 100_000
    assert "node0000" in text


def test_the_whole_of_a_junit_file_is_counted_and_a_phase_is_named_once():
    runs = [
        judged(
            verdict("discovery.gpu.count", "n1"), verdict("run.closed", "job", Outcome.PASS), phase=phase, name=phase
        )
        for phase in ("discovery", "smoke")
    ]
    whole = ElementTree.fromstring(junit(gathered(*runs, absent=(Absent("nccl_scaling", "x"),))))
    for count in ("tests", "failures", "errors"):
        assert int(whole.get(count)) == sum(int(suite.get(count)) for suite in whole)
    assert whole.get("skipped") is None  # the schema of Jenkins' plugin refuses it there
    assert int(whole.get("tests")) == len(list(whole.iter("testcase")))
    names = {case.get("classname") for case in whole.iter("testcase")}
    assert {"discovery.gpu.count", "discovery.run.closed", "smoke.discovery.gpu.count", "smoke.run.closed"} <= names
